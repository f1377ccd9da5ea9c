// SPDX-License-Identifier: Apache-2.0
// One order of device operations, the same on all ranks that share some: what a device runs one after another must not
// wait in a circle.
#pragma once

#include <compare>
#include <cstdint>
#include <map>

namespace farandole {

/// One rank's part in the agreement, over all of its communicators: total order by agreed times (Skeen's algorithm;
/// Birman and Joseph, ACM TOCS 5(1), 1987). Each member of an operation proposes a time, later than all that it knows
/// of; the largest proposal is the operation's time; and operations run by their times, those of one time by
/// communicator. An operation runs here once no other one of this rank can still be given an earlier time: so two ranks
/// run what they share in one order, and no circle of ranks and communicators can arise.
///
/// Pure: the ranks exchange the proposals elsewhere. One thread at a time.
class DeviceOrder {
 public:
  using Time = std::uint64_t;
  /// One operation: the n-th collective of a communicator.
  struct Ticket {
    std::uint16_t communicator = 0;
    std::uint64_t sequence = 0;
    auto operator<=>(const Ticket&) const = default;
  };

  /// A new operation, in the order of calls of its communicator. @returns  this rank's proposal
  Time propose(Ticket ticket);
  /// All members have proposed; `agreed` is the largest proposal.
  void agree(Ticket ticket, Time agreed);
  /// True if it runs now: it is agreed on, and no other one comes before it.
  bool is_next(Ticket ticket) const;
  /// It has begun to run, or is given up. One that is not known is ignored.
  void remove(Ticket ticket) { pending_.erase(ticket); }

 private:
  struct Entry {
    Time time = 0;  ///< agreed, or proposed here: then it is given this or a later one
    bool is_agreed = false;
  };
  Time latest_ = 0;
  std::map<Ticket, Entry> pending_;
};

}  // namespace farandole
