// SPDX-License-Identifier: Apache-2.0
// Collectives on device memory that the calling thread enqueues: CommunicatorOptions::DeviceOrder::kCaller.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <memory>
#include <unordered_set>
#include <vector>

#include "communicator/work_queue.h"
#include "device/device_work.h"
#include "device/direct_watch.h"
#include "operation/call.h"
#include "operation/group.h"

namespace farandole {

/// Enqueues calls with a stream as NCCL's own calls are enqueued: in the caller's stream, by the calling thread,
/// without a message, a lock that another thread holds for long, or a wake-up of another thread. DirectWatch compares
/// the calls afterwards and enforces deadlines.
///
/// A call goes through the queue instead (`enqueue` returns false) if it needs the host between its parts (hierarchical
/// collectives, averages of integers, an alltoall with counts), and if something must be set up that may block: the
/// first call of all, which makes the device group, and the first schedule, which connects the ranks. All ranks make
/// the same calls, so these are the same calls on all ranks. A direct call waits until the calls in the queue are
/// enqueued.
///
/// For one thread at a time, like the communicator.
class DirectCalls {
 public:
  /// @returns null if no call of the group is direct: its order is agreed, FARANDOLE_CHECK is strict, or the job's
  /// messages may not be sent by a thread of Farandole
  /// @param group, queue  outlive the result
  static std::unique_ptr<DirectCalls> make(const Group& group, WorkQueue& queue);
  DirectCalls(const Group& group, WorkQueue& queue) : group_(group), queue_(queue) {}

  /// Enqueues a valid call, or returns false.
  /// @throws InvalidArgument  the call is captured into a graph, and has never run outside of a graph
  /// @throws Error  the job's fault   @throws DeviceError  the device or the vendor's library fails; poisons the job
  bool enqueue(const PreparedCall& prepared);
  /// Waits until all calls have ended on the device and were compared, or the job has failed.
  void close();

 private:
  /// A call whose work has memory of its own: a schedule, or a staged input. Calls that share a plan have the same
  /// buffers, so the program orders their streams.
  struct Plan {
    Plan(const Call& arguments, const Selection& selected) : call(arguments), selection(selected) {}
    const KeptCall call;
    const Selection selection;
    std::shared_ptr<DeviceWork> work;
    std::uint64_t last_use = 0;  ///< number of the call
  };
  struct Key {
    std::uint64_t digest = 0;
    double prescale = 1.0;
    const void *input = nullptr, *output = nullptr;
    auto operator<=>(const Key&) const = default;
  };
  bool can_enqueue(const PreparedCall& prepared);
  void start_watch();
  void run(const PreparedCall& prepared, const Call& call, std::uint64_t number, bool is_captured);
  std::shared_ptr<Plan> make_plan(const PreparedCall& prepared, const Call& call);
  Plan& plan_for(const PreparedCall& prepared, const Call& call);
  void drop_unused_plans();
  [[noreturn]] void fail(const PreparedCall& prepared, const Error& error);

  const Group& group_;
  WorkQueue& queue_;
  std::shared_ptr<DirectWatch> watch_;       // made by the first direct call
  DeviceGroup* devices_ = nullptr;           // null if this rank is alone
  bool is_connected_ = false;                // a schedule has run, by the queue
  std::unordered_set<std::uint64_t> known_;  // digests of calls that have run outside of graphs
  std::map<Key, std::shared_ptr<Plan>> plans_;
  std::vector<std::shared_ptr<Plan>> captured_plans_;  // of graphs, which may run until the communicator ends
};

}  // namespace farandole
