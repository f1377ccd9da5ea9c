// SPDX-License-Identifier: Apache-2.0
// Free-list allocator of an address range.
#pragma once

#include <cstdint>
#include <map>
#include <optional>

namespace farandole {

/// Allocates extents of the range [first, end): always the lowest free extent that is long enough. Neighbouring free
/// extents merge. Keeps no record of the extents that are in use. Not thread-safe.
class Extents {
 public:
  Extents(std::uint64_t first, std::uint64_t end) { free_.emplace(first, end); }

  /// Allocates `bytes` bytes. @param alignment  a power of two   @returns  the start; nullopt if no free extent fits
  std::optional<std::uint64_t> take(std::uint64_t bytes, std::uint64_t alignment);
  /// Frees an extent that `take` has returned, in full.
  void give_back(std::uint64_t offset, std::uint64_t bytes);
  std::uint64_t free_bytes() const;

 private:
  std::map<std::uint64_t, std::uint64_t> free_;  // start → end
};

}  // namespace farandole
