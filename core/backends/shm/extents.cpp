// SPDX-License-Identifier: Apache-2.0
#include "shm/extents.h"

#include <iterator>

namespace farandole {

std::optional<std::uint64_t> Extents::take(std::uint64_t bytes, std::uint64_t alignment) {
  for (auto extent = free_.begin(); extent != free_.end(); ++extent) {
    const auto [start, end] = *extent;
    const std::uint64_t offset = (start + alignment - 1) & ~(alignment - 1);
    if (offset > end || end - offset < bytes) continue;
    free_.erase(extent);
    if (offset > start) free_.emplace(start, offset);
    if (offset + bytes < end) free_.emplace(offset + bytes, end);
    return offset;
  }
  return std::nullopt;
}

void Extents::give_back(std::uint64_t offset, std::uint64_t bytes) {
  std::uint64_t start = offset;
  std::uint64_t end = offset + bytes;
  auto next = free_.lower_bound(start);
  if (next != free_.begin() && std::prev(next)->second == start) {
    start = std::prev(next)->first;
    free_.erase(std::prev(next));
  }
  if (next != free_.end() && next->first == end) {
    end = next->second;
    free_.erase(next);
  }
  free_.emplace(start, end);
}

std::uint64_t Extents::free_bytes() const {
  std::uint64_t sum = 0;
  for (const auto& [start, end] : free_) sum += end - start;
  return sum;
}

}  // namespace farandole
