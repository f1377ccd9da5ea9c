// SPDX-License-Identifier: Apache-2.0
// Shared by the parts of the verifier: faults, and the contract of each collective (its inputs and its results).
#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <stdexcept>
#include <string>

#include "farandole/collectives/algorithms.h"

namespace farandole::verification {

/// The first fault of a verification; verify() catches it.
class Fault : public std::runtime_error {
 public:
  explicit Fault(const std::string& text) : std::runtime_error(text) {}
};

[[noreturn]] inline void throw_fault(const Schedule& schedule, int step, const std::string& text) {
  throw Fault(fmt::format("rank {}, {}: {}", schedule.place.rank, describe(schedule, step), text));
}

inline std::size_t index(int number) {
  return static_cast<std::size_t>(number);
}

inline std::string piece_text(const Schedule& schedule, int piece) {
  return describe(schedule, Region{Space::kData, 0, piece, 1});
}

// ---- The contract of each collective.

/// True if the rank has chunk `chunk` of the vector as input.
inline bool has_input(Collective collective, const Place& at, int chunk) {
  switch (collective) {
    case Collective::kBroadcast:
    case Collective::kScatter:
      return at.rank == at.root;
    case Collective::kAllgather:
    case Collective::kGather:
      return chunk == at.rank;
    case Collective::kAlltoall:
      return chunk < at.size;
    default:
      return true;
  }
}

/// True if the rank must end with chunk `chunk` of the vector as a result.
inline bool must_hold(Collective collective, const Place& at, int chunk) {
  switch (collective) {
    case Collective::kReduce:
    case Collective::kGather:
      return at.rank == at.root;
    case Collective::kReduceScatter:
    case Collective::kScatter:
      return chunk == at.rank;
    case Collective::kAlltoall:
      return chunk >= at.size;
    default:
      return true;
  }
}

/// Number of chunks that a schedule of the collective must have. If chunks do not belong to ranks, any number is valid:
/// returns the schedule's own.
inline int chunks_of(Collective collective, const Schedule& schedule) {
  if (collective == Collective::kAlltoall) return 2 * schedule.place.size;
  return has_parts(collective) ? schedule.place.size : schedule.chunks;
}

/// True if a piece of the sender and a piece of the receiver stand for the same elements. In an alltoall these are the
/// sender's block for the receiver and the receiver's block from the sender; in other collectives pieces of the same
/// number.
inline bool same_elements(Collective collective, const Schedule& from, int from_piece, const Schedule& to,
                          int to_piece) {
  if (collective != Collective::kAlltoall) return from_piece == to_piece;
  const int segments = from.segments;
  return from_piece % segments == to_piece % segments && from_piece / segments == to.place.rank &&
         to_piece / segments == to.place.size + from.place.rank;
}

}  // namespace farandole::verification
