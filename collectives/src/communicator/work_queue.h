// SPDX-License-Identifier: Apache-2.0
// The collectives of one communicator that are queued or in flight.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "communicator/collective_operation.h"
#include "communicator/collective_work.h"
#include "communicator/stall_watch.h"
#include "farandole/collectives/communicator.h"
#include "farandole/internal/progress.h"
#include "operation/call.h"
#include "operation/group.h"
#include "shared_memory/one_shot.h"

namespace farandole {

/// Queue of a communicator's collectives. Collectives start in the order of submission. Up to kLanes run at a time,
/// each on its own lane; only 2 if all ranks share memory (LaneLedger::lanes). Thread-safe: any thread may advance the
/// queue, one thread at a time.
class WorkQueue final : public Progressable, public WorkOwner, public std::enable_shared_from_this<WorkQueue> {
 public:
  explicit WorkQueue(Group group);

  /// Appends a collective. If the call is invalid, this rank raises the validation error once the ranks have compared
  /// their calls. @throws Error  the fault of the job
  std::shared_ptr<CollectiveWork> submit(const PreparedCall& prepared);
  /// Runs a collective and blocks until it has ended. If nothing else is pending, the collective runs inline, without
  /// an entry in the queue, until the caller would have to sleep. @throws Error  the failure of the collective
  void run(const PreparedCall& prepared);
  /// Runs a collective on device memory with a stream of the caller. Returns once the collective is enqueued and the
  /// stream waits for it.
  void run_on_stream(const PreparedCall& prepared);
  void wait(const Work::State& state) override;
  void wait_on(const Work::State& state, StreamView stream) override;
  DeviceSlot& devices() { return devices_; }
  /// True if all pending collectives on devices are enqueued there. Costs one load if nothing is pending.
  bool is_enqueued();
  /// Blocks until `is_enqueued`. Returns true if it had to wait.
  bool wait_until_enqueued();
  void poll() override;
  /// Advances every running collective once. No-op while another thread advances the queue.
  Progressable::State advance() override;
  void poll_health() override;
  /// True if a collective is pending that this rank must still advance: not only such as are completely enqueued on its
  /// device, which then completes them.
  bool needs_this_rank();
  /// True if a peer has begun the next collective and this rank has not. Non-blocking.
  bool peer_has_started_next();
  /// Text that lists the ranks known to have not begun the oldest pending collective; empty if nothing is pending.
  std::string describe_missing();
  void give_up() override;
  /// Blocks until nothing is pending, then frees shared memory and vendors' resources. Called when the communicator or
  /// its World ends.
  void close() override;
  /// True if all ranks share memory.
  bool shares_memory() const { return host_.group_of_all() != nullptr; }
  /// Number of hosts if there are several and the ranks of each host share memory; otherwise 0.
  int hosts() const { return host_.hierarchy ? host_.hierarchy->host_count() : 0; }
  /// Number of hosts in the device hierarchy; 0 if there is one host.
  int device_hosts() const { return devices_.hierarchy() != nullptr ? devices_.hierarchy()->host_count() : 0; }

 private:
  /// True if the collective is completely enqueued on a device.
  static bool is_enqueued(const CollectiveWork& work);
  std::uint64_t next_sequence();
  std::unique_ptr<CollectiveOperation> make_operation(const PreparedCall& prepared, std::uint64_t sequence,
                                                      bool has_arrived = false);
  /// @param record  the collective's line in the flight recorder, if it already has a line
  std::shared_ptr<CollectiveWork> enqueue(std::unique_ptr<CollectiveOperation> operation,
                                          std::optional<FlightRecorder::Id> record = std::nullopt);
  /// True for a short vector in shared memory, which runs without an operation.
  bool is_one_shot(const PreparedCall& prepared) const;
  Attempt run_one_shot(const PreparedCall& prepared, std::uint64_t sequence, std::optional<FlightRecorder::Id>& record);
  bool advance_inline(CollectiveOperation& operation) const;
  /// @param before_sleep  called before each sleep
  template <class IsOver, class BeforeSleep>
  void advance_until(const IsOver& is_over, const BeforeSleep& before_sleep);
  bool advance_locked();
  bool advance_one(CollectiveWork& work);
  void end(CollectiveWork& work, std::optional<Failure> failure);
  void fail(CollectiveWork& work, const Failure& failure);
  void fail_all(const Failure& failure);
  /// Counts the time since the last call as waiting time if no other thread advances the queue between calls. Otherwise
  /// the stall monitor would take such a gap for a stop of the process.
  void count_time_outside_calls();

  const Group group_;  // a copy: the progress thread may hold the queue longer than the communicator lives
  const std::string label_ = group_.describe();  // text for messages; made once, because threads that sleep refer to it
  std::mutex mutex_;                             // guards everything below, and the operations
  std::deque<std::shared_ptr<CollectiveWork>> pending_;
  std::atomic<std::size_t> pending_count_{0};  // size of pending_; read without the mutex
  StallWatch stall_{group_, label_};           // of the oldest pending collective
  DoneActions done_actions_;                   // has its own mutex
  std::uint64_t next_sequence_ = group_.first_sequence;
  std::uint64_t in_flight_ = kLanes;                                       // maximum of running operations
  std::atomic<Clock::time_point> next_health_check_{Clock::time_point()};  // used by poll()
  VendorSlot vendor_{group_};                                              // empty after close()
  DeviceSlot devices_{group_};                                             // empty after close()
  ShmContext host_;                                                        // without a group after close()
};

}  // namespace farandole
