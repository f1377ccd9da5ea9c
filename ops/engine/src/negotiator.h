// SPDX-License-Identifier: Apache-2.0
// The protocol by which the ranks of a process set agree on which requests are ready everywhere: a pure state machine,
// without communication.
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

/// One rank's side of the negotiation protocol. There is a Negotiator per rank and process set; SetEngine carries the
/// messages.
///
/// Does the task of Horovod's coordinator without a coordinator: every rank computes the same decisions from data that
/// all ranks have received. Each rank announces a request by name once. When all ranks have announced equal
/// descriptions, the request gets a number, its *slot*; from then on one byte per negotiation announces the request
/// (Horovod's response cache does the same with bits).
///
/// A negotiation has two phases:
/// 1. Every rank calls `open`, which returns a header of two bytes (has no announcements, is blocked) and one byte per
///   slot: 1 if the slot's request is ready on this rank. An allreduce combines the bytes of all ranks by minimum, and
///   every rank passes the result to `receive`. A slot whose combined byte is 1 is ready everywhere: the outcome
///   contains its request, which the ranks run now.
/// 2. If some rank has announcements (the combined first byte is 0), the ranks exchange their `announcements` by an
///   allgather, and every rank passes all of them, in order of rank, to `receive_announcements`. A name that all ranks
///   have announced gets a slot and is ready in the same negotiation, or fails with a mismatch. A request whose
///   description has changed is announced by name again, and its slot is retired.
///
/// Which rank begins: a rank with something to announce, or with a newly ready slot. A rank that has announced
/// something or has joined (`must_answer`) answers a negotiation that a peer has begun. A rank that has announced
/// nothing need not answer, because no request can be ready everywhere without that rank. So an idle job sends nothing,
/// and a rank that still collects a bucket starts no useless negotiation.
///
/// Cost: an allreduce of 2 bytes + 1 byte per slot; with announcements, two small allgathers more.
///
/// The class composes parts that share only the table of slots, and adds three rules:
/// - The planner knows a request of this rank exactly while the request is pending in a slot.
/// - Requests that the planner releases are marked as ready immediately.
/// - A slot that is retired is retired in all parts.
///
/// Not thread-safe.
class Negotiator {
 public:
  using Time = Clock::time_point;
  using Ticket = farandole::Ticket;
  using Generation = StepFailures::Generation;
  static constexpr Generation kNoStep = StepFailures::kNoStep, kFirstGeneration = StepFailures::kFirstGeneration;

  /// A request of this rank.
  struct Submission {
    Ticket ticket = 0;
    RequestSpec spec;
    Waiting waiting = Waiting::kNobody;
    Generation generation = kNoStep;  ///< generation in which the request's step began
  };
  struct Limits {
    BucketPlanner::Limits fusion;
    std::size_t slots = 1 << 16;
  };
  /// A request that all ranks have agreed to run now.
  struct Agreed {
    SharedSpec spec;
    Ticket ticket = 0;  ///< this rank's request; 0: this rank has joined, and has none
  };
  /// Result of a phase of a negotiation.
  struct Outcome {
    /// Requests to run now, in this order; the requests of a bucket run together. The same on all ranks.
    std::vector<std::vector<Agreed>> buckets;
    std::vector<FailedRequest> failed;
    std::optional<int> all_joined;         ///< the rank that joined last, if all ranks have joined
    std::optional<RequestError> departed;  ///< set if a rank has left: the ranks can agree on nothing more
    bool all_left = false;
    bool needs_announcements = false;  ///< phase 2 follows
  };
  struct Counters {
    std::uint64_t negotiations = 0, named = 0, broken_buckets = 0;
  };

  /// @param names  descriptions of the ranks, for messages
  Negotiator(int rank, std::vector<std::string> names, Limits limits);

  /// Adds a request of this rank, whose name must not be pending. @returns  an error if the request fails immediately
  std::optional<RequestError> submit(Submission&& submission, Time now);
  /// Notes that somebody waits for the pending request of this name. No-op if there is no such request.
  void wait_for(const std::string& name, Waiting waiting) { pending_.wait_for(name, waiting); }
  /// Call when this rank has become idle. If somebody waits for a pending request, this rank then begins a negotiation
  /// in which it announces that it is blocked.
  void announce_idle() { waits_.announce_idle(); }
  /// Joins: from the next negotiation on, this rank takes part without data. Idempotent until all ranks have joined.
  /// @returns  an error if a rank has left
  std::optional<RequestError> join();
  /// Makes this rank leave the set. Its pending requests fail in the negotiation that announces the departure; until
  /// then the ranks may still agree on them.
  void leave(Departure departure) { joining_.leave(departure); }
  /// Drops all pending requests of this rank without telling peers. Call it when the set or the job ends.
  std::vector<FailedRequest> fail_all(const RequestError& error);

