// SPDX-License-Identifier: Apache-2.0
// A model of the shared-memory protocol (ShmGroup, ShmOperation, Doorbell), explored over all interleavings.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace farandole::shm_model {

/// kExchanged: staged, between two ranks that write results to the place of the staged input.
enum class Kind : std::uint8_t { kOneShot, kStaged, kExchanged, kWindows };
/// Deliberate mistakes of a model, which the exploration must find.
enum class Mistake {
  kNone,
  kTakesOccupiedLane,  // arrives before its peers have completed the lane's last operation
  kReusesSlots,        // does not wait until a slot has been read
  kReadsTooEarly,      // does not wait until a slot has been written
  kNumberFirst,        // publishes its arrival before its data
  kStepsLast,          // says that steps are of its operation before it has replaced those of the last one
  kLeavesTooEarly,     // gives buffers back that peers still use
  kCountsOnlyNewest,   // says that everything is complete when the newest operation is
  kBeginsOutOfOrder,   // a later operation may begin before an earlier one
  kNeverNudges,
  kNudgesFirst,  // wakes peers before it has stored what they wait for
  kLooksBeforeArming,
  kSeesAfterLooking,  // takes the ring count after the last look
};

/// One model: at most 3 ranks, 3 calls and 2 lanes.
struct Variant {
  int ranks = 2;
  int lanes = 1;  // also how many operations may be in flight
  std::vector<Kind> calls;
  bool sleeps = false;
  Mistake mistake = Mistake::kNone;
};
std::string describe(const Variant& v);

struct Exploration {
  std::string error;  ///< the first thing that goes wrong in some interleaving, or nothing
  std::size_t states = 0;
};
Exploration explore(const Variant& variant);

}  // namespace farandole::shm_model
