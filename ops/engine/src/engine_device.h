// SPDX-License-Identifier: Apache-2.0
// The engine's use of this rank's device: checks of submitted tensors, and the stream in which batches run.
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

/// Prepares submitted tensors in device memory. Opens the device for the first such tensor. Thread-safe.
class EngineDevice {
 public:
  /// @param communicator  must outlive this
  explicit EngineDevice(const Communicator& communicator) : communicator_(communicator) {}

  /// Checks the request's tensors in device memory, and records the events for which the collective waits in the
  /// tensors' streams. No-op for a request on host memory. Blocks only while the device is being opened.
  /// @throws InvalidArgument  this rank has no device; a tensor is on another device; a stream is captured
  /// @throws DeviceError
  void prepare(LocalRequest& request);
  /// Number of calls of `prepare` that waited for the device to be opened.
  std::uint64_t host_waits() const { return host_waits_.load(std::memory_order_relaxed); }

 private:
  /// Returns the open device; opens it on first use. @param spec  for the error
  /// @throws InvalidArgument  this rank has no device
  Device& open(const RequestSpec& spec);
  const Communicator& communicator_;
  std::mutex opening_;
  std::atomic<Device*> device_{nullptr};  // null until the device is open; stored with release, loaded with acquire
  std::atomic<std::uint64_t> host_waits_{0};
};

/// Counts of a set's work on the device; see farandole_counters.
struct DeviceCounters {
  std::uint64_t buckets = 0, kernels = 0, host_waits = 0;
};

/// The work of a process set on this rank's device. The lane has a stream of its own, in which the inputs of a bucket
/// are packed, reduced and unpacked; the host does not wait. The lane's stream waits for the events of the inputs, and
/// the tensors' streams wait for the lane's stream. Used by the engine's driver only; not thread-safe.
///
/// How collectives are enqueued. As long as the job has only the process set of all ranks, the driver enqueues
/// collectives *directly*, in the negotiated order, which is the same on all ranks
/// (CommunicatorOptions::DeviceOrder::kCaller). With several sets there is no common negotiated order, because each set
/// negotiates by itself; then the communicators of the job agree on the order of their collectives (kAgreed). Each
/// batch passes its choice to `begin`.
class DeviceLane {
 public:
  /// @param communicator  the set's communicator for data
  explicit DeviceLane(Communicator communicator);
  DeviceLane(const DeviceLane&) = delete;
  DeviceLane& operator=(const DeviceLane&) = delete;
  /// Waits until the device no longer uses the lane's memory. After a fault of the job, waits at most a second; if the
  /// device may still use the memory, the memory is kept until the process ends.
  ~DeviceLane();

  /// Begins work of a batch; opens the device on first use. @param is_direct  true: enqueue collectives directly
  /// @throws InvalidArgument  this rank has no device
  void begin(bool is_direct);

  // Call the following functions only after `begin`.
  StreamView stream() const { return stream_; }
  MemorySpace space() const { return stream_.space; }
  /// Returns why the device cannot use `view`; empty if it can. @param what  name of the view: "input"
  std::string address_problem(std::string_view what, ConstBufferView view) const;
  /// Makes later work of the lane wait for the tensor's input.
  void wait_for_input(const LocalTensor& tensor);
  /// Makes later work of the lane wait for the work that is in the tensor's stream now.
  void wait_for_stream(const LocalTensor& tensor);
  /// Returns a buffer of at least `bytes` bytes. Give it back as soon as its last use is enqueued: the next user of the
  /// buffer enqueues in the same stream, and so comes later.
  Buffer take(std::size_t bytes);
  void give_back(Buffer buffer) { buffers_->give_back(std::move(buffer)); }
  void copy(void* output, const void* input, std::size_t bytes) { device_->copy(output, input, bytes, stream_); }
  void launch(std::span<const DeviceTask> tasks);
  /// Enqueues writing of neutral values, which do not change a reduction by `op`.
  void fill_neutral(void* output, std::size_t count, DType dtype, ReduceOp op);
  /// Records and returns an event after all work of the lane so far.
  std::shared_ptr<DeviceEvent> record(DeviceEvent::Use use = DeviceEvent::Use::kStreams);
  /// Like `record`, for a wait of the host; null if the lane has had no work. Needs no `begin`.
  std::shared_ptr<DeviceEvent> record_end();
  /// Makes the tensor's stream wait for the event.
  void finish(const LocalTensor& tensor, DeviceEvent& completed) { device_->wait(tensor.stream, completed); }
  /// Returns pinned host memory of at least `bytes` bytes. Give it back, for reuse, once no work of the device uses it.
  Buffer take_pinned(std::size_t bytes);
  void give_back_pinned(Buffer buffer) { pinned_.push_back(std::move(buffer)); }
  void count_collective() { ++counters_.buckets; }
  DeviceCounters counters() const;

 private:
  const Communicator communicator_;
  Device* device_ = nullptr;  // null: not open
  StreamView stream_;
  std::shared_ptr<DeviceEvent> last_input_;  // latest event of an input for which the stream waits already
  std::unique_ptr<FusionBuffers> buffers_;
  std::vector<Buffer> pinned_;
  // Neutral values, in pinned memory. The last buffer of each vector is the largest; smaller ones may still be in use.
  std::map<std::pair<DType, ReduceOp>, std::vector<Buffer>> neutral_;
  DeviceUse use_;
  DeviceCounters counters_;
};

}  // namespace farandole
