// SPDX-License-Identifier: Apache-2.0
// The devices of the double, and the current device of each thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "cuda/cuda_api.h"
#include "fake_streams.h"

namespace farandole::fake {

/// A device. Lives until the process ends. The handle of its primary context is the device's address.
class Device {
 public:
  Device(int ordinal_here, int number_in_machine) : ordinal(ordinal_here), physical(number_in_machine) {}
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;
  const int ordinal;   ///< number among the devices that the process sees
  const int physical;  ///< number among the devices of the machine; the UUID is made from it

  Stream& make_stream(bool is_blocking);
  Stream& legacy_stream();
  /// Appends an item to a stream of this device, ordered as the legacy default stream requires; or to the graph into
  /// which the stream is captured.
  void enqueue(Stream& stream, Item item);
  /// Returns the capture of a blocking stream, for which the legacy default stream would wait; null if there is none.
  Capture* capture_of_blocking_stream();
  /// Blocks until all work in the device's streams is complete.
  void synchronize();

  /// Reserves memory. Returns false if less than `bytes` bytes are free.
  bool take_memory(std::size_t bytes);
  void give_memory(std::size_t bytes) { used_bytes_.fetch_sub(bytes, std::memory_order_relaxed); }
  std::size_t used_bytes() const { return used_bytes_.load(std::memory_order_relaxed); }

 private:
  std::vector<Stream*> all_streams();
  Stream& add_stream(bool is_blocking);

  std::mutex order_mutex_;  // guards the streams, and orders enqueues on blocking streams and the legacy stream
  std::vector<std::unique_ptr<Stream>> streams_;
  std::atomic<Stream*> legacy_{nullptr};
  std::atomic<std::size_t> used_bytes_{0};
};

/// Returns all devices that this process sees.
const std::vector<std::unique_ptr<Device>>& devices();
/// Returns the device of this number; null if there is none.
Device* device_of(int ordinal);
/// The device whose context is current on this thread; null if there is none.
Device*& current_device();
/// Returns the device of a context; null if the handle is not a context's, or is null.
Device* device_of(cuda::CUcontext context);
/// Returns the stream of a handle; null if the handle is not a stream's. @param device  current device, whose legacy
/// default stream the null handle denotes
Stream* stream_of(cuda::CUstream handle, Device& device);

}  // namespace farandole::fake
