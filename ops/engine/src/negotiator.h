// SPDX-License-Identifier: Apache-2.0
// How the ranks of a process set agree on which requests are ready everywhere: the pure part, without communication.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "farandole/internal/deadline.h"
#include "request.h"

namespace farandole {

/// One rank's part in the agreement. All ranks of a set hold the same table of *slots* (numbered requests), because
/// they change it only by what all of them have received.
///
/// A negotiation: every rank `open`s, with one byte per slot that says whether the request is ready here; the bytes are
/// combined by minimum over the ranks, and every rank `receive`s the result. A slot with 1 is ready everywhere and is
/// done. If some rank has announcements (the first byte), the ranks also exchange their `announcements`, and each rank
/// receives all of them, in order of rank. A rank announces a request once, with its name and everything about it; the
/// request gets a slot when all ranks have announced the same, and is a byte from then on. A request whose description
/// changes is announced again, and its slot is given up.
///
/// Small allreduces that are ready in the same negotiation are reduced together, and stay together: a *bucket*. A rank
/// marks them ready only when it has all of them, so that a training step makes the same buckets each time. A bucket
/// of which only a part comes is broken up.
///
/// A rank begins a negotiation when it has something to announce. It answers a negotiation that another rank has begun
/// when it has announced requests that are still pending; else it need not, because nothing can be ready without it.
/// Thus an idle job is silent, and a rank that still collects a bucket spends no negotiation on announcing nothing.
///
/// Requests may belong to a *step* of the program, which fails as a whole on every rank when ranks disagree about one
/// of its requests. What else of the step is pending then fails in the same negotiation on all ranks, and what is
/// submitted of it later is refused: the rank that submits it could wait for ranks whose step has ended before they
/// came to it, and would take what they submit in a later step for it. The *generation* in which a step began tells it
/// from other steps: the number of such failures that all ranks have received. So all that is pending in steps is
/// always of the current generation, which need not be announced.
///
/// A rank that has joined has everything ready: what changes no result, where it has no request of its own. Once all
/// ranks have joined, one more negotiation does what some rank still has pending; then they start afresh.
///
/// A rank is *blocked* when it will submit nothing before one of its requests is done: its only thread waits in a call,
/// or it stands still (TensorEngine). It says so in each negotiation (the second byte), and begins one when it comes to
/// stand still. If all ranks are blocked in one negotiation and still are a moment later, in a second one, none of them
/// will ever go on: all fail what they wait for.
class Negotiator {
 public:
  using Time = Clock::time_point;
  /// Tells requests apart; 0: of another rank only (this one has joined).
  using Ticket = std::uint64_t;

  /// Begins with kFirstGeneration.
  using Generation = std::uint64_t;
  static constexpr Generation kNoStep = 0, kFirstGeneration = 1;

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
  struct Failed {
    Ticket ticket = 0;
    RequestError error;
  };
  /// What a negotiation has brought.
  struct Outcome {
    std::vector<std::vector<Agreed>> buckets;  ///< to be done in this order, each together; the same on all ranks
    std::vector<Failed> failed;
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
  void wait_for(const std::string& name, Waiting waiting);
  /// This rank is blocked, although it has nothing new to submit: says so in a negotiation, if a caller waits for a
  /// request.
  void announce_standstill() { standstill_unannounced_ = true; }
  /// This rank takes part without data from the next agreement on. Again before all have joined: nothing new.
  std::optional<RequestError> join();
  /// This rank takes part no more. What it has pending fails once its peers know of it: until then it may be
  /// agreed on.
  void leave(Departure departure);
  /// Everything pending here is given up without a word: the set or the job ends.
  std::vector<Failed> fail_all(const RequestError& error);

  /// When this rank wants to begin a negotiation, if nothing else happens: maybe in the past, or Time::max().
  Time next_wakeup() const;
  /// True if it has a part in negotiations that other ranks begin.
  bool must_answer() const;
  /// True if something of this rank has not been done yet.
  bool has_pending() const { return !pending_.empty() || joined_[self()]; }
  /// True if a caller waits for a request that is pending.
  bool is_waited_for() const;
  /// The names of what is pending, oldest first, and since when the oldest that a caller waits for is.
  std::vector<std::string> pending_names() const;
  std::optional<Time> oldest() const;
  /// True if all that is pending here are requests that this rank can not make: it matters to other ranks only.
  bool only_refuses() const;
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
  Generation generation() const { return generation_; }

