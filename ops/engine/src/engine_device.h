// SPDX-License-Identifier: Apache-2.0
// This rank's device, as the engine uses it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "farandole/collectives/communicator.h"
#include "farandole/internal/device_use.h"
#include "farandole/sdk/device.h"
#include "fusion_buffers.h"
#include "local_request.h"

namespace farandole {

/// Prepares the tensors of submitted requests that lie in the memory of this rank's device. Opens the device for the
/// first of them. Thread-safe.
class EngineDevice {
 public:
  /// @param communicator  outlives this object
  explicit EngineDevice(const Communicator& communicator) : communicator_(communicator) {}

  /// Checks the tensors in device memory, and records in their streams the events that the collective waits for. No-op
  /// for a request on host memory. Blocks only while the device is being opened.
  /// @throws InvalidArgument  this rank has no device; a tensor is on another device; a stream is captured
  /// @throws DeviceError
  void prepare(LocalRequest& request);
  /// Number of calls of `prepare` that waited for the device to be opened.
  std::uint64_t host_waits() const { return host_waits_.load(std::memory_order_relaxed); }

 private:
  /// @param spec  for the error
  Device& open(const RequestSpec& spec);
  const Communicator& communicator_;
  std::mutex opening_;
  std::atomic<Device*> device_{nullptr};  // pairs with its load: a thread that reads it sees the open device
  std::atomic<std::uint64_t> host_waits_{0};
};

/// Counts of a set's work on the device; see farandole_counters.
struct DeviceCounters {
  std::uint64_t buckets = 0, kernels = 0, host_waits = 0;
};

/// The work of a process set on this rank's device: a stream of its own, in which the inputs of a bucket are packed,
/// reduced and unpacked without a wait of the host. The stream waits for the events of inputs, and the streams of the
/// outputs wait for this one. For the engine's driver; not thread-safe.
///
/// How collectives are enqueued. As long as the job has only the process set of all ranks, its collectives are enqueued
/// at once, in the negotiated order, which is the same on all ranks (CommunicatorOptions::DeviceOrder::kCaller). With
/// several sets no common order exists, because each set negotiates by itself; all their collectives then take their
/// places in the order on which the communicators of the job agree. The batch that a collective belongs to says which
/// way is taken.
class DeviceLane {
 public:
  /// @param communicator  the set's communicator of data
  explicit DeviceLane(Communicator communicator);
  DeviceLane(const DeviceLane&) = delete;
  DeviceLane& operator=(const DeviceLane&) = delete;
  /// Waits until the device has stopped using the lane's memory; after a fault of the job a second at most, and keeps
  /// the memory then.
  ~DeviceLane();

  /// Begins work of a batch: opens the device if need be. @param is_direct  whether collectives are enqueued at once
  /// @throws InvalidArgument  this rank has no device
  void begin(bool is_direct);
  /// The functions below need a `begin` before.
  StreamView stream() const { return stream_; }
  MemorySpace space() const { return stream_.space; }
  /// Why the device cannot use `view`; empty if it can. @param what  names the view: "input"
  std::string address_problem(std::string_view what, ConstBufferView view) const;
  /// Later work of the lane waits for the tensor's input.
  void wait_for_input(const LocalTensor& tensor);
  /// Later work of the lane waits for the work that is in the tensor's stream now.
  void wait_for_stream(const LocalTensor& tensor);
  /// Returns a buffer of at least `bytes` bytes. The lane's work uses a buffer in order: give it back as soon as its
  /// last use is enqueued.
  Buffer take(std::size_t bytes);
  void give_back(Buffer buffer) { buffers_->give_back(std::move(buffer)); }
  void copy(void* output, const void* input, std::size_t bytes) { device_->copy(output, input, bytes, stream_); }
  void launch(std::span<const DeviceTask> tasks);
  /// Writes the values that do not change a reduction.
  void fill_neutral(void* output, std::size_t count, DType dtype, ReduceOp op);
  /// Returns an event after all work of the lane.
  std::shared_ptr<DeviceEvent> record(DeviceEvent::Use use = DeviceEvent::Use::kStreams);
  /// Returns an event after all work of the lane, for the host; null if it has had none. Needs no `begin`.
  std::shared_ptr<DeviceEvent> record_end();
  /// Makes the stream of the tensor wait for the event.
  void finish(const LocalTensor& tensor, DeviceEvent& completed) { device_->wait(tensor.stream, completed); }
  /// Pinned memory of the host, kept for reuse; give it back once no work of the device uses it.
  Buffer take_pinned(std::size_t bytes);
  void give_back_pinned(Buffer buffer) { pinned_.push_back(std::move(buffer)); }
  void count_collective() { ++counters_.buckets; }
  DeviceCounters counters() const;

 private:
  const Communicator communicator_;
  Device* device_ = nullptr;  // null: not open
  StreamView stream_;
  std::shared_ptr<DeviceEvent> last_input_;  // the stream waits for it already
  std::unique_ptr<FusionBuffers> buffers_;
  std::vector<Buffer> pinned_;
  std::map<std::pair<DType, ReduceOp>, std::vector<Buffer>> neutral_;  // last: the largest; all in pinned memory
  DeviceUse use_;
  DeviceCounters counters_;
};

}  // namespace farandole
