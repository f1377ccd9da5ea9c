// SPDX-License-Identifier: Apache-2.0
// Validation of a view's address by the devices' driver.
#pragma once

#include <string>
#include <string_view>

#include "farandole/core/buffer.h"
#include "farandole/sdk/device.h"

namespace farandole {

/// Returns a text that says why the address of a view is wrong; empty if the address is valid. The first byte must be
/// in the space that the view names, as the driver sees it. In device memory the last byte must be, too, which finds
/// views that are too long, for example because bytes were passed as elements: their end usually lies outside of all
/// memory. The address in device memory must also be aligned to the size of an element.
/// @param what  name of the view for the text: "input"
std::string address_problem(const DeviceRuntime& runtime, std::string_view what, const ConstBufferView& view);

}  // namespace farandole
