// SPDX-License-Identifier: Apache-2.0
// Direct calls on their way from the thread that makes them to the thread that watches them.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <thread>

#include "farandole/internal/deadline.h"
#include "farandole/internal/flight_recorder.h"
#include "farandole/sdk/device.h"
#include "operation/call.h"

namespace farandole {

/// Ring of the direct calls of one communicator, numbered from 1. One thread writes, one other thread reads. Neither
/// wakes the other; the writer waits only if kCapacity calls have not ended on the device.
class DirectLog {
 public:
  static constexpr std::size_t kCapacity = 2048;

  /// A call that has not ended.
  struct Pending {
    std::uint64_t number = 0;
    Clock::time_point since;
  };

  /// Makes all events, so that no call makes one.
  explicit DirectLog(Device& device) {
    for (Entry& entry : entries_) entry.event = device.make_event(DeviceEvent::Use::kStreams);
  }

  // The writer.
  /// Publishes that the writer is about to enqueue its next call. Returns the call's number.
  /// @param check_faults  called while the log is full: after a fault the reader gives up no calls. May throw.
  template <class CheckFaults>
  std::uint64_t begin(const CheckFaults& check_faults) {
    const std::uint64_t head = head_.load(std::memory_order_relaxed);
    while (head - ended_.load(std::memory_order_acquire) == kCapacity) {
      check_faults();
      std::this_thread::yield();
    }
    entered_at_.store(Clock::now(), std::memory_order_relaxed);
    is_inside_.store(true, std::memory_order_release);
    return head + 1;
  }
  /// Publishes that the writer has left the vendor's library without enqueuing the call.
  void cancel() { is_inside_.store(false, std::memory_order_release); }
  /// Adds the call, which has been enqueued. @param stream  of the call; null if the call was captured into a graph,
  /// whose end on the device cannot be seen here
  void end(const Descriptor& descriptor, FlightRecorder::Id record, Device& device, const StreamView* stream) {
    const std::uint64_t head = head_.load(std::memory_order_relaxed);
    Entry& entry = entries_[head % kCapacity];
    entry.descriptor = descriptor;
    entry.record = record;
    entry.since = entered_at_.load(std::memory_order_relaxed);
    entry.has_event = stream != nullptr;
    if (stream != nullptr) device.record(*entry.event, *stream);
    is_inside_.store(false, std::memory_order_relaxed);
    head_.store(head + 1, std::memory_order_release);
  }

  // The reader.
  /// Number of calls that were enqueued.
  std::uint64_t count() const { return head_.load(std::memory_order_acquire); }
  /// Descriptor of a call that has not been given up by `advance`.
  const Descriptor& descriptor(std::uint64_t number) const { return entries_[(number - 1) % kCapacity].descriptor; }
  /// Gives up the calls that have ended on the device, at most those up to number `last`, and calls `ended` with the
  /// record of each. Returns the oldest call that has not ended.
  /// @throws DeviceError  the device has failed
  template <class Ended>
  std::optional<Pending> advance(std::uint64_t last, const Ended& ended) {
    for (std::uint64_t number = ended_.load(std::memory_order_relaxed) + 1; number <= last; ++number) {
      const Entry& entry = entries_[(number - 1) % kCapacity];
      if (entry.has_event && !entry.event->is_complete()) return Pending{number, entry.since};
      ended(entry.record);
      ended_.store(number, std::memory_order_release);
    }
    return std::nullopt;
  }
  /// Number of the last call that has ended.
  std::uint64_t ended() const { return ended_.load(std::memory_order_acquire); }
  /// The call that the writer is enqueuing: it is inside the vendor's library.
  std::optional<Pending> being_enqueued() const {
    if (!is_inside_.load(std::memory_order_acquire)) return std::nullopt;
    return Pending{head_.load(std::memory_order_relaxed) + 1, entered_at_.load(std::memory_order_relaxed)};
  }

 private:
  struct Entry {
    Descriptor descriptor;
    FlightRecorder::Id record = 0;
    Clock::time_point since;
    bool has_event = false;
    std::unique_ptr<DeviceEvent> event;
  };
  std::array<Entry, kCapacity> entries_;  // the writer's until head_ passes, then the reader's until ended_ passes
  alignas(64) std::atomic<std::uint64_t> head_{0};
  std::atomic<bool> is_inside_{false};
  std::atomic<Clock::time_point> entered_at_{Clock::time_point{}};
  alignas(64) std::atomic<std::uint64_t> ended_{0};
};

}  // namespace farandole
