// SPDX-License-Identifier: Apache-2.0
// Finds and loads the libraries of plug-ins, and checks that they were built with this library's headers.
#pragma once

#include <string>
#include <string_view>

#include "farandole/core/export.h"
#include "farandole/core/settings.h"

namespace farandole FARANDOLE_API {

/// Kind of a plug-in: names of its exported symbols.
struct PluginKind {
  const char* entry = nullptr;     ///< name of the entry function, "farandole_backend_v1"
  const char* build_id = nullptr;  ///< name of the build id, a text: "farandole_backend_build_id"
  std::string_view how_to_get;     ///< advice for the message that there is no such plug-in
};

/// Library of a plug-in. The library stays loaded; no function has been called yet.
struct PluginLibrary {
  std::string path;
  void* handle = nullptr;
  void* entry = nullptr;  ///< address of `PluginKind::entry`
};

/// Loads libfarandole_<name>.so from the first of these that has the file: FARANDOLE_PLUGIN_DIR, if set; farandole/
/// beside this library; the loader's path. The plug-in's symbols, including its copies of fmt and spdlog, are local, so
/// that they do not mix with another copy in the process.
/// @throws Unsupported  there is no such plug-in, the plug-in cannot be loaded, or it belongs to another build; the
/// message has the reason and the directories
PluginLibrary load_plugin(std::string_view name, const PluginKind& kind, const Settings& settings);

/// Message for a plug-in whose entry function returned null although the build ids are the same.
std::string plugin_refusal(std::string_view name, const PluginLibrary& library);

/// True if the plug-in's file is in FARANDOLE_PLUGIN_DIR, if set, or in farandole/ beside this library. Does not search
/// the loader's path.
bool has_plugin(std::string_view name, const Settings& settings);

}  // namespace FARANDOLE_API
