// SPDX-License-Identifier: Apache-2.0
// The libraries of plug-ins: where they are, and whether they were built with this library's headers.
#pragma once

#include <string>
#include <string_view>

#include "farandole/core/settings.h"

namespace farandole {

/// What all plug-ins of a kind have.
struct PluginKind {
  const char* entry = nullptr;     ///< name of the one function, "farandole_backend_v1"
  const char* build_id = nullptr;  ///< name of the text beside it, "farandole_backend_build_id"
  std::string_view to_get_one;     ///< what to do where there is none, for messages
};

/// A plug-in's library, which stays loaded. None of its functions was called yet.
struct PluginLibrary {
  std::string path;
  void* handle = nullptr;
  void* entry = nullptr;  ///< the function that the kind names
};

/// Loads libfarandole_<name>.so from FARANDOLE_PLUGIN_DIR, the directory beside this library, or the loader's own path.
/// Its symbols, and those of fmt and spdlog in it, are not global: another copy that the process has loaded would be
/// mixed up with them. @throws Unsupported  there is none, it cannot be loaded, or belongs to another build; the
/// message says which and where it looked
PluginLibrary load_plugin(std::string_view name, const PluginKind& kind, const Settings& settings);

/// "plug-in … refuses this library": its entry returned nothing, although the build ids are the same.
std::string plugin_refusal(std::string_view name, const PluginLibrary& library);

/// True if the file of the plug-in is in one of the directories; the loader's own path is not looked at.
bool has_plugin(std::string_view name, const Settings& settings);

}  // namespace farandole
