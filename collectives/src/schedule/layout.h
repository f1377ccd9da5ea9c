// SPDX-License-Identifier: Apache-2.0
// Layouts: where the pieces of a schedule lie in a vector.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace farandole {

/// Piece boundaries in elements: piece i is [offsets[i], offsets[i + 1]).
using Offsets = std::vector<std::size_t>;

/// `count` elements in `chunks` nearly equal chunks, each in `segments` segments. Boundaries lie on multiples of
/// `granularity` elements (a cache line), so small vectors leave later pieces empty.
Offsets balanced_offsets(std::size_t count, int chunks, int segments, std::size_t granularity);

/// Chunks of given sizes, each in `segments` segments.
Offsets offsets_of(std::span<const std::size_t> counts, int segments, std::size_t granularity);

}  // namespace farandole
