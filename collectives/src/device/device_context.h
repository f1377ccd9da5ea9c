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

/// A rank's open device, with the stream for collectives, the device's thread, the order of operations, and the device
/// groups. All communicators of the rank share it. Thread-safe.
///
/// The rank's first use of a device opens the context. The rank's last communicator destroys the context, even if that
/// communicator uses no device. The destructor ends the device groups; it may block there until all ranks of a group
/// have ended theirs.
///
/// Queued operations (DeviceOperation) run in one stream, one after another, in the order of DeviceOrder. One thread
/// (DeviceThread) enqueues them all, and makes all calls that may block in the driver: opening the device, allocating
/// memory, loading NCCL. That thread may block in NCCL until its peers' threads enqueue the same collective. It never
/// waits for a program, because an operation is enqueued only after all ranks have called it. Direct calls
/// (DirectCalls) differ: the calling thread enqueues them, in the caller's stream.
class DeviceContext {
 public:
  /// Reference that keeps a rank's context open. Each communicator holds a ContextRef for its whole life. Making the
  /// reference does not open the device; `context()` does.
  class ContextRef {
   public:
    explicit ContextRef(std::shared_ptr<Endpoint> endpoint);
    /// The rank's last reference destroys the context, and may block until peers destroy theirs.
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
  /// Streams for copies from the device to pinned memory (`out`) and back (`in`). The copies overlap collectives.
  struct CopyStreams {
    StreamView out, in;
  };
  /// Destroys a stream that this rank has made, on the device's thread. Non-blocking. No-op after a fault of the job:
  /// the stream may hang.
  void release_stream(StreamView stream);
  /// Returns the copy streams; the first call makes them. Call it on the device's thread. @throws DeviceError
  CopyStreams copy_streams();
  DeviceThread& thread() { return thread_; }
  WatchThread& watch_thread() { return watch_thread_; }
  /// Runs `make`, which may block in the driver, on the device's thread. Blocks until `make` returns. At the deadline
  /// (FARANDOLE_TIMEOUT) poisons the job and throws; `make` may still run then, so `make` must own all data that it
  /// uses.
  /// @param what  completes the fault's message: "to allocate 10 bytes"   @throws Error  thrown by `make`, or the job's
  /// fault
  template <class Make>
  auto make_now(const std::string& what, Make make) {
    const auto made = std::make_shared<std::invoke_result_t<Make>>();
    run_now(what, [made, make = std::move(make)] { *made = make(); });
    return std::move(*made);
  }
  /// Allocates device memory from the pool, and fills it with zeros. Blocks until the memory is zero. If the pool must
  /// first return memory to the driver, blocks until the device is idle; if the device hangs, the job fails at the
  /// deadline. If a program releases memory that calls still use, the memory returns to the pool only after these calls
  /// (DeviceBlocks). If no other memory is left, `allocate` blocks until such calls have ended on the device.
  /// @throws InvalidArgument, DeviceError  not enough memory   @throws Error  the job's fault
  Buffer allocate(std::size_t count, DType dtype);
  /// Gives the pool's unused memory, and unused pinned memory, back to the driver. Returns the number of bytes. Blocks
  /// until all calls that the rank has enqueued have ended, then until Farandole's streams are idle.
  /// @throws Error  the job's fault
  std::size_t trim();
  DeviceBlocks& blocks() { return *blocks_; }
  /// Begin and end of a queued operation: from its turn until it is destroyed. `trim` waits until no operation runs.
  void begin_operation() { ++running_operations_; }
  void end_operation() { --running_operations_; }

  // Thread-safe access to the rank's DeviceOrder; documented there.
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
  /// Adds a group that an operation has made in its turn. The destructor of the context destroys groups in the order of
  /// turns, which is the same on all ranks, because destroying a group may block until its other ranks do so, too.
  void add(Group group);
  /// Returns the shared group added last for these ranks; a Group without devices if there is none.
  Group group_of(const std::vector<int>& members) const;
  /// To be called after a fault of the job. Abandons the device's thread. A detached thread aborts all pending work of
  /// the device's groups, because aborting may block forever. Non-blocking; idempotent.
  void abandon();
  /// @throws DeviceError  a group of this rank's device reports an asynchronous error
  void check(DeviceGroup& devices) const;

 private:
  /// Results of opening the device.
  struct Opened {
    DeviceRuntime* runtime = nullptr;
    Device* device = nullptr;
    StreamView stream;          ///< for collectives
    StreamView zeroing_stream;  ///< zeroes new memory, without waiting for collectives that peers have not called
  };
  Opened open();
  void run_now(const std::string& what, std::function<void()> work);
  /// Calls `is_over` until it returns true, and advances the rank's operations meanwhile. Has no deadline of its own:
  /// wait only for the end of calls, which have deadlines. @throws Error  the job's fault
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
