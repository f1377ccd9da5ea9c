// SPDX-License-Identifier: Apache-2.0
// The verifier: proves that the schedules of a collective are correct, by running all ranks' schedules together on
// symbols.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "farandole/collectives/algorithms.h"
#include "farandole/core/export.h"

namespace farandole FARANDOLE_API {

/// Result of a verification. The counts are summed over all ranks.
struct Verdict {
  bool correct = true;
  std::string fault;  ///< the first fault: rank, step and piece; empty if correct
  int rounds = 0;
  std::int64_t messages = 0, pieces_sent = 0, pieces_reduced = 0;
  int max_dependencies = 0;  ///< maximum number of dependencies of a step
};

/// Verifies the schedules of all ranks of a collective. The schedules need not belong to an algorithm of the table.
/// Checks that with unbuffered sends and first-in-first-out channels
///  - nothing deadlocks, and every message has a partner of the same round and the same pieces;
///  - two steps of a rank that access the same piece are ordered, unless both only read;
///  - each rank ends with every contribution that the collective requires, exactly once and in its place, and every
///    result of a reduction has been finished exactly once.
/// A contribution is a pair (rank, piece). If each rank has a part of the vector, chunk r is rank r's part; an alltoall
/// has P chunks of input, then P chunks of output.
/// Sets of contributions are exact up to 64 ranks, and in barriers of any size; with more ranks they are 64-bit
/// fingerprints.
/// @param schedules  one per rank, in the order of ranks
Verdict verify(Collective collective, const std::vector<Schedule>& schedules);

/// Makes the schedules of all ranks, verifies them, and compares their cost and their chunks with the algorithm's row
/// of the table. For example:
///
///     const Algorithm& ring = *find_algorithm(Collective::kAllreduce, "ring");
///     const Verdict verdict = verify(ring, /*size=*/8, /*root=*/0, /*segments=*/3);
///     if (!verdict.correct) puts(verdict.fault.c_str());
Verdict verify(const Algorithm& algorithm, int size, int root, int segments);

}  // namespace FARANDOLE_API
