// SPDX-License-Identifier: Apache-2.0
// Search for a library of NVIDIA, such as cuBLAS, at run time.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace farandole::trainer::cuda {

/// A library to look for.
struct SearchedLibrary {
  std::string_view name;           ///< "cuBLAS"
  std::string_view setting;        ///< the setting that names its file: "FARANDOLE_CUBLAS_LIBRARY"
  std::string_view file;           ///< file name without the version: "libcublas.so"
  std::vector<std::string> files;  ///< file names for the loader's search, the best first
  std::string_view remedy;         ///< what to do if there is none
};

/// Returns the files to try, in order: `path` if it is not empty; else what the process has loaded, then
/// `library.files`.
std::vector<std::string> files_of(const SearchedLibrary& library, const std::string& path);

/// Returns why a file that was loaded cannot be used; empty if it can.
using LibraryCheck = std::function<std::string(void* library, const std::string& file)>;

/// Loads the first file that passes the check. The library stays loaded.
/// @param path  value of the setting   @throws Unsupported  says for each file why it cannot be used, with the remedy
void load_library(const SearchedLibrary& library, const std::string& path, const LibraryCheck& why_not);

}  // namespace farandole::trainer::cuda
