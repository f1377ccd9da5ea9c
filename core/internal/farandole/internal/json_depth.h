// SPDX-License-Identifier: Apache-2.0
// Bound on the nesting of JSON texts from files and peers, checked before the text is parsed.
#pragma once

#include <string_view>

namespace farandole {

/// Returns the nesting depth of arrays and objects in a JSON text; an upper bound if the text is not valid JSON. Code
/// that copies, compares or writes a parsed document recurses once per level, so documents of unknown origin need a
/// bound.
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

/// Maximum depth that Farandole accepts. Farandole's own files and messages are less deep.
inline constexpr int kMaxJsonDepth = 16;

}  // namespace farandole