  /// Time at which this rank begins a negotiation if nothing else happens; may be in the past, or Time::max().
  Time next_wakeup() const;
  /// True if this rank answers negotiations that other ranks begin.
  bool must_answer() const { return pending_.announced() > 0 || joining_.takes_part(); }
  /// True if this rank has a request or a join that is not done yet.
  bool has_pending() const { return !pending_.empty() || joining_.is_joined(); }
  /// True if somebody waits for a pending request.
  bool is_waited_for() const { return pending_.is_waited_for(); }
  /// Names of the pending requests, oldest first.
  std::vector<std::string> pending_names() const;
  /// Submission time of the oldest pending request that is no refusal.
  std::optional<Time> oldest() const { return pending_.oldest(); }
  /// True if all pending requests are refusals: this rank then waits for nothing, only its peers need an answer.
  bool only_refuses() const { return !pending_.empty() && !oldest(); }
  /// Describes the oldest pending requests and the ranks that have not submitted them, for messages.
  std::string describe_waiting() const;

  /// Begins or answers a negotiation.
  /// @param blocked  true: this rank submits nothing before a pending request is done, which may be a request of
  /// another set, or a request on which the ranks have agreed already
  /// @returns  this rank's bytes, which the caller combines with all ranks' bytes by minimum; valid until the next call
  std::span<std::uint8_t> open(bool blocked, Time now);
  /// Ends phase 1. @param combined  minimum of all ranks' bytes
  Outcome receive(std::span<const std::uint8_t> combined, Time now);
  /// This rank's encoded announcements for phase 2; empty if there are none. `open` sets them.
  const std::string& announcements() const { return announcements_; }
  /// Ends phase 2. @param all  encoded announcements, by rank   @throws TransportError  a rank's bytes are invalid
  Outcome receive_announcements(std::span<const std::string> all, Time now);

  const Counters& counters() const { return counters_; }
  Generation generation() const { return steps_.generation(); }

 private:
  friend class NegotiatorProbe;  // tests check that all ranks have the same tables

  /// Collects this rank's announcements for the negotiation that begins.
  Announcements take_announcements(bool blocked);
  void mark_released() { pending_.mark_ready(planner_.released()); }
  /// Gives the settled request a slot; retires the least recently used slot if the table is full.
  int new_slot(const AnnouncedRequests::Settled& settled);
  /// Frees the slot in all parts.
  void retire(int slot);
  /// Adds the slots that are ready everywhere to the outcome: in buckets, or as failures if a joined rank cannot take
  /// part.
  void arrange(std::vector<int> ready, Outcome& outcome);
  /// If the slot's request needs the data of joined ranks, fails the request and returns true.
  bool refuses_joined(int slot, Outcome& outcome);
  /// Removes and returns the slot's request, on which the ranks have agreed.
  Agreed take(int slot);
  /// Ends this rank's request of this name with an error. No-op if there is no such request.
  void fail(const std::string& name, const RequestError& error, Outcome& outcome);
  /// Fails everything if a rank leaves in this negotiation.
  void receive_departures(const std::vector<Announcements>& all, Outcome& outcome);
  /// Records all announcements of this negotiation. @returns  complete names, in the same order on all ranks
  std::vector<std::string> receive_requests(const std::vector<Announcements>& all);
  /// Gives each complete name a slot and adds the request to the outcome; a request about which ranks disagree fails.
  void settle(const std::vector<std::string>& complete, Outcome& outcome);
  /// Fails the requests of a deadlock that all ranks have confirmed.
  void receive_waits(const std::vector<Announcements>& all, Outcome& outcome);
  /// Ends the negotiation: fails the step of a failed request, and notes whether all ranks were blocked.
  void end_negotiation(Outcome& outcome, Time now);

  static constexpr std::size_t kHeaderBytes = 2;  // "has no announcements", "is blocked"

  const std::vector<std::string> names_;
  Counters counters_;
  SlotTable slots_;
  BucketPlanner planner_;
  PendingRequests pending_;
  AnnouncedRequests announced_;
  Joining joining_;
  StepFailures steps_;
  DeadlockDetector waits_;
  // The last result of `open`, and this rank's encoded announcements.
  std::vector<std::uint8_t> opened_;
  std::string announcements_;
};

}  // namespace farandole
