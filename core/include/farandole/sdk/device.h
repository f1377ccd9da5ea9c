// SPDX-License-Identifier: Apache-2.0
// Interface of a device plug-in: memory, streams, events, kernels and messages of accelerators, without a vendor's
// types.
//
// To support another vendor, implement DeviceRuntime (the devices of the process), Device (one device), DeviceGroup
// (the ranks of a communicator, each on its own device) and DeviceEvent, and export `farandole_device_v1`, see
// DeviceEntry. core/backends/cuda is the example, on CUDA's driver API and NCCL.
//
// All work on a device is enqueued in streams and is asynchronous to the host; a function blocks only where the comment
// says so.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "farandole/core/buffer.h"
#include "farandole/core/dtype.h"
#include "farandole/core/export.h"
#include "farandole/core/settings.h"
#include "farandole/core/stream.h"
#include "farandole/sdk/vendor_call.h"

namespace farandole FARANDOLE_API {

/// One device that this process can open.
struct DeviceInfo {
  int ordinal = 0;       ///< number among the devices that the process sees
  std::string name;      ///< "NVIDIA H100 80GB HBM3"
  std::string identity;  ///< unique to the device, and the same in every process of the machine: its UUID
  std::size_t memory_bytes = 0;
  int compute_capability = 0;  ///< 90 for 9.0
};

/// An element-wise operation on contiguous elements in the memory of a device; executed by a kernel.
struct DeviceTask {
  enum class Kind : std::uint8_t {
    kCopy,    ///< output = left; any type
    kReduce,  ///< output = left op right; same result as reduce() on the host
    kScale,   ///< output = left * factor; same result as scale() on the host
    /// output = left, converted to `output_dtype`: f16, bf16, f32 and f64 among each other; integers of 8 and 16 bits
    /// to i32 and back, i32 and u32 to i64 and back, saturated at the limits of the narrower type
    kCast,
    /// output = left, of `dtype` f32 or f64, mapped to signed integers of the same size, so that the minimum or maximum
    /// (`op`) of the integers stands for the minimum or maximum of the values; any NaN wins against any number
    kOrder,
    kRestore,  ///< the reverse of kOrder; `dtype` is the type of the values
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

