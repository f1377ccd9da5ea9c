// SPDX-License-Identifier: Apache-2.0
// A rank's device, shared by all communicators of the rank.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "device/device_blocks.h"
#include "device/device_order.h"
#include "device/device_thread.h"
#include "device/watch_thread.h"
#include "farandole/internal/endpoint.h"
#include "farandole/sdk/device.h"

namespace farandole {

/// The open device of a rank, with the stream for collectives, the device's thread, the order of operations, and the
/// device groups. Thread-safe.
///
/// Opened by the first use of a device on this rank, and destroyed with the rank's last communicator, whether that uses
/// devices or not. The device groups end then, and a vendor may wait until all ranks of a group have ended theirs.
///
/// All operations of queues run in one stream, one after another, in the order of DeviceOrder. One thread
/// (DeviceThread) makes all calls that enqueue them, and all calls that may block in the driver: opening the device,
/// allocating memory, loading NCCL. That thread waits in NCCL for the threads of its peers, but never for a program,
/// because all ranks have called an operation before it is enqueued. Direct calls (DirectCalls) are enqueued by their
/// callers, in the callers' streams.
class DeviceContext {
 public:
  /// Reference that keeps a rank's context open. Each communicator holds a ContextRef for its whole life. The reference
  /// does not open the device; `context` does.
  class ContextRef {
   public:
    explicit ContextRef(std::shared_ptr<Endpoint> endpoint);
    /// The rank's last reference destroys the context, which may block until peers destroy theirs.
    ~ContextRef();
    ContextRef(const ContextRef&) = delete;
    ContextRef& operator=(const ContextRef&) = delete;
    /// Returns the rank's context, and opens the device if necessary.
    /// @throws InvalidArgument  this rank has no device: says why, and what to do
    DeviceContext& context();

   private:
    const std::shared_ptr<Endpoint> endpoint_;
  };
  /// Returns the runtime if any rank of this process has opened a device, else null. Costs one relaxed load.
  static const DeviceRuntime* opened();
  explicit DeviceContext(std::shared_ptr<Endpoint> endpoint);
  ~DeviceContext();

  Device& device() const { return *opened_.device; }
  MemorySpace space() const { return device().space(); }
  const DeviceRuntime& runtime() const { return *opened_.runtime; }
  /// The stream of collectives. Does not synchronise with other streams, except through events.
  StreamView stream() const { return opened_.stream; }
  /// Streams for copies from the device to pinned memory (`out`) and back (`in`), which run at the same time as
  /// collectives.
  struct CopyStreams {
    StreamView out, in;
  };
  /// Made by the first call. To be called on the device's thread. @throws DeviceError
  CopyStreams copy_streams();
  DeviceThread& thread() { return thread_; }
  WatchThread& watch_thread() { return watch_thread_; }
  /// Runs `make`, which may block in the driver, on the device's thread, and blocks until it returns; poisons the job
  /// at the deadline. `make` must own all data that it uses, because it may still run then.
  /// @param what  completes the message of that fault: "to allocate 10 bytes"   @throws Error  `make` has thrown it, or
  /// the job's fault
  template <class Make>
  auto make_now(const std::string& what, Make make) {
    const auto made = std::make_shared<std::invoke_result_t<Make>>();
    run_now(what, [made, make = std::move(make)] { *made = make(); });
    return std::move(*made);
  }
  /// Allocates zeroed memory of the device from its pool. Blocks until the memory is zero. If the pool must first
  /// return memory to the driver, blocks until the device is idle; a device that hangs becomes a fault of the job at
  /// the deadline. Memory that is released while calls use it returns to the pool when they have ended (DeviceBlocks);
  /// if there is no other memory, blocks until calls that are on the device have ended.
  /// @throws InvalidArgument, DeviceError  not enough memory   @throws Error  the job's fault
  Buffer allocate(std::size_t count, DType dtype);
  /// Returns the pool's unused memory, and unused pinned memory, to the driver; returns the number of bytes. Blocks
  /// until all calls that the rank has enqueued have ended, and then until the streams of Farandole are idle.
  /// @throws Error  the job's fault
  std::size_t trim();
  DeviceBlocks& blocks() { return *blocks_; }
  /// Counts the operations in the agreed order whose work is being enqueued or is on the device.
  void begin_operation() { ++running_operations_; }
  void end_operation() { --running_operations_; }

  // Thread-safe access to the rank's DeviceOrder, which has the documentation.
  void add(DeviceOrder::Ticket ticket);
  std::optional<DeviceOrder::Time> propose(DeviceOrder::Ticket ticket);
  void agree(DeviceOrder::Ticket ticket, DeviceOrder::Time agreed);
  bool is_next(DeviceOrder::Ticket ticket) const;
  void remove(DeviceOrder::Ticket ticket);

  /// A device group, shared by all communicators of the same ranks in the same order.
  struct Group {
    std::vector<int> members;       ///< ranks of the job
    DeviceOrder::Time made_at = 0;  ///< agreed time of the operation that made the group; the same on all its ranks
    std::shared_ptr<DeviceGroup> devices;
    bool is_shared = true;  ///< other communicators of the same ranks may use the group
  };
  /// Adds a group that an operation has made in its turn. When the context ends, it destroys its groups in the order of
  /// turns: destroying a group may wait for its other ranks, so all ranks need the same order.
  void add(Group group);
  /// Returns the shared group added last for these ranks; a Group without devices if there is none.
  Group group_of(const std::vector<int>& members) const;
  /// After a fault of the job: aborts all pending work of the device's groups on a detached thread, because aborting
  /// may block forever, and abandons the device's thread. Non-blocking; idempotent.
  void abandon();
  /// @throws DeviceError  a group of this rank's device reports an asynchronous error
  void check(DeviceGroup& devices) const;

 private:
  /// Results of opening the device.
  struct Opened {
    DeviceRuntime* runtime = nullptr;
    Device* device = nullptr;
    StreamView stream;          ///< for collectives
    StreamView zeroing_stream;  ///< for new memory: zeroing must not wait for collectives that peers have not called
  };
  Opened open();
  void run_now(const std::string& what, std::function<void()> work);
  /// Calls `is_over` until it returns true, and advances the rank's operations meanwhile. Has no deadline: to be used
  /// for the end of calls, whose own deadlines hold. @throws Error  the job's fault
  void wait_until(const std::function<bool()>& is_over);
  const std::shared_ptr<Endpoint> endpoint_;
  DeviceThread thread_;
  const Opened opened_;
  std::atomic<int> running_operations_{0};
  const std::shared_ptr<DeviceBlocks> blocks_ = std::make_shared<DeviceBlocks>();
  mutable std::mutex mutex_;  // guards the members below
  DeviceOrder order_;
  std::vector<Group> groups_;  // in the order of turns, see add()
  CopyStreams copy_streams_;
  bool is_abandoned_ = false;
  WatchThread watch_thread_;  // last member: the watches use the others
};

}  // namespace farandole
