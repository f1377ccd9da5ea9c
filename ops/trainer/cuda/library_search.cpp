// SPDX-License-Identifier: Apache-2.0
#include "library_search.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include "farandole/core/error.h"
#include "farandole/internal/loaded_libraries.h"
#include "farandole/internal/vendor_functions.h"

namespace farandole::trainer::cuda {

std::vector<std::string> files_of(const SearchedLibrary& library, const std::string& path) {
  if (!path.empty()) return {path};
  std::vector<std::string> files = loaded_libraries({library.file});
  files.insert(files.end(), library.files.begin(), library.files.end());
  return files;
}

void load_library(const SearchedLibrary& library, const std::string& path, const LibraryCheck& why_not) {
  std::string problems;
  for (const std::string& file : files_of(library, path)) {
    void* const loaded = load_vendor_library(file);
    const std::string problem = loaded == nullptr ? dlerror() : why_not(loaded, file);
    if (problem.empty()) return;
    problems += fmt::format("{}{}", problems.empty() ? "" : "; ", problem);
  }
  throw Unsupported(fmt::format("{}: {}; {}",
                                path.empty() ? fmt::format("no {}", library.name) : std::string(library.setting),
                                problems, library.remedy));
}

}  // namespace farandole::trainer::cuda
