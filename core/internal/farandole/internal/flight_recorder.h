// SPDX-License-Identifier: Apache-2.0
// The flight recorder: keeps the last 1024 collectives of a rank, which are written to a file on a fault.
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

/// Description of a collective, formatted only when the record is read.
struct FlightSubject {
  using Words = std::array<std::uint64_t, 3>;
  Words words{};
  std::string (*describe)(const Words&) = nullptr;  ///< formats "allreduce of 1024 f32 elements, sum, ring"
};

/// A collective as seen by one rank.
struct FlightRecord {
  enum class Stage : std::uint8_t { kQueued, kChecking, kRunning, kDone, kFailed };
  std::uint16_t communicator = 0;
  std::uint64_t sequence = 0;
  FlightSubject what;
  Stage stage = Stage::kQueued;
  Clock::time_point queued{}, finished{};
};

/// Ring of the newest records of one rank. `begin` a record, `mark` its stages; records() reads them. Thread-safe.
class FlightRecorder {
 public:
  static constexpr std::size_t kCapacity = 1024;
  using Id = std::uint64_t;

  /// Adds a record in stage kQueued. @returns the id for `mark`
  Id begin(std::uint16_t communicator, std::uint64_t sequence, const FlightSubject& what);
  /// Adds a record in stage kRunning, for a collective that may complete within a microsecond. The record's time has a
  /// resolution of a few milliseconds.
  Id begin_inline(std::uint16_t communicator, std::uint64_t sequence, const FlightSubject& what);
  /// Marks a record of `begin_inline` as done. Costs a store; the record's duration stays 0.
  void finish_inline(Id id) { finished_inline_[id % kCapacity].store(id + 1, std::memory_order_relaxed); }
  /// Sets the stage of a record. No-op if the record has been overwritten.
  void mark(Id id, FlightRecord::Stage stage);
  /// Copies of all records, oldest first.
  std::vector<FlightRecord> records() const;
  /// The records as JSON lines, oldest first: communicator, sequence, what, stage, age_s, duration_s.
  std::string to_json_lines() const;

 private:
  Id add(const FlightRecord& record);

  std::array<std::atomic<Id>, kCapacity> finished_inline_{};  // 1 + id of the last inline record done; relaxed
  mutable std::mutex mutex_;                                  // guards the members below
  std::array<FlightRecord, kCapacity> ring_;
  Id next_ = 0;
};

}  // namespace FARANDOLE_API
