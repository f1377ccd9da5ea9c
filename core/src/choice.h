// SPDX-License-Identifier: Apache-2.0
// How a word that is none of the valid ones is reported.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace farandole {

/// " (did you mean 'ring'?)", or nothing if no candidate is close.
std::string suggestion(std::string_view word, std::span<const std::string_view> candidates);

/// @throws InvalidArgument  "'rung' is no <what> (did you mean 'ring'?); it must be one of …."
[[noreturn]] void throw_no_such(std::string_view word, std::string_view what,
                                std::span<const std::string_view> candidates);

}  // namespace farandole
