// SPDX-License-Identifier: Apache-2.0
// What a device plug-in gives to Farandole: memory, streams, kernels and messages of accelerators. Free of vendors.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "farandole/core/buffer.h"
#include "farandole/core/dtype.h"
#include "farandole/core/export.h"
#include "farandole/core/settings.h"
#include "farandole/core/stream.h"

namespace farandole FARANDOLE_API {

/// One device that this process can open.
struct DeviceInfo {
  int ordinal = 0;       ///< among those that the process sees
  std::string name;      ///< "NVIDIA H100 80GB HBM3"
  std::string identity;  ///< the same in every process of the machine, and of no other device: its UUID
  std::size_t memory_bytes = 0;
  int compute_capability = 0;  ///< 90 for 9.0
};

/// A piece of work for a kernel: element-wise, over contiguous elements of one device.
struct DeviceTask {
  enum class Kind : std::uint8_t {
    kCopy,    ///< output = left; any type
    kReduce,  ///< output = left op right, as reduce()
    kScale,   ///< output = left * factor, as scale()
    /// output = left, converted to `output_dtype`: f16, bf16, f32 and f64 among each other; integers of 8 and 16 bits
    /// to i32 and back, i32 and u32 to i64 and back, bounded by the range of the type
    kCast,
  };
  Kind kind = Kind::kCopy;
  DType dtype = DType::kU8;         ///< of `left` and `right`
  DType output_dtype = DType::kU8;  ///< differs from `dtype` in kCast only
  ReduceOp op = ReduceOp::kSum;
  void* output = nullptr;
  const void* left = nullptr;
  const void* right = nullptr;
  std::size_t count = 0;
  double factor = 1.0;
};

/// A message of a group: to or from a peer of the DeviceGroup.
struct DeviceMessage {
  enum class Kind : std::uint8_t { kSend, kReceive };
  Kind kind = Kind::kSend;
  int peer = 0;
  void* data = nullptr;
  std::size_t bytes = 0;
};

/// A collective of the vendor's, with equal parts. In place where `input` equals `output`, or, in allgather and
/// reduce_scatter, where the rank's own part lies at its place in the other side's vector; alltoall never is.
struct DeviceCollective {
  enum class Kind : std::uint8_t { kAllreduce, kBroadcast, kReduce, kAllgather, kReduceScatter, kAlltoall };
  Kind kind = Kind::kAllreduce;
  const void* input = nullptr;
  void* output = nullptr;
  std::size_t count = 0;  ///< elements of the vector; of one part where there are parts
  DType dtype = DType::kU8;
  ReduceOp op = ReduceOp::kSum;  ///< kAverage sums
  int root = 0;
};

/// A moment in a stream, that others wait for. Destroyed when the device is done with it.
class DeviceEvent {
 public:
  enum class Use : std::uint8_t {
    kStreams,  ///< streams wait for it
    kHost,     ///< also the host, which asks often whether it is complete, and need not call the driver each time
  };
  virtual ~DeviceEvent() = default;
  /// True once what was in the stream when it was recorded is complete; true if it never was recorded. Does not block.
  /// One thread at a time. @throws DeviceError  the device has failed
  virtual bool is_complete() = 0;
};

/// The ranks of a communicator, each with a device of its own (an NCCL communicator). All calls come from one thread at
/// a time; calls that enqueue block the host only as long as the vendor's own calls do. Destroying one without `abort`
/// may block until all its ranks destroy theirs.
class DeviceGroup {
 public:
  virtual ~DeviceGroup() = default;
  /// Enqueues messages that proceed together: none waits for another of the same call. Those between two ranks meet in
  /// order. Enqueues nothing if there are none. @throws DeviceError
  virtual void exchange(std::span<const DeviceMessage> messages, StreamView stream) = 0;
  virtual bool supports(DeviceCollective::Kind kind, DType dtype, ReduceOp op) const = 0;
  /// Enqueues the vendor's own collective. @throws DeviceError, Unsupported  see `supports`
  virtual void run(const DeviceCollective& collective, StreamView stream) = 0;
  /// Makes the connections to all peers, both ways, unless they are there. Blocks until all ranks do. @throws
  /// DeviceError
  virtual void connect(StreamView stream) = 0;
  /// What went wrong since, outside of all calls; empty if nothing did. Thread-safe.
  virtual std::string asynchronous_error() = 0;
  /// Ends what is on its way, on this rank, unless a thread stays in a call of the group for a second: what that uses
  /// stays then, and what is in streams goes on waiting until the process ends. Nothing else may be called after it.
  /// May block for ever: call it from a thread that may be left behind. Thread-safe.
  virtual void abort() = 0;
};

/// What all ranks of a group must be given: made by one of them, and sent to the others by the host.
using DeviceGroupId = std::array<std::byte, 128>;

/// One device, opened by this process. Thread-safe unless stated. Memory, streams and events of it go before it.
class Device {
 public:
  virtual ~Device() = default;
  virtual const DeviceInfo& info() const = 0;
  MemorySpace space() const { return {MemoryKind::kCuda, static_cast<std::uint16_t>(info().ordinal)}; }
  /// Makes the device that of the calling thread, so that the other calls, which do so themselves where they must, have
  /// nothing to set and to set back.
  virtual void bind_thread() = 0;
  /// Runs `calls` with the device as that of the calling thread, which has its own one again afterwards: for libraries
  /// that ask the vendor on which device they are, as MPI does. Passes on what `calls` throws.
  virtual void run_bound(const std::function<void()>& calls) = 0;

