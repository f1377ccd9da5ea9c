# SPDX-License-Identifier: Apache-2.0
# Options of the build, and the settings that all targets of Farandole share. Values that the user, a packager or a
# parent project has set are kept.
include_guard()

# Declares an option for a part: build the part if possible (AUTO), fail if it cannot be built (ON), or omit it (OFF).
function(farandole_three_way_option name help)
  set(fallback AUTO)
  if(ARGC GREATER 2)
    set(fallback ${ARGV2})
  endif()
  set(${name} ${fallback} CACHE STRING "${help}: AUTO, ON or OFF")
  set_property(CACHE ${name} PROPERTY STRINGS AUTO ON OFF)
  if(NOT ${name} MATCHES "^(AUTO|ON|OFF)$")
    message(FATAL_ERROR "${name} is '${${name}}'; it must be AUTO, ON or OFF.")
  endif()
endfunction()

farandole_three_way_option(FARANDOLE_WITH_MPI "Build the plug-ins for Open MPI and MPICH")
farandole_three_way_option(FARANDOLE_WITH_PMIX "Join jobs that PMIx launchers start")
farandole_three_way_option(FARANDOLE_WITH_CUDA "Build the plug-in for CUDA")
farandole_three_way_option(FARANDOLE_WITH_TENSORFLOW "Build the TensorFlow ops")
# A parent project seldom wants the Python package.
set(python_fallback AUTO)
if(NOT PROJECT_IS_TOP_LEVEL)
  set(python_fallback OFF)
endif()
farandole_three_way_option(FARANDOLE_WITH_PYTHON "Build the Python package" ${python_fallback})
farandole_three_way_option(FARANDOLE_BUILD_TRAINER "Build the trainer")
option(FARANDOLE_BUILD_TESTS "Build the tests" ${PROJECT_IS_TOP_LEVEL})
option(FARANDOLE_BUILD_PROGRAMS "Build farandole-bench, farandole-info and farandole-schedule" ON)
option(FARANDOLE_BUILD_EXAMPLES "Build the examples" ${PROJECT_IS_TOP_LEVEL})
option(FARANDOLE_INSTALL "Install Farandole with the project" ${PROJECT_IS_TOP_LEVEL})
option(FARANDOLE_ASSERTIONS "Keep assertions in optimised builds" OFF)
option(FARANDOLE_WARNINGS_AS_ERRORS "Treat warnings as errors" OFF)
set(FARANDOLE_SANITIZE "" CACHE STRING "Sanitizers, as for -fsanitize=")
if(FARANDOLE_BUILD_TESTS AND NOT FARANDOLE_BUILD_PROGRAMS)
  message(FATAL_ERROR "The tests run the programs: set FARANDOLE_BUILD_TESTS=OFF or FARANDOLE_BUILD_PROGRAMS=ON.")
endif()

# Plug-ins and a program must share one copy of the library.
if(DEFINED BUILD_SHARED_LIBS AND NOT BUILD_SHARED_LIBS)
  set(shared_only "Farandole is a shared library only, because plug-ins and the program share one copy of it")
  if(PROJECT_IS_TOP_LEVEL)
    message(FATAL_ERROR "BUILD_SHARED_LIBS=OFF, but ${shared_only}; leave BUILD_SHARED_LIBS unset.")
  endif()
  message(NOTICE "BUILD_SHARED_LIBS is OFF for ${CMAKE_PROJECT_NAME}, but ${shared_only}.")
endif()

if(PROJECT_IS_TOP_LEVEL AND NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Debug, Release, RelWithDebInfo or MinSizeRel" FORCE)
endif()
if(NOT DEFINED CMAKE_CXX_STANDARD)
  set(CMAKE_CXX_STANDARD 20)
elseif(CMAKE_CXX_STANDARD LESS 20 OR CMAKE_CXX_STANDARD EQUAL 98)
  message(FATAL_ERROR "CMAKE_CXX_STANDARD is ${CMAKE_CXX_STANDARD}, but Farandole needs C++20 or newer.")
endif()
set(CMAKE_CXX_STANDARD_REQUIRED ON)
if(NOT DEFINED CMAKE_CXX_EXTENSIONS)
  set(CMAKE_CXX_EXTENSIONS OFF)
endif()
if(NOT DEFINED CMAKE_RUNTIME_OUTPUT_DIRECTORY)
  set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin)
