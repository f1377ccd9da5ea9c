// SPDX-License-Identifier: Apache-2.0
// Arguments of a collective, the values derived from them, and the descriptor by which ranks compare their calls before
// data is touched.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "farandole/collectives/algorithms.h"
#include "farandole/core/buffer.h"
#include "farandole/core/stream.h"
#include "farandole/internal/flight_recorder.h"
#include "operation/group.h"
#include "selection/selection.h"

namespace farandole {

/// Arguments of one collective on one rank; the same struct for all collectives. Owns nothing: views and spans refer to
/// the caller's memory.
struct Call {
  Collective collective = Collective::kBarrier;
  ConstBufferView input;  ///< on a rank without input: no elements, with the output's type and memory space
  BufferView output;
  ReduceOp op = ReduceOp::kSum;
  int root = -1;
  std::span<const std::size_t> counts;  ///< elements of each rank's part; alltoall: elements to each rank. Empty: equal
  std::span<const std::size_t> recv_counts;  ///< alltoall only: elements from each rank. Empty: equal parts
  double prescale = 1.0;                     ///< factor of the input, rounded by user_factor()
  double postscale = 1.0;      ///< the caller's factor as given, which ranks compare; `final_scale` is applied
  double final_scale = 1.0;    ///< factor of the result; for an average see average_factor()
  std::string_view algorithm;  ///< the caller's choice; empty: none
  int segments = 0;            ///< the caller's choice; 0: none
  StreamView stream;           ///< the caller's stream, for a call on device memory

  bool is_uneven() const { return !counts.empty() || !recv_counts.empty(); }
  /// True for an uneven alltoall: no rank knows what its peers send each other until they have exchanged their counts.
  bool exchanges_counts() const { return collective == Collective::kAlltoall && is_uneven(); }
};

/// Copy of a call that may outlive the caller's arguments. Owns a copy of the counts; `algorithm` is empty; the buffers
/// remain the caller's.
class KeptCall : public Call {
 public:
  explicit KeptCall(const Call& call);
  KeptCall(const KeptCall&) = delete;
  KeptCall& operator=(const KeptCall&) = delete;

 private:
  const std::vector<std::size_t> own_counts_, own_recv_counts_;
};

/// A range of elements of a vector.
struct Extent {
  std::size_t first = 0, count = 0;  // elements
};
/// The part from `offsets[index]` to `offsets[index + 1]`.
inline Extent extent_of(std::span<const std::size_t> offsets, int index) {
  const auto part = static_cast<std::size_t>(index);
  return {offsets[part], offsets[part + 1] - offsets[part]};
}

/// Division of a vector among the ranks: the number of elements of each rank's part. Refers to the call's counts.
class Parts {
 public:
  /// No parts.
  Parts() = default;
  Parts(std::span<const std::size_t> counts, std::size_t each, int size)
      : counts_(counts), each_(each), size_(counts.empty() ? static_cast<std::size_t>(size) : counts.size()) {}
  std::size_t size() const { return size_; }
  std::size_t operator[](std::size_t rank) const { return counts_.empty() ? each_ : counts_[rank]; }
  std::size_t total() const;
  /// Returns the same parts, but with reference to a copy of the counts. @param copy  empty if the parts have no counts
  Parts with_counts(std::span<const std::size_t> copy) const {
    Parts parts = *this;
    parts.counts_ = copy;
    return parts;
  }
  std::vector<std::size_t> to_vector() const;
  /// Offset of each rank's part in the vector, then the end of the last part.
  std::vector<std::size_t> offsets() const;

 private:
  std::span<const std::size_t> counts_;
  std::size_t each_ = 0;
  std::size_t size_ = 0;
};

/// Each rank's part of the vector; for alltoall the parts that this rank sends. Does not check that the parts add up to
/// the buffers' elements: validation does.
Parts parts_of(const Call& call, int size);
/// The parts that this rank receives in an alltoall.
Parts recv_parts_of(const Call& call, int size);
/// Memory space of a call: the space of its buffers that have elements. If no buffer has elements, device memory if a
/// view names it, otherwise host memory.
inline MemorySpace space_of(const Call& call) {
  if (call.input.count > 0) return call.input.space;
  return call.output.count > 0 || call.input.space.is_host() ? call.output.space : call.input.space;
}
/// Operation that combines the ranks' elements: for an average the sum, which is scaled at the end.
inline ReduceOp combining_op(const Call& call) {
  return call.op == ReduceOp::kAverage ? ReduceOp::kSum : call.op;
}

struct PreparedCall;

/// One rank's call and selection. Compared bytewise.
struct Descriptor {
  /// Value of `algorithm` on a rank that refuses its own call; no valid call has this value.
  static constexpr std::uint8_t kRefused = 0xff;
  /// Value of `algorithm` of a message between devices (kDeviceMessageMethod): a broadcast of two ranks.
  static constexpr std::uint8_t kMessage = 0xf8;

