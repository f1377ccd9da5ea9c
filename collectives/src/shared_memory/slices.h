// SPDX-License-Identifier: Apache-2.0
// How collectives in shared memory cut the vector: into chunks, and these into slices. Pure.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include "operation/call.h"
#include "shared_memory/shm_group.h"

namespace farandole {

/// The whole vector that the ranks of a host hold together has a chunk for each of them, which passes through shared
/// memory slice by slice. All ranks cut alike; an uneven alltoall has other chunks on each.
class Slices {
 public:
  /// @param firsts  where the chunk of each rank begins, and the end; outlives this. Empty: they may be cut freely
  Slices(const Call& call, int size, std::span<const std::size_t> firsts)
      : element_bytes_(size_in_bytes(call.input.dtype)),
        total_(total_count(call, size)),
        size_(static_cast<std::size_t>(size)),
        owner_of_all_(call.collective == Collective::kBroadcast ? call.root : -1),
        firsts_(firsts) {
    if (call.collective == Collective::kAlltoall) recv_firsts_ = recv_parts_of(call, size).offsets();
  }

  std::size_t element_bytes() const { return element_bytes_; }
  std::size_t bytes(std::size_t count) const { return count * element_bytes_; }
  /// Elements of the whole vector.
  std::size_t total() const { return total_; }

  Extent chunk(int owner) const {
    if (owner_of_all_ >= 0) return owner == owner_of_all_ ? Extent{0, total_} : Extent{};
    if (!firsts_.empty()) return extent_of(firsts_, owner);
    // Whole lines, so that ranks do not write to the same one.
    const std::size_t line = std::max<std::size_t>(1, kLineBytes / element_bytes_);
    const std::size_t each = ((total_ + size_ - 1) / size_ + line - 1) / line * line;
    const std::size_t first = std::min(total_, static_cast<std::size_t>(owner) * each);
    return {first, std::min(each, total_ - first)};
  }
  /// Of an alltoall: where in this rank's output the elements of a rank belong.
  Extent received_from(int local) const { return extent_of(recv_firsts_, local); }

  /// Makes slices of such a length that those of all chunks share a slot, or that of one chunk has it.
  void fit(std::size_t slot_bytes, bool share_slot) {
    granularity_ = slot_bytes / (share_slot ? size_ : 1) / kLineBytes * kLineBytes / element_bytes_;
  }
  /// Elements of a full slice.
  std::size_t granularity() const { return granularity_; }
  /// Slices of a chunk.
  std::size_t count_of(std::size_t elements) const { return (elements + granularity_ - 1) / granularity_; }
  Extent slice_of(Extent whole, std::size_t slice) const {
    const std::size_t skipped = std::min(whole.count, slice * granularity_);
    return {whole.first + skipped, std::min(granularity_, whole.count - skipped)};
  }

 private:
  const std::size_t element_bytes_;
  const std::size_t total_, size_;
  const int owner_of_all_;  // -1: none
  const std::span<const std::size_t> firsts_;
  std::vector<std::size_t> recv_firsts_;
  std::size_t granularity_ = 0;  // elements
};

}  // namespace farandole
