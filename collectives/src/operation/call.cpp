// SPDX-License-Identifier: Apache-2.0
#include "operation/call.h"

#include <numeric>

namespace farandole {

KeptCall::KeptCall(const Call& call)
    : Call(call),
      own_counts_(call.counts.begin(), call.counts.end()),
      own_recv_counts_(call.recv_counts.begin(), call.recv_counts.end()) {
  counts = own_counts_;
  recv_counts = own_recv_counts_;
  algorithm = {};
}

std::size_t Parts::total() const {
  return counts_.empty() ? each_ * size_ : std::accumulate(counts_.begin(), counts_.end(), std::size_t{0});
}

std::vector<std::size_t> Parts::to_vector() const {
  if (counts_.empty()) return std::vector<std::size_t>(size_, each_);
  return {counts_.begin(), counts_.end()};
}

std::vector<std::size_t> Parts::offsets() const {
  std::vector<std::size_t> offsets(size_ + 1, 0);
  for (std::size_t rank = 0; rank < size_; ++rank) offsets[rank + 1] = offsets[rank] + (*this)[rank];
  return offsets;
}

Parts parts_of(const Call& call, int size) {
  switch (call.collective) {
    case Collective::kAllgather:
    case Collective::kGather:
      return {call.counts, call.input.count, size};
    case Collective::kScatter:
      return {call.counts, call.output.count, size};
    default:
      return {call.counts, call.input.count / static_cast<std::size_t>(size), size};
  }
}

Parts recv_parts_of(const Call& call, int size) {
  return {call.recv_counts, call.output.count / static_cast<std::size_t>(size), size};
}

}  // namespace farandole
