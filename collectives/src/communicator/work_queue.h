// SPDX-License-Identifier: Apache-2.0
// The collectives of one communicator that are queued or in flight.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "communicator/collective_operation.h"
#include "farandole/collectives/communicator.h"
#include "farandole/core/error.h"
#include "farandole/internal/progress.h"
#include "farandole/internal/stall_monitor.h"
#include "operation/group.h"
#include "shared_memory/one_shot.h"

namespace farandole {

class WorkQueue;

/// How a collective failed. Kept as values: each rank that waits raises an exception of its own.
struct Failure {
  ErrorKind kind = ErrorKind::kInternal;
  std::string text;
};

/// One collective from its submission to its end. `done` is set last; its release pairs with the acquire of waiters, so
/// that they see the result and `failure`. The queue's lock guards `operation` and the times.
class Work::State {
 public:
  std::shared_ptr<WorkQueue> queue;
  std::uint64_t sequence = 0;
  Descriptor descriptor;
  FlightRecorder::Id record = 0;
  std::unique_ptr<CollectiveOperation> operation;
  std::optional<Failure> failure;
  std::atomic<bool> done{false};
  Clock::time_point started{};        ///< none: not yet
  Clock::time_point moved{};          ///< its last step
  bool asked = false;                 ///< how far its peers are, for the next warning
  Clock::time_point next_question{};  ///< to the ranks that it waits for
};

/// Runs some operations at a time, up to kLanes, started in the order of submission; each has its own lane. Any thread
/// may advance it; a mutex makes it one at a time.
class WorkQueue final : public Progressable, public std::enable_shared_from_this<WorkQueue> {
 public:
  explicit WorkQueue(Group group);

  /// @param validation_error  if not empty, this rank raises it once the ranks have compared their calls
  std::shared_ptr<Work::State> submit(const Call& call, const Selection& selection,
                                      const std::string& validation_error);
  /// The same, and waits for the end. Where nothing else is pending the collective runs inline: without the queue, as
  /// long as the caller need not sleep. @throws Error  what the collective failed with
  void run(const Call& call, const Selection& selection, const std::string& validation_error);
  /// On device memory with a stream of the caller's: returns when the stream waits for it.
  void run_on_stream(const Call& call, const Selection& selection);
  /// Waits until `work` is done, advancing the queue meanwhile.
  void wait(const Work::State& work);
  /// What has been enqueued in `stream` from now on waits for `work`; blocks until `work` is enqueued itself.
  /// @throws InvalidArgument  `work` is none on a device
  void wait_on(const Work::State& work, StreamView stream);
  DeviceSlot& devices() { return devices_; }
  /// False while the owner of a work that is done must not be notified yet, see Endpoint::is_quiet.
  bool is_quiet() const { return group_.endpoint->progress().is_quiet(); }
  /// For callers that test now and then: advances, and looks around once a millisecond.
  void poll();
  /// Advances everything once, unless another thread is at it.
  Progressable::State advance() override;
  void poll_health() override;
  bool is_empty();
  /// True in a process that was forked from the rank's: nothing but this question and the next may be asked there.
  bool is_forked_child() const { return group_.endpoint->faults().is_forked_child(); }
  /// A thread of the program uses the communicator, or a work of it. @throws InvalidArgument  in such a process
  void begin_use() const {
    group_.endpoint->faults().check_process();
    group_.endpoint->late_ranks().blocked().note_thread();
  }
  /// True if another rank has begun the next collective, and this one has not.
  bool peer_has_started_next();
  /// The ranks that are not in the oldest pending collective.
  std::string describe_missing();
  /// Poisons the job, because this rank will not take part any more in what is pending.
  void give_up();
  /// Waits until nothing is left, then lets go of the host's memory: the communicator ends, or its World.
  void close() override;
  /// True if the ranks meet in shared memory.
  bool shares_memory() const { return host_.whole() != nullptr; }
  /// Several, if the ranks meet in shared memory on each; else 0.
  int hosts() const { return host_.hierarchy ? host_.hierarchy->host_count() : 0; }
  /// Of ranks' devices: several, or 0.
  int device_hosts() const { return devices_.hierarchy() != nullptr ? devices_.hierarchy()->host_count() : 0; }

 private:
  std::uint64_t next_sequence();
  std::unique_ptr<CollectiveOperation> make_operation(const Call& call, const Selection& selection,
                                                      const std::string& validation_error, std::uint64_t sequence,
                                                      bool arrived = false);
  /// @param record  in the flight recorder, if there is one already
  std::shared_ptr<Work::State> enqueue(std::unique_ptr<CollectiveOperation> operation,
                                       std::optional<FlightRecorder::Id> record = std::nullopt);
  /// True: short vectors in shared memory, which need no operation.
  bool is_one_shot(const Call& call, const Selection& selection, const std::string& validation_error) const;
  Attempt run_one_shot(const Call& call, const Selection& selection, std::uint64_t sequence,
                       std::optional<FlightRecorder::Id>& record);
  bool advance_inline(CollectiveOperation& operation) const;
  /// @param before_sleep  called before each sleep
  template <class IsOver, class BeforeSleep>
  void advance_until(const IsOver& is_over, const BeforeSleep& before_sleep);
  bool advance_locked();
  bool advance_one(Work::State& work);
  void end(Work::State& work, std::optional<Failure> failure);
  void fail(Work::State& work, const Failure& failure);
  void fail_all(const Failure& failure);
  void find_dead_peers() const;
  /// The program comes back to what is pending. Where no thread looks after that, it was no stop that nobody looked.
  void return_from_program();
  /// Warns about, and bounds, waiting; asks which ranks are missing. For slow paths.
  void check_stall(Work::State& work, Clock::time_point now);
  void ask(Work::State& work, Clock::time_point now, bool also_others);
  std::string describe_stall(const Work::State& work, Clock::time_point now) const;
  std::string describe_missing(const Work::State& work) const;
  bool waits_for_someone_who_left(const Work::State& work) const;

  const Group group_;  // a copy: the progress thread may hold the queue longer than the communicator lives
  const std::string label_ = group_.describe();  // for messages: made once, because threads that sleep need it
  std::mutex mutex_;                             // guards everything below, and the operations
  std::deque<std::shared_ptr<Work::State>> pending_;
  StallMonitor stall_{group_.endpoint->settings().faults.warn_after,
                      group_.endpoint->settings().faults.timeout};  // of the first one
  std::uint64_t next_sequence_ = group_.first_sequence;
  std::uint64_t in_flight_ = kLanes;                               // operations at a time
  std::atomic<Clock::time_point> next_look_{Clock::time_point()};  // of poll()
  VendorSlot vendor_{group_};                                      // empty after close()
  DeviceSlot devices_{group_};                                     // empty after close()
  ShmContext host_;                                                // its group is gone after close()
};

}  // namespace farandole
