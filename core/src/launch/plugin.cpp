// SPDX-License-Identifier: Apache-2.0
#include "farandole/internal/plugin.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <vector>

#include "farandole/core/error.h"
#include "farandole/internal/loaded_libraries.h"
#include "farandole/sdk/backend.h"

namespace farandole {

namespace {

/// Subdirectory next to libfarandole.so. Plug-ins are only loaded with dlopen, so they stay out of the directory in
/// which linkers search.
constexpr std::string_view kPluginDirectory = "farandole";

std::string own_path() {
  Dl_info info{};
  if (dladdr(reinterpret_cast<const void*>(&build_id), &info) == 0 || info.dli_fname == nullptr) return {};
  return info.dli_fname;
}

/// Directories that are searched before the loader's path.
std::vector<std::filesystem::path> plugin_directories(const Settings& settings) {
  std::vector<std::filesystem::path> directories;
  if (!settings.process.plugin_directory.empty()) directories.emplace_back(settings.process.plugin_directory);
  if (const std::string path = own_path(); path.find('/') != std::string::npos) {
    std::error_code error;
    const std::filesystem::path file = std::filesystem::canonical(path, error);
    directories.push_back((error ? std::filesystem::path(path) : file).parent_path() / kPluginDirectory);
  }
  return directories;
}

std::string file_of(std::string_view plugin) {
  return fmt::format("libfarandole_{}.so", plugin);
}

bool is_file(const std::filesystem::path& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

void refuse_second_core() {
  const std::vector<std::string> copies = loaded_libraries({"libfarandole.so"});
  if (copies.size() < 2) return;
  throw Unsupported(
      fmt::format("two copies of Farandole are loaded: {} and {}; use one, and the plug-ins that were built with it",
                  copies[0], copies[1]));
}

PluginLibrary check_plugin(std::string_view name, const PluginKind& kind, std::string path, void* handle) {
  refuse_second_core();
  void* const entry = dlsym(handle, kind.entry);
  if (entry == nullptr)
    throw Unsupported(fmt::format("{} is no plug-in of this version: it has no {}", path, kind.entry));
  const auto* id = static_cast<const char*>(dlsym(handle, kind.build_id));
  if (id == nullptr || std::string_view(id) != build_id()) {
    throw Unsupported(
        fmt::format("plug-in {} ({}) was built with another Farandole: this library needs build {}, the plug-in's is "
                    "{}; build it again with the headers of this library and the same compiler, or set "
                    "FARANDOLE_PLUGIN_DIR to the plug-ins of this library",
                    name, path, build_id(), id != nullptr ? id : fmt::format("unknown (no {})", kind.build_id)));
  }
  return {std::move(path), handle, entry};
}

}  // namespace

PluginLibrary load_plugin(std::string_view name, const PluginKind& kind, const Settings& settings) {
  const std::string file = file_of(name);
  std::string looked;
  for (const std::filesystem::path& directory : plugin_directories(settings)) {
    const std::string path = (directory / file).string();
    looked += directory.string() + ", ";
    if (!is_file(path)) continue;
    void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) throw Unsupported(fmt::format("plug-in {} cannot be loaded: {}", name, dlerror()));
    return check_plugin(name, kind, path, handle);
  }
  void* handle = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    throw Unsupported(
        fmt::format("no plug-in {}: looked for {} in {}and the loader's path; {}, or set FARANDOLE_PLUGIN_DIR", name,
                    file, looked, kind.how_to_get));
  }
  return check_plugin(name, kind, file, handle);
}

std::string plugin_refusal(std::string_view name, const PluginLibrary& library) {
  return fmt::format(
      "plug-in {} ({}) has the same build id {} as this library, but its entry function returned null; rebuild the "
      "plug-in",
      name, library.path, build_id());
}

bool has_plugin(std::string_view name, const Settings& settings) {
  const std::vector<std::filesystem::path> directories = plugin_directories(settings);
  return std::any_of(directories.begin(), directories.end(),
                     [name](const std::filesystem::path& directory) { return is_file(directory / file_of(name)); });
}

}  // namespace farandole
