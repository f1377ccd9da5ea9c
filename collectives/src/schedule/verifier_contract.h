// SPDX-License-Identifier: Apache-2.0
// What the verifier's parts share: faults, and what each collective starts from and asks for.
#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <stdexcept>
#include <string>

#include "farandole/collectives/algorithms.h"

namespace farandole::verification {

/// Leaves the verification with the first fault; caught in verify().
class Fault : public std::runtime_error {
 public:
  explicit Fault(const std::string& text) : std::runtime_error(text) {}
};

[[noreturn]] inline void refuse(const Schedule& schedule, int step, const std::string& text) {
  throw Fault(fmt::format("rank {}, {}: {}", schedule.place.rank, describe(schedule, step), text));
}

inline std::size_t index(int number) {
  return static_cast<std::size_t>(number);
}

inline bool is_message(const Step& step) {
  return step.kind == StepKind::kSend || step.kind == StepKind::kRecv || step.kind == StepKind::kRecvReduce;
}

inline std::string piece_text(const Schedule& schedule, int piece) {
  return describe(schedule, Region{Space::kData, 0, piece, 1});
}

// ---- What each collective starts from and asks for.

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

inline int chunks_of(Collective collective, const Schedule& schedule) {
  switch (collective) {
    case Collective::kAllgather:
    case Collective::kReduceScatter:
    case Collective::kGather:
    case Collective::kScatter:
      return schedule.place.size;
    case Collective::kAlltoall:
      return 2 * schedule.place.size;
    default:
      return schedule.chunks;
  }
}

/// Whether a piece of one rank stands for the same elements as a piece of another: the same number, but in an alltoall
/// the sender's block for the receiver is the receiver's block from the sender.
inline bool same_elements(Collective collective, const Schedule& from, int from_piece, const Schedule& to,
                          int to_piece) {
  if (collective != Collective::kAlltoall) {
    return from_piece == to_piece;
  }
  const int segments = from.segments;
  return from_piece % segments == to_piece % segments && from_piece / segments == to.place.rank &&
         to_piece / segments == to.place.size + from.place.rank;
}

}  // namespace farandole::verification
