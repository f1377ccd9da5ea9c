// SPDX-License-Identifier: Apache-2.0
// Text fields of fixed length in messages between processes.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <string>
#include <string_view>

namespace farandole {

/// Copies as much of `text` as fits, leaving a terminating zero byte. `to` must be all zero before.
template <std::size_t kSize>
void write_text(char (&to)[kSize], std::string_view text) {
  text.copy(to, kSize - 1);
}
template <std::size_t kSize>
void write_text(std::array<char, kSize>& to, std::string_view text) {
  text.copy(to.data(), kSize - 1);
}

/// True if `field` holds printable ASCII and is terminated within the array. Checks fields that came from a peer, which
/// may have sent anything.
template <std::size_t kSize>
bool is_text(const char (&field)[kSize]) {
  const std::string_view text(field, strnlen(field, kSize));
  return text.size() < kSize && std::all_of(text.begin(), text.end(), [](char c) { return c >= ' ' && c <= '~'; });
}

/// Returns the text in `from`. Safe for fields without a terminating zero byte: the text ends with the array.
template <std::size_t kSize>
std::string text_of(const char (&from)[kSize]) {
  return {from, strnlen(from, kSize)};
}

}  // namespace farandole