 private:
  friend class NegotiatorProbe;  // tests compare the tables of all ranks
  struct Pending {
    Ticket ticket = 0;
    SharedSpec spec;
    Waiting waiting = Waiting::kNobody;
    bool in_step = false;
    Time since{};
    int slot = -1;
    bool announced = false;  ///< or marked ready
  };
  struct Slot {
    SharedSpec spec;  ///< null: free
    /// A rank has announced it in a step. Where none has, a request in a step is announced by name: all ranks must know
    /// whether its failure is that of a step.
    bool in_step = false;
    Pending* pending = nullptr;
    int bucket = -1;
    int times_broken = 0;
    std::uint64_t last_negotiation = 0;
  };
  struct Bucket {
    std::vector<int> slots;
    std::size_t ready = 0;
    Time since{};  ///< of the last request that came to it
  };
  struct AnnouncedBy {
    std::vector<Announcement> by_rank;
    int count = 0;
  };

  /// It waits for other ranks to come, but no caller waits for it.
  static bool is_refusal(const Pending& pending) { return pending.spec->kind == RequestKind::kRefused; }
  std::size_t self() const { return static_cast<std::size_t>(rank_); }
  Slot& slot(int index) { return slots_[static_cast<std::size_t>(index)]; }
  std::uint8_t& byte(int index) { return bytes_[kHeaderBytes + static_cast<std::size_t>(index)]; }
  void take_slot(Pending& pending, int index, Time now);
  void mark_ready(int index);
  void mark_bucket_ready(int bucket);
  void announce_later(Pending& pending);
  /// Takes the pending request of a slot, or of a name, out; the ticket is 0 if this rank has none.
  Agreed take(int index);
  /// The end of a pending request.
  void drop(const std::string& name);
  /// The end of a request without an agreement.
  void give_up(const std::string& name);
  void end_closing(Outcome& outcome);
  /// What a rank has announced is over, where this says so.
  void forget_announced(const std::function<bool(std::size_t rank, const Announcement&)>& is_over);
  void forget_suspicion() { suspected_.reset(); }
  /// The step that is under way on all ranks fails, with this text. It is ended when the negotiation is.
  void fail_step(const std::string& text);
  void end_failed_step(Outcome& outcome);
  /// Buckets from slots that are ready everywhere.
  void arrange(const std::vector<int>& ready, Outcome& outcome);
  void arrange_loose(const std::vector<int>& loose, Outcome& outcome);
  void break_up(int bucket);
  void refuse_joined(std::vector<int>& ready, Outcome& outcome);
  void receive_departures(const std::vector<Announcements>& all, Outcome& outcome);
  void receive_requests(const std::vector<Announcements>& all, std::vector<std::string>& complete);
  void receive_joins(const std::vector<Announcements>& all, std::vector<std::string>& complete);
  bool is_complete(const AnnouncedBy& announced) const;
  void settle(const std::vector<std::string>& complete, Outcome& outcome);
  std::string describe_mismatch(const AnnouncedBy& announced) const;
  void receive_waits(const std::vector<Announcements>& all, Outcome& outcome);
  void suspect(Time now);
  void retire(int index);
  int new_slot(SharedSpec spec, bool in_step);

  static constexpr std::size_t kHeaderBytes = 2;  // no rank has announcements; all are blocked
  static constexpr std::size_t kNamesShown = 5;   // in messages

  const int rank_;
  const std::vector<std::string> names_;
  const Limits limits_;
  Counters counters_;
  std::unordered_map<std::string, Pending> pending_;  // by name; its nodes stay in place
  // The same on all ranks, but for `pending` and `ready`.
  std::deque<Slot> slots_;
  std::vector<int> free_slots_;
  std::unordered_map<std::string, int> slot_of_;
  std::vector<Bucket> buckets_;
  std::map<std::string, AnnouncedBy> by_name_;
  std::vector<bool> joined_, left_;
  int last_joined_ = -1;
  bool closing_ = false;  // all have joined: the next negotiation does what is pending anywhere
  std::optional<RequestError> departed_;
  Generation generation_ = kFirstGeneration;
  std::string step_failure_;  // of the last step that failed
  bool step_fails_ = false;   // in this negotiation
  // By the bytes of a negotiation that goes on with announcements: a step that fails with them is ended at the end of
  // the negotiation, and no rank may begin the next one before.
  std::vector<Failed> refused_;
  bool all_blocked_ = false;
  bool has_happened_ = false;  // something has become ready in this negotiation
  // This rank's.
  std::vector<std::uint8_t> bytes_;
  std::vector<std::uint8_t> opened_;
  std::vector<Pending*> unannounced_;
  std::vector<int> held_buckets_;
  std::vector<std::string> confirmed_waits_;  // names that this rank has confirmed to wait for, in this negotiation
  std::string announcements_;
  int unsent_ready_ = 0;       // bytes that have not been in a negotiation yet
  std::size_t announced_ = 0;  // pending requests that have been announced, or will be in the next negotiation
  bool join_unannounced_ = false, again_ = false, has_announcements_ = false, standstill_unannounced_ = false;
  Departure departure_unannounced_ = Departure::kNone;
  std::optional<Time> suspected_;  // since when all ranks seem to wait for each other
};

}  // namespace farandole
