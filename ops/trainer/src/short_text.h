// SPDX-License-Identifier: Apache-2.0
// Texts that ranks tell each other in messages of one size.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <string>

namespace farandole::trainer {

/// Copies as much of a text as fits before the zero that ends it. @pre  `to` holds zeros
template <std::size_t kSize>
void copy_text(const std::string& text, std::array<char, kSize>& to) {
  std::copy_n(text.begin(), std::min(text.size(), kSize - 1), to.begin());
}

}  // namespace farandole::trainer
