// SPDX-License-Identifier: Apache-2.0
// Libraries of vendors, loaded at run time: their functions are called through tables of pointers.
#pragma once

#include <dlfcn.h>

#include <string>

namespace farandole {

/// Loads a library, whose symbols stay out of the way of another copy that the process may have. Null: dlerror() says
/// why.
inline void* load_vendor_library(const std::string& path) {
  return dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
}

/// Sets `function` to what the library exports by this name, or notes the name where it is the first that is missing.
template <class Function>
void find_function(void* library, const char* name, Function*& function, std::string& missing) {
  function = reinterpret_cast<Function*>(dlsym(library, name));
  if (function == nullptr && missing.empty()) missing = name;
}

}  // namespace farandole
