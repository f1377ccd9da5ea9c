// SPDX-License-Identifier: Apache-2.0
#include "schedule/layout.h"

#include <algorithm>

namespace farandole {
namespace {

/// Cuts `count` elements, from `first` on, into `parts` nearly equal parts, and appends the end of each part.
void append_ends(Offsets& offsets, std::size_t first, std::size_t count, int parts, std::size_t granularity) {
  const auto divisor = static_cast<std::size_t>(parts);
  const std::size_t even = (count + divisor - 1) / divisor;
  const std::size_t part = (even + granularity - 1) / granularity * granularity;
  for (std::size_t i = 1; i <= divisor; ++i) offsets.push_back(first + std::min(count, i * part));
}

}  // namespace

Offsets balanced_offsets(std::size_t count, int chunks, int segments, std::size_t granularity) {
  Offsets ends{0};
  append_ends(ends, 0, count, chunks, granularity);
  std::vector<std::size_t> counts;
  for (std::size_t c = 1; c < ends.size(); ++c) counts.push_back(ends[c] - ends[c - 1]);
  return offsets_of(counts, segments, granularity);
}

Offsets offsets_of(std::span<const std::size_t> counts, int segments, std::size_t granularity) {
  Offsets offsets{0};
  offsets.reserve(counts.size() * static_cast<std::size_t>(segments) + 1);
  for (const std::size_t count : counts) append_ends(offsets, offsets.back(), count, segments, granularity);
  return offsets;
}

}  // namespace farandole
