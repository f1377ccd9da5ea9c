// SPDX-License-Identifier: Apache-2.0
// Texts that come from elsewhere, before a parser sees them.
#pragma once

#include <string_view>

namespace farandole {

/// How deep the arrays and objects of a JSON text lie in each other, at most; an upper bound where it is no JSON. What
/// copies, compares or writes a parsed document calls itself once per level, so documents from elsewhere need a bound.
inline int json_depth(std::string_view text) {
  int depth = 0, deepest = 0;
  bool in_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char character = text[i];
    if (in_string) {
      if (character == '\\') ++i;
      in_string = character != '"';
    } else if (character == '"') {
      in_string = true;
    } else if (character == '[' || character == '{') {
      deepest = ++depth > deepest ? depth : deepest;
    } else if (character == ']' || character == '}') {
      --depth;
    }
  }
  return deepest;
}

/// More than any file or message of Farandole's has.
inline constexpr int kDeepestJson = 16;

}  // namespace farandole
