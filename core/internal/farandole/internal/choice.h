// SPDX-License-Identifier: Apache-2.0
// Words for the values of an enumeration, and how a word that is none of the valid ones is reported.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace farandole {

/// The words for the values of an enumeration, in its order.
template <std::size_t kCount>
using Words = std::array<std::string_view, kCount>;

/// " (did you mean 'ring'?)", or nothing if no candidate is close.
std::string suggestion(std::string_view word, std::span<const std::string_view> candidates);

/// @throws InvalidArgument  "'rung' is no <what> (did you mean 'ring'?); it must be one of …."
[[noreturn]] void throw_no_such(std::string_view word, std::string_view what,
                                std::span<const std::string_view> candidates);

/// "unknown" for a number that is none of the enumeration's.
template <class Enum, std::size_t kCount>
constexpr std::string_view word_of(Enum value, const Words<kCount>& words) {
  const auto place = static_cast<std::size_t>(value);
  return place < kCount ? words[place] : "unknown";
}

/// @throws InvalidArgument  as throw_no_such
template <class Enum, std::size_t kCount>
Enum parse_word(std::string_view text, std::string_view what, const Words<kCount>& words) {
  const auto found = std::find(words.begin(), words.end(), text);
  if (found == words.end()) throw_no_such(text, what, words);
  return static_cast<Enum>(found - words.begin());
}

}  // namespace farandole
