// SPDX-License-Identifier: Apache-2.0
// The version of the library.
#pragma once

#include <string_view>

#include "farandole/core/export.h"

namespace farandole FARANDOLE_API {

/// "1.2.3", by semantic versioning.
std::string_view version();

}  // namespace FARANDOLE_API
