// SPDX-License-Identifier: Apache-2.0
// The devices of the double, and which is current.
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

/// Lives until the process ends. Its address is also that of its primary context.
class Device {
 public:
  Device(int ordinal_here, int number_in_machine) : ordinal(ordinal_here), physical(number_in_machine) {}
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;
  const int ordinal;   ///< among those that the process sees
  const int physical;  ///< among those of the machine: what the UUID is made of

  Stream& make_stream(bool is_blocking);
  Stream& legacy_stream();
  /// Appends an item to a stream of this device, in the order that the legacy default stream asks for; or to the graph
  /// that the stream is captured into.
  void enqueue(Stream& stream, Item item);
  /// The capture of a stream that the legacy one waits for; null if there is none.
  Capture* capture_of_blocking_stream();
  /// Waits for everything that is in its streams.
  void synchronize();

  /// False if so many bytes are not free.
  bool take_memory(std::size_t bytes);
  void give_memory(std::size_t bytes) { used_bytes_.fetch_sub(bytes, std::memory_order_relaxed); }
  std::size_t used_bytes() const { return used_bytes_.load(std::memory_order_relaxed); }

 private:
  std::vector<Stream*> all_streams();
  Stream& add_stream(bool is_blocking);

  std::mutex order_mutex_;  // guards the streams; what is enqueued on blocking streams and on the legacy one is ordered
  std::vector<std::unique_ptr<Stream>> streams_;
  std::atomic<Stream*> legacy_{nullptr};
  std::atomic<std::size_t> used_bytes_{0};
};

/// All that this process sees.
const std::vector<std::unique_ptr<Device>>& devices();
/// Null if there is none of this number.
Device* device_of(int ordinal);
/// The device whose context is current on this thread; null if none is.
Device*& current_device();
/// Null if the handle is none of a context. The null handle is none.
Device* device_of(cuda::CUcontext context);
/// The stream of a handle, seen from `device`; null if it is none.
Stream* stream_of(cuda::CUstream handle, Device& device);

}  // namespace farandole::fake
