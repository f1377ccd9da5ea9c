// SPDX-License-Identifier: Apache-2.0
// Names of the values of an enumeration, and errors for unknown names.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace farandole {

/// Names of an enumeration's values, in the order of the values.
template <std::size_t kCount>
using Words = std::array<std::string_view, kCount>;

/// Returns " (did you mean 'ring'?)" with the closest candidate, or an empty text if no candidate is close.
std::string suggestion(std::string_view word, std::span<const std::string_view> candidates);

/// @throws InvalidArgument  "'rung' is no <what> (did you mean 'ring'?); it must be one of …."
[[noreturn]] void throw_no_such(std::string_view word, std::string_view what,
                                std::span<const std::string_view> candidates);

/// Returns the name of `value`, or "unknown" if `value` is not a value of the enumeration.
template <class Enum, std::size_t kCount>
constexpr std::string_view word_of(Enum value, const Words<kCount>& words) {
  const auto place = static_cast<std::size_t>(value);
  return place < kCount ? words[place] : "unknown";
}

/// Returns the value with the name `text`. @throws InvalidArgument  as throw_no_such
template <class Enum, std::size_t kCount>
Enum parse_word(std::string_view text, std::string_view what, const Words<kCount>& words) {
  const auto found = std::find(words.begin(), words.end(), text);
  if (found == words.end()) throw_no_such(text, what, words);
  return static_cast<Enum>(found - words.begin());
}

}  // namespace farandole