  /// Memory of the device, aligned to 256 bytes, not initialised; from a pool that keeps what is released. Where the
  /// driver has no more, what the pool keeps goes back to it once all streams of `make_stream` are idle: that may take
  /// for ever, as all that grows the pool may; so call it from a thread that may be left behind. @throws DeviceError
  /// there is no more; names what was asked and is left
  virtual void* allocate(std::size_t bytes) = 0;
  /// @param memory  is used by nothing that is still in a stream
  virtual void release(void* memory) = 0;
  /// Memory of the host that the device reads and writes without a copy; blocks as `allocate`. @throws DeviceError
  virtual void* allocate_pinned(std::size_t bytes) = 0;
  virtual void release_pinned(void* memory) = 0;

  /// A stream that waits for no other one. The device keeps it until the process ends.
  virtual StreamView make_stream() = 0;
  /// True while what is enqueued in the stream goes into a graph of the program's instead of running. Nothing of
  /// Farandole's may be enqueued there, and no event recorded: the capture would fail. Does not throw.
  virtual bool is_capturing(StreamView stream) = 0;
  virtual std::unique_ptr<DeviceEvent> make_event(DeviceEvent::Use use) = 0;
  virtual void record(DeviceEvent& event, StreamView stream) = 0;
  /// What comes into `stream` later waits for `event`, as last recorded; it has been.
  virtual void wait(StreamView stream, DeviceEvent& event) = 0;
  /// Enqueues a copy between any two memories of host and device.
  virtual void copy(void* output, const void* input, std::size_t bytes, StreamView stream) = 0;
  virtual void fill_zero(void* memory, std::size_t bytes, StreamView stream) = 0;
  /// Enqueues tasks that proceed together: none reads or writes what another one writes. One launch for as many as fit.
  /// @throws DeviceError, Unsupported  the task has no kernel
  virtual void launch(std::span<const DeviceTask> tasks, StreamView stream) = 0;
  /// Blocks until what is in `stream` is complete; lets others have the processor meanwhile. @throws DeviceError
  virtual void synchronize(StreamView stream) = 0;

  /// Loads the vendor's library if need be: from a thread that may be left behind. @throws DeviceError, Unsupported
  virtual DeviceGroupId make_group_id() = 0;
  /// Joins the group of this id. Blocks until all its ranks do: call it from a thread that may be left behind.
  /// @param size  at least 2   @throws DeviceError
  virtual std::unique_ptr<DeviceGroup> join_group(const DeviceGroupId& id, int rank, int size) = 0;
};

/// The devices of this process.
class DeviceRuntime {
 public:
  virtual ~DeviceRuntime() = default;
  virtual std::string_view name() const = 0;  ///< "CUDA"
  /// "driver 580.159 (CUDA 13.0), NCCL 2.28.9", for farandole-info. Ranks that differ in it are warned.
  virtual std::string version() const = 0;
  /// "NCCL 2.28.9": what must be the same on all ranks of a group.
  virtual std::string collectives_version() const = 0;
  /// Why collectives on devices can not be had although devices are there, with what to do about it; empty if they can:
  /// NCCL is missing, too old, or known to be bad.
  virtual std::string collectives_missing() const = 0;
  /// True if several ranks of a group may use one device: collectives are slow then, and for tests.
  virtual bool shares_devices() const = 0;
  /// Warnings about the versions that were found; shown once.
  virtual std::vector<std::string> warnings() const = 0;
  virtual std::vector<DeviceInfo> devices() const = 0;
  /// Opens a device; once per process, later calls give the same. @throws DeviceError, InvalidArgument  there is none
  /// of this number; names those that there are
  virtual Device& open(int ordinal) = 0;
  /// Where this address lies; host memory if the vendor does not know it. Does not block, does not throw.
  virtual MemorySpace space_of(const void* memory) const = 0;
};

/// What the library hands to a device plug-in.
struct DeviceHostApi {
  std::uint32_t size_bytes = sizeof(DeviceHostApi);
  const char* build_id = nullptr;
  const char* cuda_library = "";  ///< paths that settings name; empty: the loader's search
  const char* nccl_library = "";
};
/// The one function of a device plug-in, `farandole_device_v1`. Never throws. Returns null, and says why in `reason`,
/// if this machine has no devices for it or the size differs from its own. Beside it lies the text
/// `farandole_device_build_id`, as `farandole_backend_build_id` beside a backend.
using DeviceEntry = DeviceRuntime* (*)(const DeviceHostApi*, std::string* reason);

/// The devices of this process, or why there are none.
struct DeviceAvailability {
  DeviceRuntime* runtime = nullptr;  ///< lives until the process ends
  std::string reason;                ///< "no NVIDIA driver: libcuda.so.1 …"; empty if `runtime` is not null
};
/// Loads the plug-in once, which initialises the vendor's driver: that may take seconds, and forked children cannot use
/// devices then. Does not throw: what is missing is in `reason`. Thread-safe.
const DeviceAvailability& device_runtime(const Settings& settings);

}  // namespace FARANDOLE_API
