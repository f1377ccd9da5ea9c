// SPDX-License-Identifier: Apache-2.0
// Queue of direct calls from the thread that makes them to the thread that watches them.
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

/// Tells which direct calls of a communicator have ended on the device. Thread-safe.
class CallEnds {
 public:
  static constexpr std::size_t kCapacity = 2048;
  static constexpr std::size_t kWordBytes = kCapacity * sizeof(std::uint32_t);

  /// @param words  kWordBytes of pinned memory, filled with zeros
  explicit CallEnds(DeviceScratch words) : words_(std::move(words)) {}
  /// The word to which the stream of a call writes the call's number.
  std::uint32_t* word(std::uint64_t number) const {
    return static_cast<std::uint32_t*>(words_.get()) + (number - 1) % kCapacity;
  }
  /// True if the stream of the call has written the call's number.
  bool is_written(std::uint64_t number) const {
    return std::atomic_ref<std::uint32_t>(*word(number)).load(std::memory_order_acquire) ==
           static_cast<std::uint32_t>(number);
  }
  /// True if call `number` and all calls before it have ended. A call that writes no word (in a graph, or on a device
  /// that cannot write words) counts as ended once the log has released it.
  bool include(std::uint64_t number) const {
    for (std::uint64_t each = released() + 1; each <= number; ++each) {
      if (!is_written(each) && each > released()) return false;
    }
    return true;
  }
  /// Number of the last call that the log has released.
  std::uint64_t released() const { return released_.load(std::memory_order_acquire); }
  void set_released(std::uint64_t number) { released_.store(number, std::memory_order_release); }

 private:
  const DeviceScratch words_;
  alignas(64) std::atomic<std::uint64_t> released_{0};
};

/// Ring buffer of one communicator's direct calls, numbered from 1. The single writer is the thread that makes the
/// calls. The single reader is the watch thread or, at the end, the thread that closes the watch. Neither wakes the
/// other. The writer waits only if the ring is full: the reader has not released the last kCapacity calls.
///
/// At the end of each call its stream writes the call's number to a word of pinned memory. So the reader need not call
/// the driver, which may block every caller while one of them waits for the device. If the device cannot write words,
/// an event takes the word's place.
class DirectLog {
 public:
  static constexpr std::size_t kCapacity = CallEnds::kCapacity;
  static constexpr std::size_t kWordBytes = CallEnds::kWordBytes;

  /// A call that has not ended on the device, or is still being enqueued.
  struct Pending {
    std::uint64_t number = 0;
    Clock::time_point since;
  };

  /// @param words  kWordBytes of pinned memory, filled with zeros
  explicit DirectLog(DeviceScratch words) : ends_(std::make_shared<CallEnds>(std::move(words))) {}

  // The writer.
  /// Publishes that the writer is about to enqueue its next call. Returns the call's number.
  /// @param check  called while the ring is full; its exceptions are passed on
  template <class Check>
  std::uint64_t begin(const Check& check) {
    const std::uint64_t head = head_.load(std::memory_order_relaxed);
    while (head - ends_->released() == kCapacity) {
      check();
      std::this_thread::yield();
    }
    entered_at_.store(Clock::now(), std::memory_order_relaxed);
    is_inside_.store(true, std::memory_order_release);
    return head + 1;
  }
  /// Ends `begin` for a call that failed to be enqueued. Parts of the call may be on the device, and their end cannot
  /// be observed, so `has_running` stays true from then on.
  void cancel() {
    has_lost_.store(true, std::memory_order_release);
    is_inside_.store(false, std::memory_order_release);
  }
  /// Adds the call that `begin` announced, once it is enqueued. @throws DeviceError
  /// @param stream  the call's stream; null if the call was captured into a graph. The call then counts as ended, and
  /// CapturedCalls observes its replays
  void end(const Descriptor& descriptor, FlightRecorder::Id record, Device& device, const StreamView* stream) {
    const std::uint64_t head = head_.load(std::memory_order_relaxed);
    Entry& entry = entries_[head % kCapacity];
    entry.descriptor = descriptor;
    entry.record = record;
    entry.since = entered_at_.load(std::memory_order_relaxed);
    entry.is_captured = stream == nullptr;
    if (stream != nullptr) mark_end(entry, head + 1, device, *stream);
    head_.store(head + 1, std::memory_order_release);
    is_inside_.store(false, std::memory_order_release);
  }

  /// True if a call has not ended on the device. Reads the words, so it is up to date; `ended` lags behind.
  bool has_running() const {
    const std::uint64_t head = head_.load(std::memory_order_relaxed);
    for (std::uint64_t number = ends_->released() + 1; number <= head; ++number) {
      if (!has_ended(entries_[(number - 1) % kCapacity], number)) return true;
    }
    return has_lost();
  }
  /// True if `cancel` was called. Thread-safe.
  bool has_lost() const { return has_lost_.load(std::memory_order_acquire); }

  // The reader.
  /// Number of the last call that was enqueued; 0 if there is none.
  std::uint64_t count() const { return head_.load(std::memory_order_acquire); }
  /// Descriptor of a call that `advance` has not released.
  const Descriptor& descriptor(std::uint64_t number) const { return entries_[(number - 1) % kCapacity].descriptor; }
  /// Releases, in order, the calls up to number `last` that have ended on the device, and calls `ended` with the record
  /// of each. Returns the oldest call up to `last` that has not ended; nothing if all have.
  /// @throws DeviceError  the device has failed, and cannot write words
  template <class Ended>
  std::optional<Pending> advance(std::uint64_t last, const Ended& ended) {
    for (std::uint64_t number = ends_->released() + 1; number <= last; ++number) {
      const Entry& entry = entries_[(number - 1) % kCapacity];
      if (!has_ended(entry, number)) return Pending{number, entry.since};
      has_captured_ = has_captured_ || entry.is_captured;
      ended(entry.record);
      ends_->set_released(number);
    }
    return std::nullopt;
  }
  /// Number of the last call that `advance` has released; 0 if there is none.
  std::uint64_t ended() const { return ends_->released(); }
  /// The ends of the calls. The caller may keep the result longer than the log.
  std::shared_ptr<const CallEnds> ends() const { return ends_; }
  /// True if `advance` has released a call that was captured into a graph, which may run at any time.
  bool has_captured() const { return has_captured_; }
  /// The call that the writer is enqueuing, which may block in the vendor's library; nothing if there is none.
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
  void mark_end(Entry& entry, std::uint64_t number, Device& device, StreamView stream) {
    if (entry.event == nullptr && device.write_word(ends_->word(number), static_cast<std::uint32_t>(number), stream)) {
      return;
    }
    if (entry.event == nullptr) entry.event = device.make_event(DeviceEvent::Use::kStreams);
    device.record(*entry.event, stream);
  }
  bool has_ended(const Entry& entry, std::uint64_t number) const {
    if (entry.is_captured) return true;
    if (entry.event != nullptr) return entry.event->is_complete();
    return ends_->is_written(number);
  }

  const std::shared_ptr<CallEnds> ends_;
  std::array<Entry, kCapacity> entries_;  // the writer's until head_ advances, then the reader's until released
  bool has_captured_ = false;             // used by the reader only
  alignas(64) std::atomic<std::uint64_t> head_{0};
  std::atomic<bool> is_inside_{false};
  std::atomic<bool> has_lost_{false};
  std::atomic<Clock::time_point> entered_at_{Clock::time_point{}};
};

}  // namespace farandole
