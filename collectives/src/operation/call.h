// SPDX-License-Identifier: Apache-2.0
// What a caller asked for.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include "farandole/collectives/algorithms.h"
#include "farandole/core/buffer.h"
#include "farandole/core/stream.h"
#include "selection/selection.h"

namespace farandole {

/// Owns nothing: its views and spans refer to the caller's memory.
struct Call {
  Collective collective = Collective::kBarrier;
  ConstBufferView input;  ///< of a rank that has none: without elements, and of the output's type
  BufferView output;
  ReduceOp op = ReduceOp::kSum;
  int root = -1;
  std::span<const std::size_t> counts;       ///< elements per rank; of alltoall: to each rank. Empty: parts are equal
  std::span<const std::size_t> recv_counts;  ///< of alltoall: from each rank. Empty: parts are equal
  double prescale = 1.0;                     ///< as it is applied, see user_factor()
  double postscale = 1.0;                    ///< the caller's, which ranks compare
  double final_scale = 1.0;                  ///< what results are multiplied by: of an average see average_factor()
  std::string_view algorithm;
  int segments = 0;
  StreamView stream;  ///< the caller's, of a call on device memory

  bool is_uneven() const { return !counts.empty() || !recv_counts.empty(); }
  /// No rank knows what its peers send each other, until they have exchanged their counts.
  bool exchanges_counts() const { return collective == Collective::kAlltoall && is_uneven(); }
};

/// A call that outlives the caller's arguments: has counts of its own, and no name of an algorithm. Buffers stay the
/// caller's.
class KeptCall : public Call {
 public:
  explicit KeptCall(const Call& call);
  KeptCall(const KeptCall&) = delete;
  KeptCall& operator=(const KeptCall&) = delete;

 private:
  const std::vector<std::size_t> own_counts_, own_recv_counts_;
};

/// A range of a vector.
struct Extent {
  std::size_t first = 0, count = 0;  // elements
};
/// The part that begins at `offsets[index]`, and ends where the next one begins.
inline Extent extent_of(std::span<const std::size_t> offsets, int index) {
  const auto part = static_cast<std::size_t>(index);
  return {offsets[part], offsets[part + 1] - offsets[part]};
}

/// How a whole vector is divided among the ranks. Refers to the call's counts.
class Parts {
 public:
  /// No parts.
  Parts() = default;
  Parts(std::span<const std::size_t> counts, std::size_t each, int size)
      : counts_(counts), each_(each), size_(counts.empty() ? static_cast<std::size_t>(size) : counts.size()) {}
  std::size_t size() const { return size_; }
  std::size_t operator[](std::size_t rank) const { return counts_.empty() ? each_ : counts_[rank]; }
  std::size_t total() const;
  std::vector<std::size_t> to_vector() const;
  /// Where each part begins, and the end of the last one.
  std::vector<std::size_t> offsets() const;

 private:
  std::span<const std::size_t> counts_;
  std::size_t each_ = 0;
  std::size_t size_ = 0;
};

/// What belongs to each rank; of alltoall: what goes to each rank. Parts that do not add up are for validation to find.
Parts parts_of(const Call& call, int size);
/// Of alltoall: what comes from each rank.
Parts recv_parts_of(const Call& call, int size);
/// True for collectives whose vector has a part for each rank.
inline bool has_parts(Collective collective) {
  return collective == Collective::kAllgather || collective == Collective::kReduceScatter ||
         collective == Collective::kGather || collective == Collective::kScatter || collective == Collective::kAlltoall;
}
/// Elements of the whole vector that the ranks hold together: what selection and descriptors count.
inline std::size_t total_count(const Call& call, int size) {
  switch (call.collective) {
    case Collective::kAllgather:
    case Collective::kReduceScatter:
    case Collective::kGather:
    case Collective::kScatter:
      return parts_of(call, size).total();
    case Collective::kAlltoall:
      return std::max(parts_of(call, size).total(), recv_parts_of(call, size).total());
    default:
      return call.input.count;
  }
}
/// Bytes of the whole vector that the ranks choose for. Those that exchange uneven parts do not know each other's
/// sizes, and must choose alike: as above every table.
inline std::size_t selected_bytes(const Call& call, int size) {
  return call.exchanges_counts() ? kUnknownBytes : total_count(call, size) * size_in_bytes(call.input.dtype);
}
/// Where the memory of a call lies: that of its buffers with elements. Views without any have no address, and need not
/// say where they would be: only where no buffer has elements is that what they say.
inline MemorySpace space_of(const Call& call) {
  if (call.input.count > 0) return call.input.space;
  return call.output.count > 0 || call.input.space.is_host() ? call.output.space : call.input.space;
}
/// What the ranks combine their elements by: of an average the sum, which is scaled once all has been added.
inline ReduceOp combining_op(const Call& call) {
  return call.op == ReduceOp::kAverage ? ReduceOp::kSum : call.op;
}
}  // namespace farandole
