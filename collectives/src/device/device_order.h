// SPDX-License-Identifier: Apache-2.0
// Order of device operations that all ranks agree on, so that ranks never wait for each other in a cycle.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <optional>

namespace farandole {

/// One rank's part of Skeen's algorithm (Birman and Joseph, ACM TOCS 5(1), 1987), which puts the device operations of
/// all communicators into one total order, by agreed times. Not thread-safe.
///
/// A device runs operations in sequence. If rank 0 ran A before B, and rank 1 ran B before A, both ranks would wait
/// forever. So the ranks agree:
///
/// 1. Once all members of an operation have called it, each member proposes a time, later than every time that it
/// knows.
/// 2. The members exchange proposals (elsewhere; this class is pure). The largest proposal is the operation's time.
/// 3. Operations run in the order of their times; operations of equal time in the order of communicator ids.
/// 4. A rank runs an operation once none of the rank's proposed operations can still get an earlier time. An agreed
/// time has two lower bounds: the rank's own proposal, and the times of earlier operations of the same communicator.
///
/// Hence two ranks run the operations that they share in the same order, and no cycle of waiting ranks and
/// communicators can arise.
///
/// Step 1 waits for all members' calls because a proposal holds back operations with later times. If a rank proposed
/// earlier, a program that has not yet called the operation might be waiting for one of those. So between the first
/// proposal and the agreed time, an operation waits for no program.
class DeviceOrder {
 public:
  using Time = std::uint64_t;
  /// Identifies an operation: the n-th collective of a communicator.
  struct Ticket {
    std::uint16_t communicator = 0;
    std::uint64_t sequence = 0;
    auto operator<=>(const Ticket&) const = default;
  };

  /// Adds an operation that this rank has called. Called in the order of calls of its communicator.
  void add(Ticket ticket);
  /// Returns this rank's proposal, or nothing while earlier operations of the communicator have not proposed. Call it
  /// only once all members have called the operation.
  std::optional<Time> propose(Ticket ticket);
  /// Sets the time of an operation: the largest proposal of all members.
  void agree(Ticket ticket, Time agreed);
  /// True if the operation may run now: the time is agreed on, and no pending operation comes before it.
  bool is_next(Ticket ticket) const;
  /// Removes an operation that has been enqueued or given up. No-op for an unknown operation.
  void remove(Ticket ticket) { pending_.erase(ticket); }

 private:
  enum class State { kCalled, kProposed, kAgreed };
  struct Entry {
    State state = State::kCalled;
    Time time = 0;  ///< the agreed time; until then this rank's proposal, its lower bound
  };
  Time latest_ = 0;  // latest time that this rank knows
  std::map<Ticket, Entry> pending_;
};

}  // namespace farandole
