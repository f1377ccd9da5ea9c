// SPDX-License-Identifier: Apache-2.0
// A rank's device: what the communicators of the rank share of it.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "device/device_order.h"
#include "device/device_thread.h"
#include "farandole/internal/endpoint.h"
#include "farandole/sdk/device.h"

namespace farandole {

/// Opened by the first use of a device on this rank, and shared by its communicators. It ends with the last of these,
/// whether they use devices or not: its groups end then, for which a vendor waits for all ranks of each. Thread-safe.
///
/// All device operations of a rank run on one stream, one after another, in the order of DeviceOrder. One thread makes
/// all calls that enqueue them, and all that may wait in the driver: to open the device, to get memory, to load NCCL.
class DeviceContext {
 public:
  /// What each communicator of a rank has from its beginning to its end, so that the context stays once it is open.
  class ContextRef {
   public:
    explicit ContextRef(std::shared_ptr<Endpoint> endpoint);
    /// The rank's last one ends the context, which may block until peers end theirs.
    ~ContextRef();
    ContextRef(const ContextRef&) = delete;
    ContextRef& operator=(const ContextRef&) = delete;
    /// Opens the device, if it is not open. @throws InvalidArgument  there is none for this rank: says why, and what to
    /// do
    DeviceContext& context();

   private:
    const std::shared_ptr<Endpoint> endpoint_;
  };
  /// The runtime, if this process has opened a device; else null. One relaxed load.
  static const DeviceRuntime* opened();
  explicit DeviceContext(std::shared_ptr<Endpoint> endpoint);
  ~DeviceContext();

  Device& device() const { return *opened_.device; }
  MemorySpace space() const { return device().space(); }
  const DeviceRuntime& runtime() const { return *opened_.runtime; }
  /// Of collectives; ordered with others by events only.
  StreamView stream() const { return opened_.stream; }
  /// Of copies to and from pinned memory, which go on beside collectives; made by the first call. On the device's
  /// thread.
  /// @throws DeviceError
  struct CopyStreams {
    StreamView out, in;
  };
  CopyStreams copy_streams();
  DeviceThread& thread() { return thread_; }
  /// Zeroed memory of the device, which goes back to its pool. Blocks until it is zero. Where there is none left, what
  /// the pool keeps goes back to the driver once the device is idle: a device that hangs is a fault of the job at the
  /// deadline. @throws InvalidArgument, DeviceError  there is not so much   @throws Error  the job's fault
  Buffer allocate(std::size_t count, DType dtype);

  // The order of operations, see DeviceOrder.
  DeviceOrder::Time propose(DeviceOrder::Ticket ticket);
  void agree(DeviceOrder::Ticket ticket, DeviceOrder::Time agreed);
  bool is_next(DeviceOrder::Ticket ticket) const;
  void remove(DeviceOrder::Ticket ticket);

  /// The devices of some ranks, for all communicators of the same ranks in the same order.
  struct Group {
    std::vector<int> members;    ///< ranks of the job
    DeviceOrder::Time made = 0;  ///< the agreed time of the operation that made it: the same on all its ranks
    std::shared_ptr<DeviceGroup> devices;
  };
  /// A group that was made in the turn of an operation. It stays until the context ends: a vendor waits, when a group
  /// ends, for its other ranks, so that groups must end in one order, that of turns.
  void add(Group group);
  /// The last one of these ranks; one without devices if there is none.
  Group group_of(const std::vector<int>& members) const;
  /// The job has failed: what is on its way is aborted by a thread that is left behind, because that may block for
  /// ever. Does not block.
  void abandon();

 private:
  /// What the device's thread opens.
  struct Opened {
    DeviceRuntime* runtime = nullptr;
    Device* device = nullptr;
    StreamView stream;          ///< of collectives
    StreamView zeroing_stream;  ///< of new memory: it must not wait for collectives that peers have not called
  };
  Opened open();
  /// Runs `work` on the device's thread, which owns what it refers to, and waits until the job's deadline.
  /// @param what  for the fault of the job that there is then: "to allocate 10 bytes"
  void run_now(const std::string& what, std::function<void()> work);

  const std::shared_ptr<Endpoint> endpoint_;
  DeviceThread thread_;
  const Opened opened_;
  mutable std::mutex mutex_;  // guards the next four
  DeviceOrder order_;
  std::vector<Group> groups_;  // in the order of turns
  CopyStreams copy_streams_;
  bool is_abandoned_ = false;
};

}  // namespace farandole