  /// output = left * factor; a copy if `factor` is 1.
  static DeviceTask scale(DType dtype, void* output, const void* left, std::size_t count, double factor = 1.0) {
    const Kind kind = factor == 1.0 ? Kind::kCopy : Kind::kScale;
    return {kind, dtype, dtype, ReduceOp::kSum, output, left, nullptr, count, factor};
  }
};

/// A send to, or receive from, a peer of a DeviceGroup.
struct DeviceMessage {
  enum class Kind : std::uint8_t { kSend, kReceive };
  Kind kind = Kind::kSend;
  int peer = 0;  ///< rank in the group
  void* data = nullptr;
  std::size_t bytes = 0;
};

/// True for the collectives that a DeviceGroup can run by itself: all but gather, scatter and barrier.
/// DeviceGroup::supports says for which types and reductions.
inline bool has_device_collective(Collective collective) {
  return collective != Collective::kGather && collective != Collective::kScatter && collective != Collective::kBarrier;
}

/// An event recorded in a stream, on which other streams and the host can wait. May be destroyed while streams still
/// wait for the event.
class DeviceEvent {
 public:
  enum class Use : std::uint8_t {
    kStreams,  ///< streams wait for the event
    kHost,     ///< the host waits, too: `is_complete` is called often, and should avoid calls of the driver
    kTiming,   ///< the device notes when the event completes, see Device::elapsed
  };
  virtual ~DeviceEvent() = default;
  /// True once all work that was in the stream when the event was recorded is complete; true for an event that was
  /// never recorded. Non-blocking; not thread-safe. @throws DeviceError  the device has failed
  virtual bool is_complete() = 0;
  /// The vendor's event (`cudaEvent_t`), for the program's own waits. Owned by this object.
  virtual void* handle() const = 0;
};

/// Work that was recorded from a stream (Device::end_capture), and that a stream can run again and again. The memory
/// that the work uses must stay where it is. Destroy a graph once its runs have ended. Not thread-safe.
class DeviceGraph {
 public:
  virtual ~DeviceGraph() = default;
  /// Enqueues all of the work. @throws DeviceError
  virtual void launch(StreamView stream) = 0;
};

/// The ranks of a communicator, each with its own device (for NVIDIA: an NCCL communicator). Not thread-safe, except
/// where stated.
///
/// Functions that enqueue block the host only as long as the vendor's own calls do. Destruction without `abort` may
/// block until all ranks of the group destroy their objects.
class DeviceGroup {
 public:
  virtual ~DeviceGroup() = default;
  /// Enqueues messages that proceed at the same time: no message waits for another message of the same call. Messages
  /// between the same two ranks match in order. No-op if `messages` is empty. @throws DeviceError
  virtual void exchange(std::span<const DeviceMessage> messages, StreamView stream) = 0;
  /// True if `run` supports this collective.
  virtual bool supports(Collective collective, DType dtype, ReduceOp op) const = 0;
  /// True if `run` multiplies each rank's input by this VendorCall::factor without a further pass over the data, and
  /// the elements' type holds the factor exactly (f32 and f64: to its last digit). Since the products are rounded
  /// before the sum, results may differ from those of scale() in the last digit.
  virtual bool scales(DType dtype, ReduceOp op, double factor) const = 0;
  /// Enqueues the vendor's own collective. An alltoall is never in place.
  /// @throws DeviceError   @throws Unsupported  see `supports`
  virtual void run(const VendorCall& call, StreamView stream) = 0;
  /// Connects to all peers, in both directions; no-op if connected. Blocks until all ranks call it. @throws DeviceError
  virtual void connect(StreamView stream) = 0;
  /// Description of an error that occurred outside all calls of this object; empty if there was none. Thread-safe.
  virtual std::string asynchronous_error() = 0;
  /// Ends this rank's pending work of the group. If another thread stays in a call of the group for more than a second,
  /// `abort` gives up: the memory that the call uses is never freed, and the streams stay blocked until the process
  /// ends. No other function may be called afterwards. May block forever: call from a thread that may be abandoned.
  /// Thread-safe.
  virtual void abort() = 0;
};

/// Identifies a group that is being made. One rank makes the id (Device::make_group_id) and sends the id to the other
/// ranks in host messages; then all ranks join with the id (Device::join_group).
using DeviceGroupId = std::array<std::byte, 128>;

/// A device that this process has opened. Thread-safe unless stated otherwise. Memory, streams and events must not
/// outlive their device.
///
/// Calls that may block in the driver (memory, loading a library, joining a group) must be made from a thread that may
/// be abandoned when the driver does not return; Farandole makes them from DeviceThread.
///
///     const StreamView stream = device.make_stream();
///     const auto done = device.make_event(DeviceEvent::Use::kHost);
///     device.copy(memory, data, bytes, stream);
///     device.launch(tasks, stream);      // after the copy
///     device.record(*done, stream);
///     while (!done->is_complete()) …     // the host does something else
class Device {
 public:
  virtual ~Device() = default;
  virtual const DeviceInfo& info() const = 0;
  MemorySpace space() const { return {MemoryKind::kCuda, static_cast<std::uint16_t>(info().ordinal)}; }
  /// Makes this the current device of the calling thread, for good. Optional: every other function makes the device
  /// current and restores the thread's device afterwards. Both are no-ops in a bound thread.
  virtual void bind_thread() = 0;
  /// Runs `calls` with this as the current device of the calling thread, and restores the thread's device. For
  /// libraries that ask the vendor for the current device, as MPI does. Passes exceptions of `calls` on.
  virtual void run_bound(const std::function<void()>& calls) = 0;

