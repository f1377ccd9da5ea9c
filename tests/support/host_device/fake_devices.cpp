// SPDX-License-Identifier: Apache-2.0
#include "fake_devices.h"

#include <algorithm>
#include <cstdlib>
#include <sstream>
#include <string>
#include <utility>

#include "fake_driver_lock.h"
#include "fake_graphs.h"
#include "fake_options.h"

namespace farandole::fake {

namespace {

// Reads CUDA_VISIBLE_DEVICES. As in CUDA, the list ends before the first entry that is not a device.
std::vector<int> visible_devices() {
  std::vector<int> visible;
  const auto count = static_cast<int>(option(Option::kCount));
  const char* const list = std::getenv("CUDA_VISIBLE_DEVICES");
  if (list == nullptr) {
    for (int device = 0; device < count; ++device) visible.push_back(device);
    return visible;
  }
  std::istringstream entries(list);
  for (std::string entry; std::getline(entries, entry, ',');) {
    char* end = nullptr;
    const auto device = static_cast<int>(std::strtol(entry.c_str(), &end, 10));
    if (end == entry.c_str() || device < 0 || device >= count) break;
    visible.push_back(device);
  }
  return visible;
}

}  // namespace

Stream& Device::make_stream(bool is_blocking) {
  const std::lock_guard guard(order_mutex_);
  return add_stream(is_blocking);
}

Stream& Device::add_stream(bool is_blocking) {
  return *streams_.emplace_back(std::make_unique<Stream>(*this, static_cast<unsigned>(streams_.size()), is_blocking));
}

Stream& Device::legacy_stream() {
  const std::lock_guard guard(order_mutex_);
  if (legacy_.load(std::memory_order_relaxed) == nullptr) {
    legacy_.store(&add_stream(/*is_blocking=*/false), std::memory_order_relaxed);
  }
  return *legacy_.load(std::memory_order_relaxed);
}

void Device::enqueue(Stream& stream, Item item) {
  if (Capture* const capture = stream.capture()) return capture->add(stream, std::move(item));
  Stream* const legacy = legacy_.load(std::memory_order_relaxed);
  // The legacy default stream's rule does not apply to most streams, which must not share its lock.
  if (!stream.is_blocking && &stream != legacy) return stream.push(std::move(item));
  const std::lock_guard guard(order_mutex_);
  if (&stream == legacy) {
    for (const auto& other : streams_) {
      if (other->is_blocking) item.after.push_back({other.get(), other->pushed()});
    }
  } else if (Stream* const now = legacy_.load(std::memory_order_relaxed)) {
    item.after.push_back({now, now->pushed()});
  }
  stream.push(std::move(item));
}

std::vector<Stream*> Device::all_streams() {
  const std::lock_guard guard(order_mutex_);
  std::vector<Stream*> streams;
  for (const auto& stream : streams_) streams.push_back(stream.get());
  return streams;
}

Capture* Device::capture_of_blocking_stream() {
  if (active_captures() == 0) return nullptr;
  for (const Stream* const stream : all_streams()) {
    if (Capture* const capture = stream->is_blocking ? stream->capture() : nullptr) return capture;
  }
  return nullptr;
}

void Device::synchronize() {
  const DriverWait wait;
  for (const Stream* const stream : all_streams()) stream->wait(stream->pushed());
}

bool Device::take_memory(std::size_t bytes) {
  const auto capacity = static_cast<std::size_t>(option(Option::kMemory));
  std::size_t used = used_bytes_.load(std::memory_order_relaxed);
  do {
    if (bytes > capacity || used > capacity - bytes) return false;
  } while (!used_bytes_.compare_exchange_weak(used, used + bytes, std::memory_order_relaxed));
  return true;
}

const std::vector<std::unique_ptr<Device>>& devices() {
  static const auto* const all = [] {
    auto* const list = new std::vector<std::unique_ptr<Device>>;  // streams use them until the process ends
    for (const int physical : visible_devices()) {
      list->push_back(std::make_unique<Device>(static_cast<int>(list->size()), physical));
    }
    return list;
  }();
  return *all;
}

Device* device_of(int ordinal) {
  const bool is_one = ordinal >= 0 && ordinal < static_cast<int>(devices().size());
  return is_one ? devices()[static_cast<std::size_t>(ordinal)].get() : nullptr;
}

Device*& current_device() {
  thread_local Device* device = nullptr;
  return device;
}

Device* device_of(cuda::CUcontext context) {
  const auto found = std::find_if(devices().begin(), devices().end(), [context](const auto& device) {
    return reinterpret_cast<cuda::CUcontext>(device.get()) == context;
  });
  return found == devices().end() ? nullptr : found->get();
}

Stream* stream_of(cuda::CUstream handle, Device& device) {
  // cuda.h has a second handle for the legacy stream, CU_STREAM_LEGACY (1). Handle 2 is the thread's own default
  // stream, which the double lacks.
  constexpr std::uintptr_t kLegacy = 1;
  const auto number = reinterpret_cast<std::uintptr_t>(handle);
  if (number <= kLegacy) return &device.legacy_stream();
  auto* const stream = reinterpret_cast<Stream*>(handle);
  return number % alignof(Stream) == 0 && stream->is(Handle::Kind::kStream) ? stream : nullptr;
}

}  // namespace farandole::fake
