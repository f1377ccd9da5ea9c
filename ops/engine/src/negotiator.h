// SPDX-License-Identifier: Apache-2.0
// How the ranks of a process set agree on which requests are ready everywhere: the pure part, without communication.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "announced_requests.h"
#include "bucket_planner.h"
#include "deadlock_detector.h"
#include "joining.h"
#include "pending_requests.h"
#include "request.h"
#include "slot_table.h"
#include "step_failures.h"

namespace farandole {

/// One rank's part in the agreement.
///
/// A negotiation: every rank `open`s, with one byte per slot that says whether the request is ready here; the bytes are
/// combined by minimum over the ranks, and every rank `receive`s the result. A slot with 1 is ready everywhere and is
/// done. If some rank has announcements (the first byte), the ranks also exchange their `announcements`, and each rank
/// receives all of them, in order of rank. A rank announces a request once, with its name and everything about it; the
/// request gets a slot when all ranks have announced the same, and is a byte from then on. A request whose description
/// changes is announced again, and its slot is given up.
///
/// A rank begins a negotiation when it has something to announce. It answers a negotiation that a peer has begun when
/// it has announced requests that are still pending; else it need not, because nothing can be ready without it. Thus an
/// idle job is silent, and a rank that still collects a bucket spends no negotiation on announcing nothing.
///
/// This class composes parts that know nothing of each other, but for the table of slots. What it adds:
/// - The planner has a request of this rank just while that is pending in a slot.
/// - What the planner releases is marked as ready immediately.
/// - A slot that is retired is retired in all parts.
class Negotiator {
 public:
  using Time = Clock::time_point;
  using Ticket = farandole::Ticket;
  using Generation = StepFailures::Generation;
  static constexpr Generation kNoStep = StepFailures::kNoStep, kFirstGeneration = StepFailures::kFirstGeneration;

  struct Submission {
    Ticket ticket = 0;
    RequestSpec spec;
    Waiting waiting = Waiting::kNobody;
    Generation generation = kNoStep;  ///< in which its step began
  };
  struct Limits {
    std::size_t fusion_bytes = 0;       ///< of a bucket
    std::size_t min_unfused_bytes = 0;  ///< requests from this size on are not worth a copy
    std::size_t slots = 1 << 16;
  };
  struct Agreed {
    SharedSpec spec;
    Ticket ticket = 0;
  };
  /// What a negotiation has brought.
  struct Outcome {
    std::vector<std::vector<Agreed>> buckets;  ///< to be done in this order, each together; the same on all ranks
    std::vector<FailedRequest> failed;
    std::optional<int> all_joined;         ///< the rank that joined last
    std::optional<RequestError> departed;  ///< a rank has left: nothing can be agreed on any more
    bool all_left = false;
    bool needs_announcements = false;  ///< the negotiation goes on with `announcements`
  };
  struct Counters {
    std::uint64_t negotiations = 0, named = 0, broken_buckets = 0;
  };

  /// @param names  of the ranks, for messages
  Negotiator(int rank, std::vector<std::string> names, Limits limits);

  /// A request of this rank. Its name must not be pending. @returns  why it is refused, if it is
  std::optional<RequestError> submit(Submission&& submission, Time now);
  /// A caller waits for the pending request of this name, if there is one.
  void wait_for(const std::string& name, Waiting waiting) { pending_.wait_for(name, waiting); }
  /// This rank is blocked, although it has nothing new to submit: says so in a negotiation, if a caller waits for a
  /// request.
  void announce_idle() { waits_.announce_idle(); }
  /// This rank takes part without data from the next agreement on. Again before all have joined: nothing new.
  std::optional<RequestError> join();
  /// This rank takes part no more. What it has pending fails once its peers know of it: until then it may be
  /// agreed on.
  void leave(Departure departure) { joining_.leave(departure); }
  /// Everything pending here is given up without a word: the set or the job ends.
  std::vector<FailedRequest> fail_all(const RequestError& error);

  /// When this rank wants to begin a negotiation, if nothing else happens: maybe in the past, or Time::max().
  Time next_wakeup() const;
  /// True if it has a part in negotiations that other ranks begin.
  bool must_answer() const { return pending_.announced() > 0 || joining_.takes_part(); }
  /// True if something of this rank has not been done yet.
  bool has_pending() const { return !pending_.empty() || joining_.is_joined(); }
  /// True if a caller waits for a request that is pending.
  bool is_waited_for() const { return pending_.is_waited_for(); }
  /// The names of what is pending, oldest first, and since when the oldest that a caller waits for is.
  std::vector<std::string> pending_names() const;
  std::optional<Time> oldest() const { return pending_.oldest(); }
  /// True if all that is pending here are requests that this rank can not make: it matters to other ranks only.
  bool only_refuses() const { return !pending_.empty() && !oldest(); }
  std::string describe_waiting() const;

  /// Begins or answers a negotiation. @param blocked  nothing new will be submitted until a request is done, maybe one
  /// of another set, or one that is agreed on already
  /// @returns  what is to be combined with the other ranks' by minimum; stays until the next call
  std::span<std::uint8_t> open(bool blocked, Time now);
  /// @param combined  the bytes of all ranks
  Outcome receive(std::span<const std::uint8_t> combined, Time now);
  /// What this rank announces in the negotiation, after `open`.
  const std::string& announcements() const { return announcements_; }
  Outcome receive_announcements(std::span<const std::string> all, Time now);

  const Counters& counters() const { return counters_; }
  Generation generation() const { return steps_.generation(); }

 private:
  friend class NegotiatorProbe;  // tests compare the tables of all ranks

  Announcements take_announcements(bool blocked);
  void mark_released() { pending_.mark_ready(planner_.released()); }
  int new_slot(const AnnouncedRequests::Settled& settled);
  void retire(int slot);
  /// What is ready everywhere is done, or refused.
  void arrange(std::vector<int> ready, Outcome& outcome);
  bool refuses_joined(int slot, Outcome& outcome);
  /// The end of a request with an agreement. The ticket is 0 if this rank has none.
  Agreed take(int slot);
  /// The end of a request of this rank, if it has one of this name, without an agreement.
  void fail(const std::string& name, const RequestError& error, Outcome& outcome);
  void receive_departures(const std::vector<Announcements>& all, Outcome& outcome);
  /// @returns  names that are complete, in an order that is the same on all ranks
  std::vector<std::string> receive_requests(const std::vector<Announcements>& all);
  void settle(const std::vector<std::string>& complete, Outcome& outcome);
  void receive_waits(const std::vector<Announcements>& all, Outcome& outcome);
  void end_negotiation(Outcome& outcome, Time now);

  static constexpr std::size_t kHeaderBytes = 2;  // no rank has announcements; all are blocked

  const std::vector<std::string> names_;
  Counters counters_;
  SlotTable slots_;
  BucketPlanner planner_;
  PendingRequests pending_;
  AnnouncedRequests announced_;
  Joining joining_;
  StepFailures steps_;
  DeadlockDetector waits_;
  std::vector<std::uint8_t> opened_;
  std::string announcements_;
};

}  // namespace farandole