  /// Allocates uninitialised memory of the device, aligned to 256 bytes, from a pool that keeps released memory. If the
  /// driver has no memory left, the pool returns kept memory to the driver after all streams of `make_stream` have
  /// become idle. That wait, and every call that grows the pool, may block forever: call from a thread that may be
  /// abandoned.
  /// @throws DeviceError  not enough memory; says how much was requested and how much is free
  virtual void* allocate(std::size_t bytes) = 0;
  /// Returns memory to the pool. @param memory  not used by work that is still in a stream
  virtual void release(void* memory) = 0;
  /// Allocates host memory that the device can read and write directly (pinned). Blocks as `allocate` does. @throws
  /// DeviceError
  virtual void* allocate_pinned(std::size_t bytes) = 0;
  virtual void release_pinned(void* memory) = 0;
  /// Gives all memory that the pools keep, pinned memory included, back to the driver, once all streams of
  /// `make_stream` are idle. Returns the number of bytes given back. The program's streams must be idle, too: the
  /// driver may otherwise block all threads of the process until these streams are idle. Blocks as `allocate` does.
  /// @throws DeviceError
  virtual std::size_t trim() = 0;

  /// Makes a stream that does not synchronise with any other stream, the default stream included. Owned by the device
  /// until `release_stream`, or until the process ends.
  virtual StreamView make_stream() = 0;
  /// Destroys a stream of `make_stream`. Work that is still in the stream runs to its end. Non-blocking.
  /// @param stream  not used afterwards, and in no capture   @throws DeviceError
  virtual void release_stream(StreamView stream) = 0;
  /// True while the program captures the stream into a graph, so that work is recorded and not run. Never throws.
  virtual bool is_capturing(StreamView stream) = 0;
  /// Records what is enqueued in `stream` from now on instead of running it, until `end_capture`. Meanwhile the calling
  /// thread must not wait for the stream. @param stream  one of `make_stream`   @throws DeviceError
  virtual void begin_capture(StreamView stream) = 0;
  /// Ends the recording. Called by the thread that began it. @throws DeviceError  something that cannot be recorded was
  /// called meanwhile; the recording has ended, too
  virtual std::unique_ptr<DeviceGraph> end_capture(StreamView stream) = 0;
  virtual std::unique_ptr<DeviceEvent> make_event(DeviceEvent::Use use) = 0;
  /// Records `event` after the work that is in `stream`. @throws DeviceError
  virtual void record(DeviceEvent& event, StreamView stream) = 0;
  /// Makes work that is enqueued in `stream` from now on wait for `event`, as last recorded. @param event  has been
  /// recorded   @throws DeviceError
  virtual void wait(StreamView stream, DeviceEvent& event) = 0;
  /// As above, for an event of the program (`cudaEvent_t`), which the program has recorded. @throws DeviceError
  virtual void wait_for_handle(StreamView stream, void* event) = 0;
  /// Time from the completion of `begin` to that of `end`, by the device's clock. Non-blocking.
  /// @param begin, end  of Use::kTiming, last recorded outside of captures, and complete   @throws DeviceError
  virtual Seconds elapsed(const DeviceEvent& begin, const DeviceEvent& end) = 0;
  /// Enqueues a write of `value` to a word of pinned memory, after the earlier work of `stream`. The host reads the
  /// word to detect the end of that work without a call of the driver. If the stream is captured, the graph gets the
  /// write, and each replay writes. Returns false, with nothing enqueued, if the device cannot write words (or not from
  /// a graph).
  /// @throws DeviceError
  virtual bool write_word(std::uint32_t* word, std::uint32_t value, StreamView stream) = 0;
  /// Enqueues a copy. `output` and `input` may each be host memory or device memory. @throws DeviceError
  virtual void copy(void* output, const void* input, std::size_t bytes, StreamView stream) = 0;
  /// Enqueues a write of zeros. @throws DeviceError
  virtual void fill_zero(void* memory, std::size_t bytes, StreamView stream) = 0;
  /// Enqueues tasks that may run at the same time: no task reads or writes memory that another task writes. Combines as
  /// many tasks as possible in a launch. @throws DeviceError   @throws Unsupported  no kernel exists for a task
  virtual void launch(std::span<const DeviceTask> tasks, StreamView stream) = 0;
  /// Blocks until all work in `stream` is complete; yields the processor meanwhile. @throws DeviceError
  virtual void synchronize(StreamView stream) = 0;

