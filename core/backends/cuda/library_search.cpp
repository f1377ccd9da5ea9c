// SPDX-License-Identifier: Apache-2.0
#include "cuda/library_search.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <system_error>

#include "farandole/internal/loaded_libraries.h"
#include "farandole/internal/vendor_functions.h"

namespace farandole::cuda {
namespace {

namespace fs = std::filesystem;

/// The entries of a directory, by name; empty if it cannot be read.
std::vector<fs::path> entries_of(const fs::path& directory) {
  std::vector<fs::path> entries;
  std::error_code error;
  for (fs::directory_iterator entry(directory, error), end; !error && entry != end; entry.increment(error)) {
    entries.push_back(entry->path());
  }
  std::sort(entries.begin(), entries.end());
  return entries;
}

/// The first executable file `program` in the directories of `path`, a list with colons; empty if there is none.
fs::path find_program(std::string_view path, const char* program) {
  while (!path.empty()) {
    const std::size_t end = std::min(path.find(':'), path.size());
    fs::path file = fs::path(path.substr(0, end)) / program;
    std::error_code error;
    if (fs::is_regular_file(file, error) && access(file.c_str(), X_OK) == 0) return file;
    path.remove_prefix(std::min(end + 1, path.size()));
  }
  return {};
}

/// The prefix of the Python whose program is `python`, by Python's own rule: a virtual environment is where the link
/// to the program lies, any other installation is where the program itself lies.
fs::path prefix_of(const fs::path& python) {
  std::error_code error;
  fs::path environment = fs::absolute(python, error).parent_path().parent_path();
  if (fs::exists(environment / "pyvenv.cfg", error)) return environment;
  return fs::canonical(python, error).parent_path().parent_path();
}

/// Directories of packages in an installation of Python.
std::vector<fs::path> package_directories(const fs::path& prefix) {
  std::vector<fs::path> directories;
  for (const fs::path& version : entries_of(prefix / "lib")) {
    if (!version.filename().string().starts_with("python3")) continue;
    directories.push_back(version / "site-packages");
    directories.push_back(version / "dist-packages");
  }
  return directories;
}

}  // namespace

std::vector<fs::path> python_prefixes(const std::function<const char*(const char*)>& getenv) {
  std::vector<fs::path> prefixes;
  const auto add = [&prefixes](fs::path prefix) {
    if (prefix.empty() || std::find(prefixes.begin(), prefixes.end(), prefix) != prefixes.end()) return;
    prefixes.push_back(std::move(prefix));
  };
  for (const char* variable : {"VIRTUAL_ENV", "CONDA_PREFIX"}) {
    if (const char* const value = getenv(variable)) add(value);
  }
  const char* const path = getenv("PATH");
  const fs::path python = find_program(path != nullptr ? path : "", "python3");
  if (python.empty()) return prefixes;
  const fs::path prefix = prefix_of(python);
  add(prefix);
  // Debian's pip installs packages of /usr/bin/python3 there.
  if (prefix == "/usr") add("/usr/local");
  return prefixes;
}

std::vector<std::string> files_in_python(const std::vector<fs::path>& prefixes, const std::vector<std::string>& names) {
  std::vector<std::string> files;
  for (const fs::path& prefix : prefixes) {
    std::vector<fs::path> packages;
    for (const fs::path& directory : package_directories(prefix)) {
      const std::vector<fs::path> more = entries_of(directory / "nvidia");
      packages.insert(packages.end(), more.begin(), more.end());
    }
    for (const std::string& name : names) {
      for (const fs::path& package : packages) {
        const fs::path file = package / "lib" / name;
        std::error_code error;
        if (fs::is_regular_file(file, error)) files.push_back(file.string());
      }
    }
  }
  return files;
}

FoundLibrary find_library(const std::string& chosen, std::string_view base, const std::vector<std::string>& names,
                          const LibraryCheck& why_not) {
  FoundLibrary found;
  const auto load = [&](const std::vector<std::string>& files) {
    for (const std::string& file : files) {
      void* const handle = load_vendor_library(file);
      const std::string problem = handle == nullptr ? dlerror() : why_not ? why_not(handle, file) : std::string();
      if (problem.empty()) {
        found = {handle, file, {}};
        return true;
      }
      found.problem += fmt::format("{}{}", found.problem.empty() ? "" : "; ", problem);
    }
    return false;
  };
  if (!chosen.empty()) {
    load({chosen});
  } else if (!load(loaded_libraries({base})) && !load(names)) {
    load(files_in_python(python_prefixes(std::getenv), names));
  }
  return found;
}

}  // namespace farandole::cuda
