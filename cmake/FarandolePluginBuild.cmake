# SPDX-License-Identifier: Apache-2.0
# Writes the header with the build id of plug-ins. The last part of the id is a digest of the headers that a plug-in may
# include, so that the library refuses a plug-in that was built with other classes instead of crashing.
#   cmake -DHEADERS=<directory of farandole/core and farandole/sdk> -DVERSION=… -DOUTPUT=… -P FarandolePluginBuild.cmake
file(GLOB headers RELATIVE ${HEADERS}/farandole ${HEADERS}/farandole/core/*.h ${HEADERS}/farandole/sdk/*.h)
list(REMOVE_ITEM headers sdk/plugin_build.h)
list(SORT headers)
set(digests "")
foreach(header ${headers})
  file(SHA256 ${HEADERS}/farandole/${header} digest)
  string(APPEND digests "${header} ${digest}\n")
endforeach()
string(SHA256 abi "${digests}")
string(SUBSTRING ${abi} 0 12 abi)
file(CONFIGURE OUTPUT ${OUTPUT} @ONLY CONTENT [[
// SPDX-License-Identifier: Apache-2.0
// Made by cmake/FarandolePluginBuild.cmake.
// What a plug-in and the library that loads it must have in common: version, compiler, and these headers.
#pragma once

#define FARANDOLE_PLUGIN_TEXT_OF(number) #number
#define FARANDOLE_PLUGIN_VERSION_OF(maker, major, minor, patch) \
  maker "-" FARANDOLE_PLUGIN_TEXT_OF(major) "." FARANDOLE_PLUGIN_TEXT_OF(minor) "." FARANDOLE_PLUGIN_TEXT_OF(patch)
#ifdef __clang__
#define FARANDOLE_PLUGIN_COMPILER FARANDOLE_PLUGIN_VERSION_OF("Clang", __clang_major__, __clang_minor__, __clang_patchlevel__)
#else
#define FARANDOLE_PLUGIN_COMPILER FARANDOLE_PLUGIN_VERSION_OF("GNU", __GNUC__, __GNUC_MINOR__, __GNUC_PATCHLEVEL__)
#endif

/// "0.1.0-GNU-12.2.0-abi-5f3a9c2e71b0": the text of a plug-in's `farandole_backend_build_id`.
#define FARANDOLE_PLUGIN_BUILD_ID "@VERSION@-" FARANDOLE_PLUGIN_COMPILER "-abi-@abi@"
]])
