// SPDX-License-Identifier: Apache-2.0
// Shared state of all copies of a Communicator.
#pragma once

#include <array>
#include <cstdint>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <set>
#include <string>
#include <tuple>

#include "communicator/device_messages.h"
#include "communicator/direct_calls.h"
#include "communicator/work_queue.h"
#include "farandole/collectives/communicator.h"
#include "operation/call.h"
#include "operation/group.h"
#include "point_to_point/message_queue.h"
#include "selection/selection.h"

namespace farandole {

/// Shared state of all copies of a Communicator: the group, the queues of collectives and messages, and remembered
/// selections. `group_` is const after construction; `selections_` belongs to the thread that uses the communicator.
class Communicator::State {
 public:
  explicit State(Group group);
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State();

  // The Communicator's functions use the state through `group`, `queue` and `endpoint`, or through functions of the
  // queue that check for a fault of the job.
  /// @throws InvalidArgument  in a forked child
  const Group& group() const {
    group_.endpoint->faults().check_process();
    return group_;
  }
  WorkQueue& queue() {
    queue_->begin_use();
    return *queue_;
  }
  /// The queue of point-to-point messages, made by the first call. Any thread may call this function at any time.
  /// @throws Error  the fault of the job
  MessageQueue& messages();
  /// The messages of device memory, made by the first call. Any thread may call this function at any time.
  /// @throws Error  the fault of the job
  DeviceMessages& device_messages();
  /// This rank's slot in the job. The caller checks for faults and forked children.
  Endpoint& endpoint() const { return *group_.endpoint; }

  /// Makes a communicator of `ranks`, see Communicator::of_members, which checks the arguments. Collective over
  /// `ranks`. Different tags do not match.
  std::shared_ptr<State> make_of_members(std::span<const int> ranks, const CommunicatorOptions& options,
                                         CreationTag tag);

  /// Transport to the farthest member, whose link is the slowest and determines the speed of every algorithm.
  Transport& message_route() const { return group_.endpoint->route(group_.farthest_member()); }
  /// Bytes that this process has sent by the transports to the members in other processes; if all members are in this
  /// process, by the transport inside the process.
  std::uint64_t sent_bytes() const {
    std::set<const Transport*> routes{&message_route()};
    const Topology& topology = group_.endpoint->topology();
    const int here = topology.rank(group_.endpoint->rank()).process;
    for (const int member : group_.members) {
      if (topology.rank(member).process != here) routes.insert(&group_.endpoint->route(member));
    }
    return std::accumulate(routes.begin(), routes.end(), std::uint64_t{0},
                           [](std::uint64_t sum, const Transport* route) { return sum + route->sent_bytes(); });
  }

  SelectionQuery query(Collective collective, std::size_t bytes, MemoryKind memory = MemoryKind::kHost) const {
    SelectionQuery asked;
    asked.collective = collective;
    asked.bytes = bytes;
    asked.size = group_.size();
    asked.link = link_;
    asked.is_part_of_job = group_.size() < group_.endpoint->topology().size();
    asked.compares = group_.compares;
    asked.memory = memory;
    asked.table = group_.table_fits ? group_.table.get() : nullptr;
    if (memory != MemoryKind::kHost) {
      asked.link = kDeviceLink;
      asked.hosts = queue_->device_hosts();
      return asked;
    }
    asked.shares_memory = queue_->shares_memory();
    asked.hosts = queue_->hosts();
    return asked;
  }