endif()
if(NOT DEFINED CMAKE_LIBRARY_OUTPUT_DIRECTORY)
  set(CMAKE_LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/lib)
endif()
if(NOT DEFINED CMAKE_BUILD_RPATH_USE_ORIGIN)
  set(CMAKE_BUILD_RPATH_USE_ORIGIN ON)
endif()

# Sets `out` to the path of the library for files in `directory`. The path is relative, so that an install tree can be
# moved. It is absolute if the packager gave an absolute directory, which may be in a different tree.
function(farandole_rpath_from out directory)
  cmake_path(IS_ABSOLUTE CMAKE_INSTALL_LIBDIR is_absolute)
  if(is_absolute)
    set(${out} ${CMAKE_INSTALL_LIBDIR} PARENT_SCOPE)
    return()
  endif()
  cmake_path(IS_ABSOLUTE directory is_elsewhere)
  if(is_elsewhere)
    set(${out} ${CMAKE_INSTALL_FULL_LIBDIR} PARENT_SCOPE)
    return()
  endif()
  file(RELATIVE_PATH way ${CMAKE_INSTALL_PREFIX}/${directory} ${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_LIBDIR})
  string(REGEX REPLACE "/$" "" way "$ORIGIN/${way}")
  set(${out} "${way}" PARENT_SCOPE)
