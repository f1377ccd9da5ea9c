// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "farandole/core/buffer.h"
#include "farandole/sdk/device.h"

namespace farandole {

/// Why the memory of a view cannot be where the view says, as far as the vendor of the devices knows; empty if it can.
/// Asks for the first and the last byte: a view that is too long, as where bytes are taken for elements, mostly ends in
/// no memory at all. @param what  "input", for the text
std::string address_problem(const DeviceRuntime& runtime, std::string_view what, const ConstBufferView& view);

}  // namespace farandole