  Selection select(const SelectionQuery& query);
  void run(const Call& call) {
    const bool is_on_stream = call.stream.valid();
    const bool is_direct = is_on_stream && direct_ != nullptr;
    PreparedCall prepared = prepare(call, is_direct);
    if (is_direct && direct_->enqueue(prepared)) return;
    if (direct_ != nullptr) direct_->note_call_of_queue(prepared);
    if (is_on_stream && prepared.is_valid()) {
      queue_->run_on_stream(prepared);
    } else {
      queue_->run(prepared);
    }
  }
  /// Submits a message of device memory to the queue; `begin` starts it. Runs no function of Work::on_done, so the
  /// caller may hold locks. @param source  rank whose message this rank receives, for Work::source; kNoSource for a
  /// send
  std::shared_ptr<CollectiveWork> submit_message(const Call& call, int source) {
    PreparedCall prepared = prepare(call, /*is_direct=*/false);
    return submit(prepared, source);
  }
  /// Starts submitted work. Call it without locks: it may run functions of Work::on_done.
  Work begin(const std::shared_ptr<CollectiveWork>& work) {
    queue_->advance();
    if (group_.progress == CommunicatorOptions::Progress::kBackground) group_.endpoint->progress().wake();
    return Work(work);
  }
  Work start(const Call& call) {
    const bool is_direct = starts_directly_ && direct_ != nullptr && call.stream.valid();
    PreparedCall prepared = prepare(call, is_direct);
    if (is_direct && direct_->enqueue(prepared)) return {};
    return begin(submit(prepared));
  }
  /// Starts a call that this rank refuses with `why`. @throws InvalidArgument  no peer compares the call
  Work start_refused(const Call& call, const std::string& why) {
    PreparedCall prepared(call, group_.size());
    refuse(prepared, why, /*is_direct=*/false);
    return begin(submit(prepared));
  }
  bool enqueues_directly() const { return direct_ != nullptr; }
  /// True if no call of the queue is still to be enqueued on the device: `run` of a direct call then does not wait.
  bool is_enqueued() { return queue_->is_enqueued(); }
  /// Blocks until `is_enqueued`. Call it without locks: it may run functions of Work::on_done. @throws Error  the fault
  /// of the job
  void wait_until_enqueued() {
    (void)queue_->wait_until_enqueued();
    group_.endpoint->faults().check();
  }
  /// See CommunicatorAccess.
  void start_directly(bool enabled) { starts_directly_ = enabled; }
  std::uint64_t direct_waits() const { return direct_ == nullptr ? 0 : direct_->waits(); }

 private:
  /// Validates the call and selects the method that runs it. @throws InvalidArgument  the call is invalid, and no peer
  /// compares it
  /// @param is_direct  this thread is to enqueue the call, in the caller's order
  PreparedCall prepare(const Call& call, bool is_direct);
  /// Completes a call that this rank refuses. @throws InvalidArgument  with `why`, if no peer compares the call
  void refuse(PreparedCall& prepared, const std::string& why, bool is_direct) const;
  std::shared_ptr<CollectiveWork> submit(PreparedCall& prepared, int source = Work::State::kNoSource) {
    if (direct_ != nullptr) direct_->note_call_of_queue(prepared);
    std::shared_ptr<CollectiveWork> work = queue_->submit(prepared);
    work->source = source;
    return work;
  }
  Selection select(const PreparedCall& prepared);
  bool has_pending() const;

  const Group group_;
  const int exceptions_at_start_ = std::uncaught_exceptions();
  const std::shared_ptr<WorkQueue> queue_;
  std::once_flag messages_made_;
  std::shared_ptr<MessageQueue> messages_;           // null before the first message
  std::mutex device_messages_mutex_;                 // held while device_messages_ is made
  std::unique_ptr<DeviceMessages> device_messages_;  // null before the first message of device memory
  std::unique_ptr<DirectCalls> direct_;              // null if no call is enqueued directly
  bool starts_directly_ = false;
  const LinkCost link_ = message_route().cost();
  std::array<ShortVectors, kCollectiveCount> select_short_vectors() const;
  const std::array<ShortVectors, kCollectiveCount> short_vectors_ = select_short_vectors();
  using Key = std::tuple<Collective, std::size_t, std::string, int, bool, MemoryKind>;
  std::map<Key, Selection> selections_;
};

inline Communicator::State& Communicator::state() const {
  if (state_ == nullptr) throw_empty();
  return *state_;
}

}  // namespace farandole
