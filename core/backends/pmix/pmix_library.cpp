// SPDX-License-Identifier: Apache-2.0
#include "pmix/pmix_library.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <string_view>
#include <vector>

#include "farandole/core/error.h"
#include "farandole/internal/loaded_libraries.h"
#include "farandole/internal/vendor_functions.h"

namespace farandole::pmix {
namespace {

constexpr std::string_view kFile = "libpmix.so.2";
/// The oldest major version whose structures have the layout of pmix.h.
constexpr int kOldestMajor = 3;

/// Files to try as PMIx's library, in order: a library that the process has loaded already, the file that the loader's
/// search finds, then files in the directories of FARANDOLE_PMIX_DIRECTORIES, which the build sets.
std::vector<std::string> candidates() {
  std::vector<std::string> files = loaded_libraries({"libpmix.so"});
  files.emplace_back(kFile);
  std::string_view directories = FARANDOLE_PMIX_DIRECTORIES;
  while (!directories.empty()) {
    const std::size_t end = std::min(directories.find(':'), directories.size());
    files.push_back(fmt::format("{}/{}", directories.substr(0, end), kFile));
    directories.remove_prefix(std::min(end + 1, directories.size()));
  }
  return files;
}

/// Loads the first file that can be loaded. Sets `path` to the name of that file. @throws Unsupported  none can be
/// loaded
void* load_first(const std::string& chosen, std::string& path) {
  const std::vector<std::string> files = chosen.empty() ? candidates() : std::vector<std::string>{chosen};
  std::string problems;
  for (const std::string& file : files) {
    path = file;
    if (void* const library = load_vendor_library(file); library != nullptr) return library;
    problems += fmt::format("{}{}", problems.empty() ? "" : "; ", dlerror());
  }
  throw Unsupported(fmt::format(
      "{}: {}; install PMIx's library (Debian and Ubuntu: libpmix2), or name its file in FARANDOLE_PMIX_LIBRARY",
      chosen.empty() ? "no PMIx" : "FARANDOLE_PMIX_LIBRARY", problems));
}

/// "OpenPMIx 4.2.2rc2 (PMIx Standard: 4.2, …)" → "4.2.2rc2"
std::string version_in(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_of("0123456789"), text.size()));
  return std::string(text.substr(0, text.find_first_of(", (")));
}

}  // namespace

std::string PmixLibrary::describe() const {
  return fmt::format("PMIx {} ({})", version, path);
}

PmixLibrary load_pmix(const std::string& path) {
  PmixLibrary pmix;
  void* const library = load_first(path, pmix.path);
  std::string missing;
#define FARANDOLE_FIND(name) find_function(library, #name, pmix.api.name, missing);
  FARANDOLE_PMIX_FUNCTIONS(FARANDOLE_FIND)
#undef FARANDOLE_FIND
  if (!missing.empty()) {
    throw Unsupported(fmt::format("{} is no PMIx: it has no {}; name PMIx's own library in FARANDOLE_PMIX_LIBRARY",
                                  pmix.path, missing));
  }
  // Replace the name by the path of the file that the loader has found.
  Dl_info info{};
  if (dladdr(reinterpret_cast<const void*>(pmix.api.PMIx_Get_version), &info) != 0 && info.dli_fname != nullptr)
    pmix.path = info.dli_fname;
  pmix.version = version_in(pmix.api.PMIx_Get_version());
  int major = 0;
  std::from_chars(pmix.version.data(), pmix.version.data() + pmix.version.size(), major);
  if (major < kOldestMajor) {
    throw Unsupported(fmt::format("{} is too old: PMIx {} or newer is needed; name one in FARANDOLE_PMIX_LIBRARY",
                                  pmix.describe(), kOldestMajor));
  }
  return pmix;
}

}  // namespace farandole::pmix
