// SPDX-License-Identifier: Apache-2.0
// Direct calls: collectives on device memory that the calling thread enqueues
// (CommunicatorOptions::DeviceOrder::kCaller).
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <unordered_set>
#include <vector>

#include "communicator/work_queue.h"
#include "device/device_work.h"
#include "device/direct_watch.h"
#include "messages/execution_plan.h"
#include "operation/call.h"
#include "operation/group.h"

namespace farandole {

/// Enqueues calls with a stream as NCCL does: the calling thread enqueues them in the caller's stream. It sends no
/// message, wakes no other thread, and takes no lock that another thread holds for long. DirectWatch compares the calls
/// afterwards and enforces deadlines.
///
/// A call goes through the queue instead (`enqueue` returns false) if it needs the host between its parts (hierarchical
/// collectives, averages of integers, an alltoall with counts), or if it must set something up: the communicator's
/// first call makes the device group, and its first schedule connects all pairs of ranks if there are at most 16 ranks.
/// All ranks make the same calls, so all ranks choose the queue for the same calls. A direct call first waits until
/// earlier calls in the queue are enqueued. The descriptor of a direct call includes the number of queued calls before
/// it, and the descriptor of a queued call the number of direct calls before it. So the comparisons detect ranks that
/// interleave direct and queued calls differently.
///
/// After the communicator's first call, a call may still block inside NCCL until all peers make it: when NCCL uses an
/// algorithm for the first time. DirectWatch reports such a block at the deadline.
///
/// Not thread-safe: one thread at a time, like the communicator.
class DirectCalls {
 public:
  /// True if this rank may enqueue calls directly: FARANDOLE_CHECK is not strict, and a thread of Farandole may call
  /// the vendor of the job's messages (MPI) at any time, even while threads of the program call MPI.
  static bool are_possible(const Endpoint& endpoint);
  /// @param group, queue  outlive this object
  DirectCalls(const Group& group, WorkQueue& queue) : group_(group), queue_(queue) {}
  DirectCalls(const DirectCalls&) = delete;
  DirectCalls& operator=(const DirectCalls&) = delete;
  ~DirectCalls();

  /// Enqueues a valid call. Returns false, and enqueues nothing, if the call must go through the queue.
  /// @throws InvalidArgument  the stream is captured into a graph, and no equal call has run outside of a graph; it is
  /// captured, and the call needs the host between its parts; it is the default stream, and waits for a captured
  /// stream. The capture stays valid in each case
  /// @throws Error  the job's fault   @throws DeviceError  the device or the vendor's library fails; poisons the job
  bool enqueue(const PreparedCall& prepared);
  /// Counts a call that goes through the queue. If the call is on device memory, mixes the number of direct calls
  /// before it into its descriptor.
  void note_call_of_queue(PreparedCall& prepared);
  /// Number of times that a call waited until earlier calls in the queue were enqueued; includes calls that then went
  /// through the queue themselves.
  std::uint64_t waits() const { return waits_; }
  /// True if some direct calls have not ended on the device. @throws DeviceError
  bool has_running() const { return watch_ != nullptr && watch_->calls().has_running(); }
  /// Blocks until all calls have ended on the device and were compared, or the job has failed.
  void close();

 private:
  /// A call whose work needs memory: a schedule, or a staged input. Calls that share a plan have the same buffers. If
  /// their streams differ, the program must order the calls itself.
  struct Plan {
    explicit Plan(const Call& arguments) : call(arguments) {}
    const KeptCall call;  ///< an f16 average run as a schedule: the sum of inputs that are divided first
    bool is_schedule = false;
    ExecutionPlan schedule;    ///< if `is_schedule`
    VendorPlan vendor;         ///< if not `is_schedule`
    std::size_t bytes = 0;     ///< device memory that the work needs
    DeviceScratch own_memory;  ///< of a captured call; all other plans share Scratch
    std::shared_ptr<DeviceWork> work;
  };
  struct Key {
    std::uint64_t digest = 0;
    std::uint64_t prescale_bits = 0;
    const void *input = nullptr, *output = nullptr;
    auto operator<=>(const Key&) const = default;
  };
  /// Device memory that all plans use, one after another.
  struct Scratch {
    DeviceScratch memory;
    std::size_t bytes = 0;
    std::uint64_t last_use = 0;         ///< number of the last call that used the memory; 0: none
    std::unique_ptr<DeviceEvent> used;  ///< recorded after each use
  };
  /// Memory of Scratch before it grew; freed once call `last_use` has ended.
  struct Outgrown {
    DeviceScratch memory;
    std::uint64_t last_use = 0;
  };
  bool is_direct_kind(const PreparedCall& prepared) const;
  void refuse_capture(const PreparedCall& prepared) const;
  [[noreturn]] void refuse_first_call(const PreparedCall& prepared) const;
  bool is_ready(const PreparedCall& prepared);
  void start_watch();
  /// Captures a call, with a write before and after it by which DirectWatch sees each replay.
  void capture(const PreparedCall& prepared, std::uint64_t number, const Descriptor& descriptor);
  void note_buffers(const Call& call, std::uint64_t number);
  void run(const PreparedCall& prepared, std::uint64_t number, bool is_captured);
  std::shared_ptr<Plan> make_plan(const PreparedCall& prepared, const VendorPlan& vendor) const;
  void make_work(Plan& plan, void* memory) const;
  void run_captured(const std::shared_ptr<Plan>& plan, StreamView stream);
  void run_in_scratch(Plan& plan, StreamView stream, std::uint64_t number);
  void grow_scratch(std::size_t bytes);
  DeviceScratch allocate(std::size_t bytes) const;
  Plan& plan_for(const PreparedCall& prepared, const VendorPlan& vendor);
  [[noreturn]] void fail(const PreparedCall& prepared, const Error& error);

  const Group& group_;
  WorkQueue& queue_;
  std::shared_ptr<DirectWatch> watch_;  // made by the first direct call
  DeviceGroup* devices_ = nullptr;      // null if this rank is alone
  bool is_connected_ = false;           // a schedule has gone through the queue
  bool has_warned_ = false;             // has logged that replays are not watched
  std::uint64_t queue_calls_ = 0;       // calls that went through the queue
  std::uint64_t waits_ = 0;
  std::unordered_set<std::uint64_t> known_;  // digests of calls made outside of graphs; equal calls may be captured
  std::map<Key, std::shared_ptr<Plan>> plans_;
  std::vector<std::shared_ptr<Plan>> captured_plans_;  // kept: graphs may run until the communicator ends
  Scratch scratch_;
  std::vector<Outgrown> outgrown_;
};

}  // namespace farandole
