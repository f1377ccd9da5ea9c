// SPDX-License-Identifier: Apache-2.0
// Loads vendor libraries (CUDA, NCCL, PMIx) at run time. Their functions are called through tables of pointers.
#pragma once

#include <dlfcn.h>

#include <string>

namespace farandole {

/// Loads a library with local symbols, so that another copy in the process is not affected. Returns null on failure;
/// dlerror() has the reason.
inline void* load_vendor_library(const std::string& path) {
  return dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
}

/// Sets `function` to the library's function `name`. If the library lacks the function, sets `function` to null, and
/// `missing` to the name unless an earlier name is missing already.
template <class Function>
void find_function(void* library, const char* name, Function*& function, std::string& missing) {
  function = reinterpret_cast<Function*>(dlsym(library, name));
  if (function == nullptr && missing.empty()) missing = name;
}

}  // namespace farandole
