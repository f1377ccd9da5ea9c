// SPDX-License-Identifier: Apache-2.0
// The verifier: runs all ranks' schedules of an algorithm together on symbols.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "farandole/collectives/algorithms.h"
#include "farandole/core/export.h"

namespace farandole FARANDOLE_API {

/// What a set of schedules must achieve. Contributions are (rank, piece); chunk numbering as in communicator.h.
struct Verdict {
  bool correct = true;
  std::string fault;  ///< first fault found: which rank, step and piece
  int rounds = 0;
  std::int64_t messages = 0, pieces_sent = 0, pieces_reduced = 0;
  int most_dependencies = 0;  ///< of any step
};

/// Checks that, with unbuffered sends and first-in-first-out channels,
///  - nothing deadlocks, every message has a partner of the same round and the same pieces;
///  - no two steps of a rank that are not ordered touch the same piece, unless both only read;
///  - each rank ends with every contribution that the collective asks for exactly once, in its place, and finished
///  once.
/// @param schedules  one per rank, in order. Up to 64 ranks the sets are exact; above, 64-bit fingerprints of them.
Verdict verify(Collective collective, const std::vector<Schedule>& schedules);

/// Makes the schedules of `algorithm` and verifies them, and their cost against the algorithm's formula.
Verdict verify(const Algorithm& algorithm, int size, int root, int segments);

}  // namespace FARANDOLE_API
