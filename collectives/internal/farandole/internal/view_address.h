// SPDX-License-Identifier: Apache-2.0
// Checks of addresses against the vendor of the devices.
#pragma once

#include <string>
#include <string_view>

#include "farandole/core/buffer.h"
#include "farandole/sdk/device.h"

namespace farandole {

/// Says why the memory of a view is not in the space that the view names, as the vendor of the devices sees it; empty
/// if it is. Checks the first and the last byte: the end of a view that is too long, for example because bytes were
/// passed as elements, is mostly in no memory at all. @param what  name of the view for the text: "input"
std::string address_problem(const DeviceRuntime& runtime, std::string_view what, const ConstBufferView& view);

}  // namespace farandole
