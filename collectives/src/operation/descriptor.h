// SPDX-License-Identifier: Apache-2.0
// Descriptors: what a rank called, in a form that ranks can compare before data is touched.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <string>

#include "farandole/collectives/algorithms.h"
#include "farandole/core/buffer.h"
#include "farandole/internal/flight_recorder.h"
#include "operation/call.h"
#include "operation/group.h"
#include "selection/selection.h"

namespace farandole {

struct PreparedCall;

/// One rank's call. Compared bytewise.
struct Descriptor {
  static constexpr std::uint8_t kRefused =
      0xff;  ///< as `algorithm`: this rank can not go on, whatever its peers called

  Collective collective = Collective::kBarrier;
  DType dtype : 4 = DType::kU8;
  MemoryKind memory : 4 = MemoryKind::kHost;
  ReduceOp op = ReduceOp::kSum;
  std::uint8_t algorithm = 0;  ///< index in the table of algorithms, or a method's number
  std::int32_t root = -1;
  std::uint64_t count = 0;   ///< elements; for alltoall, which may differ, 0
  std::uint64_t digest = 0;  ///< of uneven counts, scale and segments
};
static_assert(sizeof(Descriptor) == 24);

/// The descriptor of a call with its selection or its validation error.
Descriptor describe_call(const PreparedCall& prepared);
/// "allreduce of 1024 f32 elements, sum, ring"
std::string describe(const Descriptor& descriptor);
/// The same for the flight recorder.
FlightSubject subject_of(const Descriptor& descriptor);

/// A digest of a call and its number that other calls hardly have by accident: a multilinear hash.
inline std::uint64_t digest_of(const Descriptor& descriptor, std::uint64_t number) {
  // The small fields one by one: a load of all of them waits until the stores of each have left the core.
  const std::uint64_t fields =
      static_cast<std::uint64_t>(descriptor.collective) | static_cast<std::uint64_t>(descriptor.dtype) << 8 |
      static_cast<std::uint64_t>(descriptor.memory) << 12 | static_cast<std::uint64_t>(descriptor.op) << 16 |
      static_cast<std::uint64_t>(descriptor.algorithm) << 24 |
      static_cast<std::uint64_t>(static_cast<std::uint32_t>(descriptor.root)) << 32;
  const std::uint64_t sum = fields * 0x9e3779b97f4a7c15ULL + descriptor.count * 0xbf58476d1ce4e5b9ULL +
                            descriptor.digest * 0x94d049bb133111ebULL + number * 0xd6e8feb86659fd93ULL;
  return sum ^ (sum >> 32);
}

/// Mixes `value` into a digest.
std::uint64_t mix(std::uint64_t digest, std::uint64_t value);

/// Two ranks of the communicator called different things.
[[noreturn]] void throw_mismatch(const Group& group, int rank, const Descriptor& called, int other_rank,
                                 const Descriptor& other_called);
/// All ranks called the same, which can not work.
[[noreturn]] void throw_refused(const Descriptor& called);

}  // namespace farandole
