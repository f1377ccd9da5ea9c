// SPDX-License-Identifier: Apache-2.0
#include "value_copies.h"

#include <chrono>
#include <cstring>
#include <exception>
#include <thread>
#include <utility>

#include "kernels/transfer.h"

namespace farandole::trainer {
namespace {

/// How often a thread that waits for the device asks. Short beside the time that a file takes.
constexpr std::chrono::microseconds kPause{200};

}  // namespace

ValueCopies::ValueCopies(const Execution& execution, std::vector<BufferView> vectors)
    : execution_(execution), vectors_(std::move(vectors)) {
  for (const BufferView& vector : vectors_) {
    if (execution.space().is_host() || vector.count == 0) {
      memory_.emplace_back(vector.count, vector.dtype);
    } else {
      Device& device = device_of(execution);
      memory_.emplace_back(device.allocate_pinned(vector.size_in_bytes()), vector.count, vector.dtype,
                           [this, &device](void* memory) {
                             if (!has_failed_) device.release_pinned(memory);
                           });
    }
    views_.push_back(memory_.back().view());
  }
  if (!execution.space().is_host()) event_ = device_of(execution).make_event(DeviceEvent::Use::kHost);
}

ValueCopies::~ValueCopies() {
  try {
    wait();
  } catch (const std::exception&) {
    has_failed_ = true;
  }
}

void ValueCopies::take() {
  for (std::size_t k = 0; k < vectors_.size(); ++k) {
    const std::size_t bytes = vectors_[k].size_in_bytes();
    if (bytes == 0) continue;
    if (on_device()) {
      device_of(execution_).copy(views_[k].data, vectors_[k].data, bytes, execution_.stream());
    } else {
      std::memcpy(views_[k].data, vectors_[k].data, bytes);
    }
  }
  if (on_device()) device_of(execution_).record(*event_, execution_.stream());
}

void ValueCopies::wait() {
  while (on_device() && !event_->is_complete()) std::this_thread::sleep_for(kPause);
}

void ValueCopies::put_back() {
  for (std::size_t k = 0; k < vectors_.size(); ++k) copy_now(execution_, vectors_[k], views_[k]);
}

}  // namespace farandole::trainer
