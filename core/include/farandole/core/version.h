// SPDX-License-Identifier: Apache-2.0
// Version of the library.
#pragma once

#include <string_view>

#include "farandole/core/export.h"

namespace farandole FARANDOLE_API {

/// Version of the loaded library, as "1.2.3" (semantic versioning).
std::string_view version();

}  // namespace FARANDOLE_API
