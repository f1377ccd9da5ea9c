// SPDX-License-Identifier: Apache-2.0
// Which parts of an address range are free.
#pragma once

#include <cstdint>
#include <map>
#include <optional>

namespace farandole {

/// Gives out extents of [first, end): the lowest that fit, aligned. Neighbouring free extents merge. Not thread-safe.
class Extents {
 public:
  Extents(std::uint64_t first, std::uint64_t end) { free_.emplace(first, end); }

  /// `alignment` is a power of two.
  std::optional<std::uint64_t> take(std::uint64_t bytes, std::uint64_t alignment);
  /// Exactly what `take` gave.
  void give_back(std::uint64_t offset, std::uint64_t bytes);
  std::uint64_t free_bytes() const;

 private:
  std::map<std::uint64_t, std::uint64_t> free_;  // start → end
};

}  // namespace farandole
