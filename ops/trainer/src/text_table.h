// SPDX-License-Identifier: Apache-2.0
// Tables as text.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <string>
#include <vector>

namespace farandole::trainer {

/// The text, or its beginning and "..." if it is longer than `length`.
inline std::string cut_to(std::string text, std::size_t length) {
  if (text.size() <= length) return text;
  text.resize(length - 3);
  return text + "...";
}

/// A table of `Columns` columns, each as wide as its widest entry. Each line ends with a newline, without blanks
/// before.
/// @param left  number of columns, the first ones, that are aligned to the left; numbers are aligned to the right
/// @param hidden  column that is left out; `Columns`: none
template <std::size_t Columns>
std::string format_table(const std::vector<std::array<std::string, Columns>>& lines, std::size_t left,
                         std::size_t hidden = Columns) {
  std::array<std::size_t, Columns> widths{};
  for (const auto& line : lines) {
    for (std::size_t k = 0; k < Columns; ++k) widths[k] = std::max(widths[k], line[k].size());
  }
  std::string text;
  for (const auto& line : lines) {
    for (std::size_t k = 0; k < Columns; ++k) {
      if (k == hidden) continue;
      text += k < left ? fmt::format("{:<{}}  ", line[k], widths[k]) : fmt::format("{:>{}}  ", line[k], widths[k]);
    }
    text.resize(text.find_last_not_of(' ') + 1);
    text += '\n';
  }
  return text;
}

}  // namespace farandole::trainer
