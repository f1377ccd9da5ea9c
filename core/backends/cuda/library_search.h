// SPDX-License-Identifier: Apache-2.0
// Search for NVIDIA's libraries at run time.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace farandole::cuda {

/// A library that was loaded, or the reason why none was.
struct FoundLibrary {
  void* handle = nullptr;
  std::string file;     ///< name or path that was loaded
  std::string problem;  ///< why each file that was tried cannot be used; empty if one can
};

/// Returns why a library that was loaded cannot be used; empty if it can.
using LibraryCheck = std::function<std::string(void* handle, const std::string& file)>;

/// Loads a library, which stays loaded: the first that can be loaded, and that passes the check, of
/// 1. the file `chosen`, and no other, if it is not empty;
/// 2. libraries that the process has loaded and whose names begin with `base`;
/// 3. `names`, by the loader's search;
/// 4. `names` in the `nvidia` packages of the active Python environment. Libraries that lie beside a found library
///    there, such as libcublasLt, are found through its run path ($ORIGIN).
/// @param base   "libcublas.so"
/// @param names  {"libcublas.so.13", "libcublas.so.12"}
/// @param why_not  empty: every library passes
FoundLibrary find_library(const std::string& chosen, std::string_view base, const std::vector<std::string>& names,
                          const LibraryCheck& why_not = {});

/// Returns the prefixes of the active Python environment, best first: VIRTUAL_ENV, CONDA_PREFIX, and the prefix of the
/// first python3 in PATH. Starts no process.
/// @param getenv  returns the value of an environment variable, or null
std::vector<std::filesystem::path> python_prefixes(const std::function<const char*(const char*)>& getenv);

/// Returns the files PREFIX/lib/python3*/site-packages/nvidia/*/lib/NAME, by prefixes, then by names. Debian's
/// dist-packages are searched like site-packages.
std::vector<std::string> files_in_python(const std::vector<std::filesystem::path>& prefixes,
                                         const std::vector<std::string>& names);

}  // namespace farandole::cuda
