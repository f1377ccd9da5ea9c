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
#include <utility>

#include "device/device_scratch.h"
#include "farandole/internal/deadline.h"
#include "farandole/internal/flight_recorder.h"
#include "farandole/sdk/device.h"
#include "operation/call.h"

namespace farandole {

/// Ring of the direct calls of one communicator, numbered from 1. One thread writes, one other thread reads. Neither
/// wakes the other; the writer waits only if kCapacity calls have not ended on the device.
///
/// After each call its stream writes the call's number to a word of pinned memory, so that the reader calls no driver:
/// a driver may block each of its callers while one of them waits for the device.
class DirectLog {
 public:
  static constexpr std::size_t kCapacity = 2048;
  static constexpr std::size_t kWordBytes = kCapacity * sizeof(std::uint32_t);

  /// A call that has not ended.
  struct Pending {
    std::uint64_t number = 0;
    Clock::time_point since;
  };

  /// @param words  kWordBytes of pinned memory, filled with zeros
  explicit DirectLog(DeviceScratch words) : words_(std::move(words)) {}

  // The writer.
  /// Publishes that the writer is about to enqueue its next call. Returns the call's number.
  /// @param check  called while the ring is full; its exceptions are passed on
  template <class Check>
  std::uint64_t begin(const Check& check) {
    const std::uint64_t head = head_.load(std::memory_order_relaxed);
    while (head - ended_.load(std::memory_order_acquire) == kCapacity) {
      check();
      std::this_thread::yield();
    }
    entered_at_.store(Clock::now(), std::memory_order_relaxed);
    is_inside_.store(true, std::memory_order_release);
    return head + 1;
  }
  /// Publishes that the writer has left the vendor's library by an error: parts of the call may be on the device, and
  /// nobody will see their end.
  void cancel() {
    has_lost_.store(true, std::memory_order_release);
    is_inside_.store(false, std::memory_order_release);
  }
  /// Adds the call, which has been enqueued. @param stream  of the call; null if the call was captured into a graph,
  /// whose end on the device cannot be seen here   @throws DeviceError
  void end(const Descriptor& descriptor, FlightRecorder::Id record, Device& device, const StreamView* stream) {
    const std::uint64_t head = head_.load(std::memory_order_relaxed);
    Entry& entry = entries_[head % kCapacity];
    entry.descriptor = descriptor;
    entry.record = record;
    entry.since = entered_at_.load(std::memory_order_relaxed);
    entry.is_captured = stream == nullptr;
    if (stream != nullptr) mark_end(entry, head, device, *stream);
    head_.store(head + 1, std::memory_order_release);
    is_inside_.store(false, std::memory_order_release);
  }

  /// True if a call is on the device. Unlike `ended`, which the reader updates now and then, this is so at once.
  bool has_running() const {
    const std::uint64_t head = head_.load(std::memory_order_relaxed);
    for (std::uint64_t number = ended_.load(std::memory_order_acquire) + 1; number <= head; ++number) {
      if (!has_ended(entries_[(number - 1) % kCapacity], number)) return true;
    }
    return has_lost();
  }
  /// True if `cancel` was called. Thread-safe.
  bool has_lost() const { return has_lost_.load(std::memory_order_acquire); }

  // The reader.
  /// Number of calls that were enqueued.
  std::uint64_t count() const { return head_.load(std::memory_order_acquire); }
  /// Descriptor of a call that has not been given up by `advance`.
  const Descriptor& descriptor(std::uint64_t number) const { return entries_[(number - 1) % kCapacity].descriptor; }
  /// Gives up the calls that have ended on the device, at most those up to number `last`, and calls `ended` with the
  /// record of each. Returns the oldest call that has not ended.
  /// @throws DeviceError  the device has failed, and cannot write words
  template <class Ended>
  std::optional<Pending> advance(std::uint64_t last, const Ended& ended) {
    for (std::uint64_t number = ended_.load(std::memory_order_relaxed) + 1; number <= last; ++number) {
      const Entry& entry = entries_[(number - 1) % kCapacity];
      if (!has_ended(entry, number)) return Pending{number, entry.since};
      has_captured_ = has_captured_ || entry.is_captured;
      ended(entry.record);
      ended_.store(number, std::memory_order_release);
    }
    return std::nullopt;
  }
  /// Number of the last call that has ended.
  std::uint64_t ended() const { return ended_.load(std::memory_order_acquire); }
  /// True if calls were captured into graphs, which may run at any time.
  bool has_captured() const { return has_captured_; }
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
    bool is_captured = false;
    std::unique_ptr<DeviceEvent> event;  // only if the device cannot write words
  };
  std::uint32_t* word(std::uint64_t index) const {
    return static_cast<std::uint32_t*>(words_.get()) + index % kCapacity;
  }
  void mark_end(Entry& entry, std::uint64_t index, Device& device, StreamView stream) {
    if (entry.event == nullptr && device.write_word(word(index), static_cast<std::uint32_t>(index + 1), stream)) return;
    if (entry.event == nullptr) entry.event = device.make_event(DeviceEvent::Use::kStreams);
    device.record(*entry.event, stream);
  }
  bool has_ended(const Entry& entry, std::uint64_t number) const {
    if (entry.is_captured) return true;
    if (entry.event != nullptr) return entry.event->is_complete();
    const std::uint32_t written = std::atomic_ref<std::uint32_t>(*word(number - 1)).load(std::memory_order_acquire);
    return written == static_cast<std::uint32_t>(number);
  }

  const DeviceScratch words_;
  std::array<Entry, kCapacity> entries_;  // the writer's until head_ passes, then the reader's until ended_ passes
  bool has_captured_ = false;             // the reader's
  alignas(64) std::atomic<std::uint64_t> head_{0};
  std::atomic<bool> is_inside_{false};
  std::atomic<bool> has_lost_{false};
  std::atomic<Clock::time_point> entered_at_{Clock::time_point{}};
  alignas(64) std::atomic<std::uint64_t> ended_{0};
};

}  // namespace farandole