  /// Makes an id for `join_group`. May load the vendor's library: call from a thread that may be abandoned. @throws
  /// DeviceError, Unsupported
  virtual DeviceGroupId make_group_id() = 0;
  /// Joins the group with this id. Blocks until all ranks of the group join: call from a thread that may be abandoned.
  /// @param size  at least 2   @throws DeviceError
  virtual std::unique_ptr<DeviceGroup> join_group(const DeviceGroupId& id, int rank, int size) = 0;
};

/// The devices of this process, and the versions of the vendor's libraries. Thread-safe.
class DeviceRuntime {
 public:
  virtual ~DeviceRuntime() = default;
  virtual std::string_view name() const = 0;  ///< "CUDA"
  /// "driver 580.159 (CUDA 13.0), NCCL 2.28.9", for farandole-info. If ranks differ in this text, a warning is logged.
  virtual std::string version() const = 0;
  /// "NCCL 2.28.9": the part of the version that must be the same on all ranks of a group.
  virtual std::string collectives_version() const = 0;
  /// Empty if devices can run collectives; else the reason why they cannot, with a remedy: NCCL is missing, too old, or
  /// known to be broken.
  virtual std::string collectives_missing() const = 0;
  /// True if several ranks of a group may use the same device. Collectives are slow then; for tests.
  virtual bool shares_devices() const = 0;
  /// Warnings about the versions that were found. The caller logs them once.
  virtual std::vector<std::string> warnings() const = 0;
  virtual std::vector<DeviceInfo> devices() const = 0;
  /// Opens a device; later calls return the same object.
  /// @throws InvalidArgument  there is no such device; lists the devices that exist   @throws DeviceError
  virtual Device& open(int ordinal) = 0;
  /// Returns the memory space of an address: host memory if the vendor does not know the address. Non-blocking; never
  /// throws.
  virtual MemorySpace space_of(const void* memory) const = 0;
};

/// Passed to a device plug-in by the loading library.
struct DeviceHostApi {
  std::uint32_t size_bytes = sizeof(DeviceHostApi);
  const char* build_id = nullptr;
  const char* cuda_library = "";  ///< path from FARANDOLE_CUDA_LIBRARY; empty: the loader's search
  const char* nccl_library = "";  ///< path from FARANDOLE_NCCL_LIBRARY; empty: searched for
};
/// Type of `farandole_device_v1`, the only function that a device plug-in exports. Never throws. Returns null and sets
/// `reason` if this machine has no usable device; returns null if DeviceHostApi::size_bytes differs from the plug-in's
/// own size.
///
/// The plug-in also exports the text `farandole_device_build_id`, which serves as `farandole_backend_build_id` does for
/// a backend, see BackendEntry.
using DeviceEntry = DeviceRuntime* (*)(const DeviceHostApi*, std::string* reason);

/// The devices of this process, or the reason why there are none.
struct DeviceAvailability {
  DeviceRuntime* runtime = nullptr;  ///< null if there are no devices; lives until the process ends
  std::string reason;                ///< "no NVIDIA driver: libcuda.so.1 …"; empty if `runtime` is not null
};
/// Returns the devices of this process. The first call loads the plug-in, which initialises the vendor's driver: that
/// may take seconds, and children forked afterwards cannot use devices. Never throws; problems are described in
/// `reason`. Thread-safe.
const DeviceAvailability& device_runtime(const Settings& settings);
/// Names of the plug-ins for devices that `device_runtime` can find: "cuda", or none. Loads nothing.
std::vector<std::string> available_device_plugins(const Settings& settings);

}  // namespace FARANDOLE_API
