// SPDX-License-Identifier: Apache-2.0
// Options of a training as text: names and values, as checkpoints hold them.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace farandole::trainer {

using OptionTexts = std::vector<std::pair<std::string, std::string>>;

/// The value of an option; null if there is none of this name.
inline const std::string* find_option(const OptionTexts& options, std::string_view name) {
  const auto found = std::find_if(options.begin(), options.end(), [&](const auto& each) { return each.first == name; });
  return found == options.end() ? nullptr : &found->second;
}

}  // namespace farandole::trainer
