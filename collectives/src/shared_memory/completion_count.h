// SPDX-License-Identifier: Apache-2.0
// How far a rank has come in the operations inside its host.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "farandole/sdk/transport.h"

namespace farandole {

/// Numbers of operations grow, and each has a lane. They begin in the order of their numbers, or are announced in that
/// order and begin later; they end in any order.
class CompletionCount {
 public:
  /// All operations up to here have ended.
  std::uint64_t completed() const { return completed_; }
  /// `number` is in flight from now on. Again when it begins, if it was announced before.
  /// @returns the one that was in the lane before it, 0: none
  std::uint64_t begin(int lane, std::uint64_t number) {
    in_flight_[static_cast<std::size_t>(lane)] = number;
    newest_ = std::max(newest_, number);
    return last_[static_cast<std::size_t>(lane)];
  }
  /// What is in flight in the lane has ended. @param next  in flight in its place, 0: none
  void end(int lane, std::uint64_t next) {
    last_[static_cast<std::size_t>(lane)] = in_flight_[static_cast<std::size_t>(lane)];
    replace(lane, next);
  }
  /// What is in flight in the lane will never begin.
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

  std::array<std::uint64_t, kLanes> in_flight_{};  // 0: none
  std::array<std::uint64_t, kLanes> last_{};
  std::uint64_t completed_ = 0, newest_ = 0;
};

}  // namespace farandole
