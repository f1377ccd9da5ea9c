// SPDX-License-Identifier: Apache-2.0
// One process set of one rank: negotiations, and the batches that come out of them.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "batch.h"
#include "farandole/collectives/communicator.h"
#include "local_request.h"
#include "negotiation_exchange.h"
#include "negotiator.h"

namespace farandole {

/// Used by one thread at a time (the one that holds TensorEngine::drive_mutex_). Nothing blocks but the constructor,
/// which is collective over the set.
///
/// A request of this rank is in `local_` from its submission until all ranks have agreed on it; then in a batch, or in
/// `set_changes_`; then, as callbacks, in `due_`.
class SetEngine {
 public:
  /// Of the two communicators of a set. The engine's thread moves both on. A rank answers a negotiation because it
  /// sees that another rank has begun it, and the engine knows what it waits for there.
  static constexpr CommunicatorOptions kControl{
      .progress = CommunicatorOptions::Progress::kOwnThread, .compare = true, .watch = false};
  static constexpr CommunicatorOptions kData{.progress = CommunicatorOptions::Progress::kOwnThread};

  /// @param ranks  of the job, ascending   @param control, data  communicators of them with `kControl` and `kData`
  /// @param timeline  outlives this
  SetEngine(std::vector<int> ranks, Communicator control, const Communicator& data, Timeline& timeline);

  void submit(std::unique_ptr<LocalRequest> request, Clock::time_point now);
  void join(void* context, JoinCallback done);
  void leave(Departure departure) { negotiator_.leave(departure); }
  /// A caller waits for a request of this name, be it for another one that comes after it.
  void wait_for(const std::string& name, Waiting waiting) { negotiator_.wait_for(name, waiting); }
  /// This rank stands still: says so to its peers.
  void announce_idle() { negotiator_.announce_idle(); }
  /// The job is at fault: what is pending here gets this error; negotiations and batches are given up.
  void fail(const RequestError& error);

  /// Moves on without blocking; true if something happened. @throws Error  the job is at fault
  bool advance(bool blocked, Clock::time_point now);
  /// True if there is something to wait for: other ranks, or data.
  bool is_active() const;
  /// When it wants to be advanced even if nothing happens.
  Clock::time_point next_wakeup() const;
  /// All ranks have left, and what they had agreed on before is done.
  bool has_left() const { return all_left_ && batches_.empty(); }
  /// True if data is on its way.
  bool has_batches() const { return !batches_.empty(); }

  /// Adds the callbacks that have become due since they were last taken.
  void take_due(Due& to);
  /// The next request to add or to remove a process set that all ranks have agreed on, if there is one.
  std::optional<BatchEntry> next_set_change();

  const Negotiator& negotiator() const { return negotiator_; }
  /// When the oldest that waits for other ranks began: a request of this rank, or a negotiation.
  std::optional<Clock::time_point> waits_since() const;
  /// What is pending here, and which ranks it waits for, as far as is known.
  std::string describe_waiting();
  void add_counters(farandole_counters& sum) const;

 private:
  bool advance_negotiation(bool blocked, Clock::time_point now);
  bool advance_batches();
  void apply(const Negotiator::Outcome& outcome);
  void run(const std::vector<Negotiator::Agreed>& bucket);
  void finish_joins(const std::optional<RequestError>& error, int last_rank);
  std::unique_ptr<LocalRequest> take(Negotiator::Ticket ticket);
  void finish(LocalRequest& request, const std::optional<RequestError>& error);

  const std::vector<int> ranks_;
  BatchContext context_;
  Negotiator negotiator_;
  NegotiationExchange exchange_;
  std::unordered_map<Negotiator::Ticket, std::unique_ptr<LocalRequest>> local_;
  std::vector<Joined> waiting_joins_;
  std::deque<std::unique_ptr<Batch>> batches_;
  std::size_t started_ = 0;  // batches whose collectives have all been started
  bool all_left_ = false;
  std::deque<BatchEntry> set_changes_;
  Due due_;
};

}  // namespace farandole