endfunction()
# While the major version is 0, minor versions may change the ABI. find_package requires the same minor version, too. A
# wheel cannot hold symbolic links, so its library has one name.
set(FARANDOLE_SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
set(FARANDOLE_LIBRARY_VERSION ${PROJECT_VERSION})
if(SKBUILD)
  set(FARANDOLE_LIBRARY_VERSION ${FARANDOLE_SOVERSION})
endif()

# Name of the private directory of plug-ins. The library looks for this directory beside itself.
set(FARANDOLE_PLUGIN_DIRECTORY_NAME farandole)
# ON: the rpath of a plug-in for MPI names the directory of the MPI's C library, which is often outside the loader's
# path.
set(FARANDOLE_RPATH_NAMES_MPI OFF)
if(DEFINED CMAKE_INSTALL_RPATH_USE_LINK_PATH)
  set(FARANDOLE_RPATH_NAMES_MPI ${CMAKE_INSTALL_RPATH_USE_LINK_PATH})
elseif(NOT DEFINED CMAKE_INSTALL_RPATH)
  set(FARANDOLE_RPATH_NAMES_MPI ON)
endif()
if(NOT DEFINED CMAKE_INSTALL_RPATH)
  farandole_rpath_from(FARANDOLE_RPATH_OF_PROGRAMS ${CMAKE_INSTALL_BINDIR})
  farandole_rpath_from(FARANDOLE_RPATH_OF_LIBRARIES ${CMAKE_INSTALL_LIBDIR})
  farandole_rpath_from(FARANDOLE_RPATH_OF_PLUGINS ${CMAKE_INSTALL_LIBDIR}/${FARANDOLE_PLUGIN_DIRECTORY_NAME})
else()
  foreach(place PROGRAMS LIBRARIES PLUGINS)
    set(FARANDOLE_RPATH_OF_${place} ${CMAKE_INSTALL_RPATH})
  endforeach()
endif()
set(CMAKE_INSTALL_RPATH ${FARANDOLE_RPATH_OF_PROGRAMS})

find_program(FARANDOLE_CCACHE ccache)
if(FARANDOLE_CCACHE AND NOT DEFINED CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${FARANDOLE_CCACHE})
endif()

if(FARANDOLE_SANITIZE)
  add_compile_options(-fsanitize=${FARANDOLE_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${FARANDOLE_SANITIZE})
endif()

# Warnings, assertions, and floating-point rules that keep results the same on every instruction set.
function(farandole_configure_target target)
  target_compile_options(${target} PRIVATE -Wall -Wextra -Wpedantic -Wshadow -ffp-contract=off)
  if(FARANDOLE_WARNINGS_AS_ERRORS)
    target_compile_options(${target} PRIVATE -Werror)
  endif()
  # g++ 12 sees an overflow inside fmt 9 that is not there.
  if(CMAKE_CXX_COMPILER_ID STREQUAL GNU AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
    target_compile_options(${target} PRIVATE -Wno-stringop-overflow)
  endif()
  # In a unity build no source is the main file, so g++ treats anonymous namespaces of sources like those of headers.
  if(CMAKE_UNITY_BUILD AND CMAKE_CXX_COMPILER_ID STREQUAL GNU)
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-Wno-subobject-linkage>)
  endif()
  if(FARANDOLE_ASSERTIONS)
    target_compile_options(${target} PRIVATE -UNDEBUG)
  endif()
endfunction()

# Makes two libraries from sources that are compiled once, as `<name>_objects`: the shared `<name>` for users, with only
# the API visible; and the static `<name>_internals`, for tests of hidden functions. Further arguments: libraries to
# link.
function(farandole_add_library name)
  add_library(${name}_objects OBJECT)
  set_target_properties(${name}_objects PROPERTIES POSITION_INDEPENDENT_CODE ON CXX_VISIBILITY_PRESET hidden
                                                   VISIBILITY_INLINES_HIDDEN ON)
  target_link_libraries(${name}_objects PRIVATE ${ARGN})
  farandole_configure_target(${name}_objects)
  set(exports ${PROJECT_SOURCE_DIR}/cmake/exports.map)
  add_library(${name} SHARED $<TARGET_OBJECTS:${name}_objects>)
  target_link_libraries(${name} PRIVATE ${ARGN})
  target_link_options(${name} PRIVATE -Wl,--version-script=${exports} -Wl,-Bsymbolic-functions)
  # A symbol that another library hides by mistake is an error here, not first in a program. With sanitizers, the
  # programs provide the sanitizers' symbols.
  if(NOT FARANDOLE_SANITIZE)
    target_link_options(${name} PRIVATE -Wl,-z,defs)
  endif()
  set_target_properties(${name} PROPERTIES LINK_DEPENDS ${exports} LINKER_LANGUAGE CXX
                        VERSION ${FARANDOLE_LIBRARY_VERSION} SOVERSION ${FARANDOLE_SOVERSION}
                        INSTALL_RPATH "${FARANDOLE_RPATH_OF_LIBRARIES}")
  if(FARANDOLE_BUILD_TESTS)
    add_library(${name}_internals STATIC $<TARGET_OBJECTS:${name}_objects>)
    set_target_properties(${name}_internals PROPERTIES LINKER_LANGUAGE CXX)
    target_compile_features(${name}_internals PUBLIC cxx_std_20)
    target_link_libraries(${name}_internals PUBLIC ${ARGN})
  endif()
endfunction()

# Adds PUBLIC and PRIVATE directories of a library's headers, relative to the current source directory.
function(farandole_include_directories name)
  cmake_parse_arguments(arg "" "" "PUBLIC;PRIVATE" ${ARGN})
  list(TRANSFORM arg_PUBLIC PREPEND ${CMAKE_CURRENT_SOURCE_DIR}/)
  list(TRANSFORM arg_PRIVATE PREPEND ${CMAKE_CURRENT_SOURCE_DIR}/)
  target_include_directories(${name}_objects PRIVATE ${arg_PUBLIC} ${arg_PRIVATE})
  target_include_directories(${name} PUBLIC $<BUILD_INTERFACE:${arg_PUBLIC}>)
  if(TARGET ${name}_internals)
    target_include_directories(${name}_internals PUBLIC ${arg_PUBLIC})
  endif()
endfunction()

# Lets `target` include the headers of `library` without linking it, so that users of `target` choose the shared or the
# static library.
function(farandole_use_headers_of target library)
  target_include_directories(${target} PRIVATE $<TARGET_PROPERTY:${library},INTERFACE_INCLUDE_DIRECTORIES>)
endfunction()
