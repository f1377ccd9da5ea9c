// SPDX-License-Identifier: Apache-2.0
// Chunks and slices of a vector in collectives in shared memory. Pure.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include "operation/call.h"
#include "shared_memory/shm_layout.h"

namespace farandole {

/// Cuts the whole vector of a collective (in an allgather all ranks' blocks together) into one chunk per rank, and each
/// chunk into slices, which pass through shared memory in turn. Counts are in elements.
///
/// All ranks compute the same cuts from the same call, except in an uneven alltoall: there each rank's chunks follow
/// that rank's counts.
class Slices {
 public:
  /// @param offsets  the start of each rank's chunk, and the end; outlives this object. Empty if chunks may be cut
  /// freely
  Slices(const PreparedCall& prepared, int size, std::span<const std::size_t> offsets)
      : element_bytes_(size_in_bytes(prepared.call.input.dtype)),
        total_(prepared.total),
        size_(static_cast<std::size_t>(size)),
        owner_of_all_(prepared.call.collective == Collective::kBroadcast ? prepared.call.root : -1),
        offsets_(offsets) {
    if (prepared.call.collective == Collective::kAlltoall) recv_offsets_ = prepared.recv_parts.offsets();
  }

  std::size_t element_bytes() const { return element_bytes_; }
  std::size_t bytes(std::size_t count) const { return count * element_bytes_; }
  /// Elements of the whole vector.
  std::size_t total() const { return total_; }

  Extent chunk(int owner) const {
    if (owner_of_all_ >= 0) return owner == owner_of_all_ ? Extent{0, total_} : Extent{};
    if (!offsets_.empty()) return extent_of(offsets_, owner);
    // Use multiples of a line, so that no two ranks write to the same line.
    const std::size_t line = std::max<std::size_t>(1, kLineBytes / element_bytes_);
    const std::size_t each = ((total_ + size_ - 1) / size_ + line - 1) / line * line;
    const std::size_t first = std::min(total_, static_cast<std::size_t>(owner) * each);
    return {first, std::min(each, total_ - first)};
  }
  /// Part of this rank's output that receives the elements of `local`, in an alltoall.
  Extent received_from(int local) const { return extent_of(recv_offsets_, local); }

  /// Sets the length of slices so that a slot holds one slice or, with `share_slot`, one slice of every chunk.
  void fit(std::size_t slot_bytes, bool share_slot) {
    granularity_ = slot_bytes / (share_slot ? size_ : 1) / kLineBytes * kLineBytes / element_bytes_;
  }
  /// Elements of a full slice.
  std::size_t granularity() const { return granularity_; }
  /// Number of slices in a chunk of `elements` elements.
  std::size_t count_of(std::size_t elements) const { return (elements + granularity_ - 1) / granularity_; }
  /// Slice number `slice` of a chunk; empty past the chunk's end.
  Extent slice_of(Extent chunk, std::size_t slice) const {
    const std::size_t skipped = std::min(chunk.count, slice * granularity_);
    return {chunk.first + skipped, std::min(granularity_, chunk.count - skipped)};
  }

 private:
  const std::size_t element_bytes_;
  const std::size_t total_, size_;
  const int owner_of_all_;  // the root of a broadcast; -1 in other collectives
  const std::span<const std::size_t> offsets_;
  std::vector<std::size_t> recv_offsets_;  // of an alltoall
  std::size_t granularity_ = 0;
};

}  // namespace farandole
