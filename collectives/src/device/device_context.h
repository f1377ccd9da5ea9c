// SPDX-License-Identifier: Apache-2.0
// A rank's device: what the communicators of the rank share of it.
#pragma once

#include <map>
#include <memory>
#include <mutex>

#include "device/device_order.h"
#include "device/device_thread.h"
#include "farandole/internal/endpoint.h"
#include "farandole/sdk/device.h"

namespace farandole {

/// Opened by the first use of a device on this rank, and shared by its communicators. Thread-safe.
///
/// All device operations of a rank run on one stream, one after another, in the order of DeviceOrder, and one thread
/// makes all calls that enqueue them.
class DeviceContext {
 public:
  /// @throws InvalidArgument  there is no device for this rank: says why, and what to do
  static std::shared_ptr<DeviceContext> of(const std::shared_ptr<Endpoint>& endpoint);
  /// The runtime, if this process has opened a device; else null. One relaxed load.
  static const DeviceRuntime* opened();
  explicit DeviceContext(std::shared_ptr<Endpoint> endpoint);
  ~DeviceContext();

  Device& device() const { return device_; }
  MemorySpace space() const { return device_.space(); }
  const DeviceRuntime& runtime() const { return runtime_; }
  /// Of collectives; ordered with others by events only.
  StreamView stream() const { return stream_; }
  /// Of copies to and from pinned memory, which go on beside collectives; made by the first call. @throws DeviceError
  struct CopyStreams {
    StreamView out, in;
  };
  CopyStreams copy_streams();
  DeviceThread& thread() { return thread_; }
  /// Zeroed memory of the device, which goes back to its pool. Blocks until it is zero.
  Buffer allocate(std::size_t count, DType dtype);

  // The order of operations, see DeviceOrder.
  DeviceOrder::Time propose(DeviceOrder::Ticket ticket);
  void agree(DeviceOrder::Ticket ticket, DeviceOrder::Time agreed);
  bool is_next(DeviceOrder::Ticket ticket) const;
  void remove(DeviceOrder::Ticket ticket);

  /// A communicator has a group, which stays until all communicators of this rank have ended: a vendor waits, when a
  /// group ends, for its other ranks, so that groups must end in one order. @param made  the agreed time of the
  /// operation that made it: the same on all its ranks; those of one time are added in the order of operations
  void add(const std::shared_ptr<DeviceGroup>& group, DeviceOrder::Time made);
  /// The job has failed: what is on its way is aborted by a thread that is left behind, because that may block for
  /// ever. Does not block.
  void abandon();

 private:
  const std::shared_ptr<Endpoint> endpoint_;
  DeviceRuntime& runtime_;
  Device& device_;
  const StreamView stream_;
  const StreamView zeroing_stream_;  // of new memory: it must not wait for collectives that peers have not called
  mutable std::mutex mutex_;         // guards the next four
  DeviceOrder order_;
  std::multimap<DeviceOrder::Time, std::shared_ptr<DeviceGroup>> groups_;
  CopyStreams copy_streams_;
  bool is_abandoned_ = false;
  DeviceThread thread_;
};

}  // namespace farandole
