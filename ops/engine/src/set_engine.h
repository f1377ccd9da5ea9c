// SPDX-License-Identifier: Apache-2.0
// One rank's negotiations and batches in a process set.
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

/// Drives a process set: passes submitted requests to the negotiator, runs negotiations (NegotiationExchange), and
/// turns the agreed buckets into batches. A set has two communicators, so that negotiations do not queue behind data.
///
/// Used only by the thread that holds TensorEngine::drive_mutex_. Non-blocking, except the constructor, which is
/// collective over the set, and `fail`.
///
/// A request of this rank is in `local_` from its submission until all ranks have agreed on it. Then it is in a batch
/// or in `set_changes_`. When it is done, its callbacks are in `due_`.
class SetEngine {
 public:
  /// Options of a set's two communicators, for negotiations and for data. The driver (the thread that drives the
  /// engine) advances both. Negotiations are not watched for stalls, because a peer without announced requests may
  /// rightly not answer; the engine itself reports which requests wait.
  static constexpr CommunicatorOptions kControl{
      .progress = CommunicatorOptions::Progress::kOwnThread, .compare = true, .watch = false};
  static constexpr CommunicatorOptions kData{.progress = CommunicatorOptions::Progress::kOwnThread};
  /// Replaces kData for the set of all ranks: while this set is the only set, all ranks start its collectives in the
  /// same order, see DeviceLane.
  static constexpr CommunicatorOptions kDataOfAll{.progress = CommunicatorOptions::Progress::kOwnThread,
                                                  .device_order = CommunicatorOptions::DeviceOrder::kCaller};

  /// Collective over the set; blocks. @param ranks  job ranks of the set, ascending
  /// @param control  communicator of these ranks with the options `kControl`   @param data  communicator of these ranks
  /// with the options `kData` or `kDataOfAll`   @param timeline  must outlive this
  SetEngine(std::vector<int> ranks, Communicator control, const Communicator& data, Timeline& timeline);

  void submit(std::unique_ptr<LocalRequest> request, Clock::time_point now);
  void join(void* context, JoinCallback done);
  void leave(Departure departure) { negotiator_.leave(departure); }
  /// Notes that somebody waits for the current request of this name, or for a request queued behind it.
  void wait_for(const std::string& name, Waiting waiting) { negotiator_.wait_for(name, waiting); }
  /// Announces to the peers that this rank has become idle.
  void announce_idle() { negotiator_.announce_idle(); }
  /// Fails all pending requests with `error` after a fault of the job, and drops negotiations and batches. Blocks until
  /// no peer uses the buffers of a negotiation any more.
  void fail(const RequestError& error);

  /// Advances negotiations and batches without blocking. Returns true if anything advanced. @param blocked  see
  /// Negotiator::open   @throws Error  the job is at fault
  bool advance(bool blocked, Clock::time_point now);
  /// True if a negotiation or a batch is in flight, or this rank must answer negotiations of its peers.
  bool is_active() const;
  /// Time at which `advance` has work even if nothing arrives.
  Clock::time_point next_wakeup() const;
  /// True if all ranks have left, and all agreed requests are done.
  bool has_left() const { return all_left_ && batches_.empty(); }
  /// True if a batch is in flight.
  bool has_batches() const { return !batches_.empty(); }

  /// Moves the callbacks that are due to `to`.
  void take_due(DueCallbacks& to);
  /// Removes and returns the next agreed request to make or remove a process set; nothing if none is due. A request is
  /// due once all earlier batches have started. A request that makes a set is due only once these batches have also
  /// ended on the device, because work of other sets must not reach the device before them, nor need room beside them.
  std::optional<BatchEntry> next_set_change();

  const Negotiator& negotiator() const { return negotiator_; }
  /// Time since which the oldest pending request, or the negotiation in flight, has waited for other ranks.
  std::optional<Clock::time_point> waits_since() const;
  /// Describes the pending requests, and the ranks for which they wait as far as known, for messages.
  std::string describe_waiting();
  void add_counters(farandole_counters& sum) const;

 private:
  /// Begins, answers or advances a negotiation. Returns true if anything advanced.
  bool advance_negotiation(bool blocked, Clock::time_point now);
  /// Starts and finishes batches, in order. Returns true if a tensor or a batch was completed.
  bool advance_batches();
  /// Carries out the outcome of a negotiation.
  void apply(const Negotiator::Outcome& outcome);
  /// Runs a bucket: queues a batch or a change of process sets. Barriers and refusals only make callbacks due.
  void run(const std::vector<Negotiator::Agreed>& bucket);
  void add(std::unique_ptr<Batch> batch);
  void finish_joins(const std::optional<RequestError>& error, int last_rank);
  /// Removes and returns a request of `local_`; null if this rank has no request of this ticket.
  std::unique_ptr<LocalRequest> take(Negotiator::Ticket ticket);
  /// Makes the request's callbacks due.
  void finish(LocalRequest& request, const std::optional<RequestError>& error);

  const std::vector<int> ranks_;
  BatchContext context_;
  Negotiator negotiator_;
  NegotiationExchange exchange_;
  std::unordered_map<Negotiator::Ticket, std::unique_ptr<LocalRequest>> local_;
  std::vector<JoinCompletion> waiting_joins_;
  std::deque<std::unique_ptr<Batch>> batches_;
  std::size_t started_ = 0;  // number of batches that have started all their collectives
  std::uint64_t made_ = 0;   // number of batches that this set has ever made
  bool all_left_ = false;
  struct SetChange {
    BatchEntry entry;
    std::uint64_t after = 0;  // value of made_ when the change was agreed: these batches come first
    bool is_recorded = false;
    std::shared_ptr<DeviceEvent> end;  // complete after these batches on the device; null: nothing to wait for
  };
  std::deque<SetChange> set_changes_;
  DueCallbacks due_;
};

}  // namespace farandole
