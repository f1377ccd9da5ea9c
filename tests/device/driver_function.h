// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <dlfcn.h>

#include <string>

#include "farandole/core/settings.h"

namespace farandole::test {

/// From the driver that the plug-in uses. The program must not be linked with the double: its functions would then take
/// the place of the driver's in all libraries. Null if the driver has none of this name.
template <class Function>
Function* find_in_driver(const char* name) {
  const std::string named = Settings::from_environment().devices.cuda_library;
  void* const driver = dlopen(named.empty() ? "libcuda.so.1" : named.c_str(), RTLD_NOW | RTLD_LOCAL);
  return driver == nullptr ? nullptr : reinterpret_cast<Function*>(dlsym(driver, name));
}

}  // namespace farandole::test
