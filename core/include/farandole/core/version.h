// The version of the library.
#pragma once

#include <string_view>

namespace farandole {

/// "1.2.3", by semantic versioning.
std::string_view version();

}  // namespace farandole
