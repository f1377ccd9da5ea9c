// SPDX-License-Identifier: Apache-2.0
// Offsets of a schedule's pieces in a vector.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace farandole {

/// Boundaries of the pieces, in elements: piece i is [offsets[i], offsets[i + 1]).
using Offsets = std::vector<std::size_t>;

/// Cuts `count` elements into `chunks` nearly equal chunks, and each chunk into `segments` segments. Boundaries lie on
/// multiples of `granularity` elements (a cache line), so in short vectors the last pieces are empty.
Offsets balanced_offsets(std::size_t count, int chunks, int segments, std::size_t granularity);

/// Cuts each chunk into `segments` segments, with boundaries as above. @param counts  elements of each chunk
Offsets offsets_of(std::span<const std::size_t> counts, int segments, std::size_t granularity);

}  // namespace farandole
