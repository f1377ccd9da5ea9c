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
#include "communicator/peer_queries.h"
#include "communicator/stall_watch.h"
#include "communicator/work_state.h"
#include "farandole/collectives/communicator.h"
#include "farandole/internal/progress.h"
#include "operation/group.h"
#include "operation/prepared_call.h"
#include "shared_memory/one_shot.h"

namespace farandole {

/// Runs some operations at a time, up to kLanes, started in the order of submission; each has its own lane. Any thread
/// may advance it; a mutex makes it one at a time.
class WorkQueue final : public Progressable, public std::enable_shared_from_this<WorkQueue> {
 public:
  explicit WorkQueue(Group group);

  /// Appends a collective. This rank raises the validation error of an invalid call once the ranks have compared their
  /// calls. @throws  the fault of the job
  std::shared_ptr<Work::State> submit(const PreparedCall& prepared);
  /// The same, and waits for the end. Where nothing else is pending the collective runs inline: without the queue, as
  /// long as the caller need not sleep. @throws Error  what the collective failed with
  void run(const PreparedCall& prepared);
  /// On device memory with a stream of the caller's: returns when the stream waits for it.
  void run_on_stream(const PreparedCall& prepared);
  /// Waits until `work` is done, advancing the queue meanwhile.
  void wait(const Work::State& work);
  /// What has been enqueued in `stream` from now on waits for `work`; blocks until `work` is enqueued itself.
  /// @throws InvalidArgument  `work` is none on a device
  void wait_on(const Work::State& work, StreamView stream);
  DeviceSlot& devices() { return devices_; }
  /// False while the owner of a work that is done must not be notified yet, see Endpoint::is_quiet.
  bool is_quiet() const { return group_.endpoint->is_quiet(); }
  /// For callers that test now and then: advances, and looks around once a millisecond.
  void poll();
  /// Advances everything once, unless another thread is at it.
  Progressable::State advance() override;
  void poll_health() override;
  bool is_empty();
  /// True in a process that was forked from the rank's: nothing but this question and the next may be asked there.
  bool is_forked_child() const { return group_.endpoint->is_forked_child(); }
  /// A thread of the program uses the communicator, or a work of it. @throws InvalidArgument  in such a process
  void begin_use() const {
    group_.endpoint->check_process();
    group_.endpoint->blocked().note_thread();
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
  std::unique_ptr<CollectiveOperation> make_operation(const PreparedCall& prepared, std::uint64_t sequence,
                                                      bool has_arrived = false);
  /// @param record  in the flight recorder, if there is one already
  std::shared_ptr<Work::State> enqueue(std::unique_ptr<CollectiveOperation> operation,
                                       std::optional<FlightRecorder::Id> record = std::nullopt);
  /// True: short vectors in shared memory, which need no operation.
  bool is_one_shot(const PreparedCall& prepared) const;
  Attempt run_one_shot(const PreparedCall& prepared, std::uint64_t sequence, std::optional<FlightRecorder::Id>& record);
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
  /// Called when the program comes back from code of its own. If no other thread advances the collectives meanwhile,
  /// the time since the last call is no sign that this process was stopped.
  void excuse_time_outside_calls();

  const Group group_;  // a copy: the progress thread may hold the queue longer than the communicator lives
  const std::string label_ = group_.describe();  // for messages: made once, because threads that sleep need it
  const PeerQueries peers_{group_};
  std::mutex mutex_;  // guards everything below, and the operations
  std::deque<std::shared_ptr<Work::State>> pending_;
  StallWatch stall_{group_, label_, peers_};  // of the oldest pending collective
  std::uint64_t next_sequence_ = group_.first_sequence;
  std::uint64_t in_flight_ = kLanes;                               // operations at a time
  std::atomic<Clock::time_point> next_look_{Clock::time_point()};  // of poll()
  VendorSlot vendor_{group_};                                      // empty after close()
  DeviceSlot devices_{group_};                                     // empty after close()
  ShmContext host_;                                                // its group is gone after close()
};

}  // namespace farandole