  Collective collective = Collective::kBarrier;
  DType dtype : 4 = DType::kU8;
  MemoryKind memory : 4 = MemoryKind::kHost;
  ReduceOp op = ReduceOp::kSum;
  std::uint8_t algorithm = 0;  ///< index in the table of algorithms, or the number of a method
  std::int32_t root = -1;
  std::uint64_t count = 0;   ///< elements; 0 for an uneven alltoall, whose number of elements differs between ranks
  std::uint64_t digest = 0;  ///< of uneven counts, postscale and segments
};
static_assert(sizeof(Descriptor) == 24);

/// The descriptor of a call with its selection or its validation error.
Descriptor describe_call(const PreparedCall& prepared);
/// Text of a descriptor: "allreduce of 1024 f32 elements, sum, ring".
std::string describe(const Descriptor& descriptor);
/// The descriptor as a subject of the flight recorder, which makes the text when a record is written out.
FlightSubject subject_of(const Descriptor& descriptor);

/// Digest of a descriptor and the call's sequence number: a multilinear hash, so collisions of different calls are
/// rare.
inline std::uint64_t digest_of(const Descriptor& descriptor, std::uint64_t number) {
  // Load the small fields one by one: a single load of all of them would stall until the store of each field has left
  // the core's store buffer.
  const std::uint64_t fields =
      static_cast<std::uint64_t>(descriptor.collective) | static_cast<std::uint64_t>(descriptor.dtype) << 8 |
      static_cast<std::uint64_t>(descriptor.memory) << 12 | static_cast<std::uint64_t>(descriptor.op) << 16 |
      static_cast<std::uint64_t>(descriptor.algorithm) << 24 |
      static_cast<std::uint64_t>(static_cast<std::uint32_t>(descriptor.root)) << 32;
  const std::uint64_t sum = fields * 0x9e3779b97f4a7c15ULL + descriptor.count * 0xbf58476d1ce4e5b9ULL +
                            descriptor.digest * 0x94d049bb133111ebULL + number * 0xd6e8feb86659fd93ULL;
  return sum ^ (sum >> 32);
}

/// Returns `digest` with `value` mixed in.
std::uint64_t mix(std::uint64_t digest, std::uint64_t value);

/// Throws Mismatch with the different calls of two ranks of the communicator.
[[noreturn]] void throw_mismatch(const Group& group, int rank, const Descriptor& called, int other_rank,
                                 const Descriptor& other_called);
/// Throws Mismatch on ranks whose descriptors are all equal, if at least one rank refuses the call.
[[noreturn]] void throw_refused(const Descriptor& called);

/// A call with its totals and parts. The constructor computes them once, for validation, selection, the descriptor, the
/// queue, methods and operations. Afterwards either `accept` or `refuse` completes a caller's call. Allocates nothing
/// for a valid call. Refers to the arguments.
struct PreparedCall {
  /// @param arguments  outlive this object   @param size  ranks of the communicator
  PreparedCall(const Call& arguments, int size) : call(arguments), space(space_of(call)) {
    if (has_parts(call.collective)) parts = parts_of(call, size);
    if (call.collective == Collective::kAlltoall) recv_parts = recv_parts_of(call, size);
    total = has_parts(call.collective) ? std::max(parts.total(), recv_parts.total()) : call.input.count;
    bytes = call.exchanges_counts() ? kUnknownBytes : total * size_in_bytes(call.input.dtype);
  }
  /// The same call for an operation that outlives the caller's arguments. @param kept  a copy of `prepared.call`
  PreparedCall(const PreparedCall& prepared, const KeptCall& kept)
      : call(kept),
        space(prepared.space),
        parts(prepared.parts.with_counts(kept.counts)),
        recv_parts(prepared.recv_parts.with_counts(kept.recv_counts)),
        total(prepared.total),
        bytes(prepared.bytes),
        selection(prepared.selection),
        descriptor(prepared.descriptor),
        validation_error(prepared.validation_error) {}

  /// Completes a valid call.
  void accept(const Selection& selected) {
    selection = selected;
    descriptor = describe_call(*this);
  }
  /// Completes a call that this rank refuses: the ranks compare their calls, then this rank throws InvalidArgument.
  void refuse(std::string error) {
    validation_error = std::move(error);
    selection = Selection::schedule(algorithms().front(), 1);
    descriptor = describe_call(*this);
  }
  bool is_valid() const { return validation_error.empty(); }

  const Call& call;
  MemorySpace space;      ///< space of the buffers, see space_of()
  Parts parts;            ///< see parts_of(); empty for collectives that do not divide the vector
  Parts recv_parts;       ///< see recv_parts_of(); empty for all collectives but alltoall
  std::size_t total = 0;  ///< elements of the whole vector, over all ranks
  /// Bytes of the whole vector, for the selection. Ranks of an uneven alltoall do not know each other's sizes and must
  /// select the same algorithm: kUnknownBytes, larger than any table entry.
  std::size_t bytes = 0;
  Selection selection;
  Descriptor descriptor;
  std::string validation_error;  ///< why this rank refuses the call; empty for a valid call
};

}  // namespace farandole
