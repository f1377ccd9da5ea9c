// SPDX-License-Identifier: Apache-2.0
// Descriptors: a rank's call in a form that ranks compare before data is touched.
#pragma once

#include <cstdint>
#include <string>

#include "farandole/collectives/algorithms.h"
#include "farandole/core/buffer.h"
#include "farandole/internal/flight_recorder.h"
#include "operation/group.h"
#include "selection/selection.h"

namespace farandole {

struct PreparedCall;

/// One rank's call and selection. Compared bytewise.
struct Descriptor {
  static constexpr std::uint8_t kRefused =
      0xff;  ///< `algorithm` of a rank that refuses its own call, whatever its peers have called

  Collective collective = Collective::kBarrier;
  DType dtype : 4 = DType::kU8;
  MemoryKind memory : 4 = MemoryKind::kHost;
  ReduceOp op = ReduceOp::kSum;
  std::uint8_t algorithm = 0;  ///< index in the table of algorithms, or the number of a method
  std::int32_t root = -1;
  std::uint64_t count = 0;   ///< elements; 0 for an uneven alltoall, whose elements differ from rank to rank
  std::uint64_t digest = 0;  ///< of uneven counts, postscale and segments
};
static_assert(sizeof(Descriptor) == 24);

/// The descriptor of a call with its selection or its validation error.
Descriptor describe_call(const PreparedCall& prepared);
/// Text of a descriptor: "allreduce of 1024 f32 elements, sum, ring".
std::string describe(const Descriptor& descriptor);
/// The descriptor as a subject of the flight recorder, which makes the text when a record is written out.
FlightSubject subject_of(const Descriptor& descriptor);

/// Digest of a descriptor and the number of its collective: a multilinear hash, so that other calls have the same
/// digest by rare accident only.
inline std::uint64_t digest_of(const Descriptor& descriptor, std::uint64_t number) {
  // The small fields one by one: one load of all small fields would wait until the store of each field has left the
  // core's store buffer.
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
/// Throws Mismatch for ranks that made the same call, which at least one rank refuses.
[[noreturn]] void throw_refused(const Descriptor& called);

}  // namespace farandole
