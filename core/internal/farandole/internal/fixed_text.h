// SPDX-License-Identifier: Apache-2.0
// Texts of bounded length, as processes send them to each other.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <string>
#include <string_view>

namespace farandole {

/// Writes as much of the text as fits before a zero byte. `to` is all zero before.
template <std::size_t kSize>
void write_text(char (&to)[kSize], std::string_view text) {
  text.copy(to, kSize - 1);
}
template <std::size_t kSize>
void write_text(std::array<char, kSize>& to, std::string_view text) {
  text.copy(to.data(), kSize - 1);
}

/// True if the array holds a text of printable ASCII that ends within it: what a peer has sent may be anything.
template <std::size_t kSize>
bool is_text(const char (&field)[kSize]) {
  const std::string_view text(field, strnlen(field, kSize));
  return text.size() < kSize && std::all_of(text.begin(), text.end(), [](char c) { return c >= ' ' && c <= '~'; });
}

/// The text in such an array, which may come from a peer: it ends with the array at the latest.
template <std::size_t kSize>
std::string text_of(const char (&from)[kSize]) {
  return {from, strnlen(from, kSize)};
}

}  // namespace farandole
