// SPDX-License-Identifier: Apache-2.0
#include "farandole/internal/flight_recorder.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "farandole/internal/choice.h"

namespace farandole {
namespace {

constexpr Words<5> kStageWords{"queued", "checking", "running", "done", "failed"};

double seconds(Clock::duration duration) {
  return std::chrono::duration<double>(duration).count();
}

}  // namespace

FlightRecorder::Id FlightRecorder::add(const FlightRecord& record) {
  const std::lock_guard lock(mutex_);
  ring_[next_ % kCapacity] = record;
  return next_++;
}

FlightRecorder::Id FlightRecorder::begin(std::uint16_t communicator, std::uint64_t sequence,
                                         const FlightSubject& what) {
  return add({communicator, sequence, what, FlightRecord::Stage::kQueued, Clock::now(), {}});
}

FlightRecorder::Id FlightRecorder::begin_inline(std::uint16_t communicator, std::uint64_t sequence,
                                                const FlightSubject& what) {
  return add({communicator, sequence, what, FlightRecord::Stage::kRunning, coarse_now(), {}});
}

void FlightRecorder::mark(Id id, FlightRecord::Stage stage) {
  const std::lock_guard lock(mutex_);
  if (id >= next_ || next_ - id > kCapacity) return;
  FlightRecord& record = ring_[id % kCapacity];
  record.stage = stage;
  if (stage == FlightRecord::Stage::kDone || stage == FlightRecord::Stage::kFailed) record.finished = Clock::now();
}

std::vector<FlightRecord> FlightRecorder::records() const {
  const std::lock_guard lock(mutex_);
  std::vector<FlightRecord> result;
  for (Id id = next_ - std::min<Id>(next_, kCapacity); id < next_; ++id) {
    FlightRecord& record = result.emplace_back(ring_[id % kCapacity]);
    if (finished_inline_[id % kCapacity].load(std::memory_order_relaxed) != id + 1) continue;
    record.stage = FlightRecord::Stage::kDone;
    record.finished = record.queued;
  }
  return result;
}

std::string FlightRecorder::to_json_lines() const {
  const Clock::time_point now = Clock::now();
  std::string lines;
  for (const FlightRecord& record : records()) {
    nlohmann::ordered_json line{{"communicator", record.communicator},
                                {"sequence", record.sequence},
                                {"what", record.what.describe(record.what.words)},
                                {"stage", word_of(record.stage, kStageWords)},
                                {"age_s", seconds(now - record.queued)},
                                {"duration_s", nullptr}};
    if (record.finished != Clock::time_point{}) line["duration_s"] = seconds(record.finished - record.queued);
    // A description may contain a name in any encoding: invalid bytes are replaced.
    lines += line.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
  }
  return lines;
}

}  // namespace farandole
