// SPDX-License-Identifier: Apache-2.0
// The flight recorder: the last 1024 collectives of a rank, written out on a fault.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "farandole/core/export.h"
#include "farandole/internal/deadline.h"

namespace farandole FARANDOLE_API {

/// What a collective was, in a form that costs nothing until somebody reads it.
struct FlightSubject {
  using Words = std::array<std::uint64_t, 3>;
  Words words{};
  std::string (*describe)(const Words&) = nullptr;  ///< e.g. "allreduce of 1024 f32 elements, sum, ring"
};

/// One collective as one rank saw it.
struct FlightRecord {
  enum class Stage : std::uint8_t { kQueued, kChecking, kRunning, kDone, kFailed };
  std::uint16_t communicator = 0;
  std::uint64_t sequence = 0;
  FlightSubject what;
  Stage stage = Stage::kQueued;
  Clock::time_point queued{}, finished{};
};

/// Keeps the newest records of one rank. Thread-safe.
class FlightRecorder {
 public:
  static constexpr std::size_t kCapacity = 1024;
  using Id = std::uint64_t;

  Id begin(std::uint16_t communicator, std::uint64_t sequence, const FlightSubject& what);
  /// The same for a collective that may be over within a microsecond: it is running, and the time is a few milliseconds
  /// old at most.
  Id begin_inline(std::uint16_t communicator, std::uint64_t sequence, const FlightSubject& what);
  /// Marks as done what `begin_inline` has begun: a store. Such a record has no duration.
  void finish_inline(Id id) { finished_inline_[id % kCapacity].store(id + 1, std::memory_order_relaxed); }
  /// Ignored when the record has been overwritten.
  void mark(Id id, FlightRecord::Stage stage);
  /// Oldest first.
  std::vector<FlightRecord> records() const;
  /// JSON lines, oldest first: communicator, sequence, what, stage, age_s, duration_s.
  std::string to_json_lines() const;

 private:
  Id add(const FlightRecord& record);

  std::array<std::atomic<Id>, kCapacity> finished_inline_{};  // 1 + id of the record there, once done; orders nothing
  mutable std::mutex mutex_;                                  // guards what follows
  std::array<FlightRecord, kCapacity> ring_;
  Id next_ = 0;
};

}  // namespace FARANDOLE_API
