// SPDX-License-Identifier: Apache-2.0
// How many operations inside the host a rank has completed.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "farandole/sdk/transport.h"

namespace farandole {

/// Turns operations that end in any order into one number: all operations up to `completed()` have ended. Pure;
/// LaneLedger publishes the number to the peers.
///
/// Operations have growing numbers, and each number has a lane. An operation begins in the order of numbers, or is
/// announced in that order (by an earlier `begin`) and begins later.
class CompletionCount {
 public:
  /// All operations up to this number have ended.
  std::uint64_t completed() const { return completed_; }
  /// Marks `number` as in flight in `lane`. Called once more when an announced operation begins.
  /// @returns  the operation that last ended in the lane; 0 if the lane is new
  std::uint64_t begin(int lane, std::uint64_t number) {
    in_flight_[static_cast<std::size_t>(lane)] = number;
    newest_ = std::max(newest_, number);
    return last_[static_cast<std::size_t>(lane)];
  }
  /// Ends the operation in flight in `lane`. @param next  the operation that takes the lane over; 0 for none
  void end(int lane, std::uint64_t next) {
    last_[static_cast<std::size_t>(lane)] = in_flight_[static_cast<std::size_t>(lane)];
    replace(lane, next);
  }
  /// Removes the operation in flight in `lane`, which will never begin: it does not count as the lane's last operation.
  void withdraw(int lane) { replace(lane, 0); }
  std::uint64_t in_flight(int lane) const { return in_flight_[static_cast<std::size_t>(lane)]; }

 private:
  void replace(int lane, std::uint64_t next) {
    in_flight_[static_cast<std::size_t>(lane)] = next;
    completed_ = newest_;
    for (const std::uint64_t number : in_flight_) {
      if (number != 0) completed_ = std::min(completed_, number - 1);
    }
  }

  std::array<std::uint64_t, kLanes> in_flight_{};  // by lane; 0 for none
  std::array<std::uint64_t, kLanes> last_{};       // by lane, the operation that ended last
  std::uint64_t completed_ = 0, newest_ = 0;
};

}  // namespace farandole
