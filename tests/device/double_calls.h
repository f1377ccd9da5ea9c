// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "driver_function.h"
#include "fake_device.h"

namespace farandole::test {

/// How often the double's function was called in this process; 0 on a GPU, which counts nothing.
inline unsigned long calls_of(const char* function) {
  auto* const count = find_in_driver<decltype(fake_device_calls)>("fake_device_calls");
  return count == nullptr ? 0 : count(function);
}

}  // namespace farandole::test
