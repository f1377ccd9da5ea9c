// SPDX-License-Identifier: Apache-2.0
// Digests that processes may compare: the same on every machine and with every compiler, unlike std::hash.
#pragma once

#include <cstdint>
#include <string_view>

namespace farandole {

/// FNV-1a, 64 bits. Not cryptographic: it detects accidental differences, not forgeries.
///
///     Digest digest;
///     digest.add(std::string_view("ring")).add(std::uint64_t{1024});
///     if (digest.value() != peers_value) …
class Digest {
 public:
  constexpr explicit Digest(std::uint64_t start = 0xcbf29ce484222325U) : value_(start) {}
  /// Adds a whole number in one step. Adding the number's eight bytes one by one gives a different digest.
  constexpr Digest& add(std::uint64_t number) {
    value_ = (value_ ^ number) * 0x100000001b3U;
    return *this;
  }
  /// Adds each byte of the text.
  constexpr Digest& add(std::string_view text) {
    for (const char character : text) add(std::uint64_t{static_cast<unsigned char>(character)});
    return *this;
  }
  constexpr std::uint64_t value() const { return value_; }

 private:
  std::uint64_t value_;
};

}  // namespace farandole
