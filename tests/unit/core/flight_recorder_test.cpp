// SPDX-License-Identifier: Apache-2.0
#include "farandole/internal/flight_recorder.h"

#include <gtest/gtest.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

namespace farandole {
namespace {

using Stage = FlightRecord::Stage;

std::vector<nlohmann::json> parse_lines(const std::string& text) {
  std::vector<nlohmann::json> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(nlohmann::json::parse(line));
  return lines;
}

FlightSubject text(const char* literal) {
  return {{reinterpret_cast<std::uint64_t>(literal)}, [](const FlightSubject::Words& words) {
            return std::string(reinterpret_cast<const char*>(words[0]));  // NOLINT(performance-no-int-to-ptr)
          }};
}

TEST(FlightRecorder, KeepsStagesAndTimes) {
  const auto recorder = std::make_unique<FlightRecorder>();
  const auto first = recorder->begin(3, 7, text("allreduce of 4 f32 elements"));
  recorder->begin(3, 8, text("barrier"));
  recorder->mark(first, Stage::kRunning);
  recorder->mark(first, Stage::kDone);
  const auto records = recorder->records();
  ASSERT_EQ(records.size(), 2U);
  EXPECT_EQ(records[0].sequence, 7U);
  EXPECT_EQ(records[0].stage, Stage::kDone);
  EXPECT_GE(records[0].finished, records[0].queued);
  EXPECT_EQ(records[1].stage, Stage::kQueued);
  EXPECT_EQ(records[1].finished, Clock::time_point{});
}

TEST(FlightRecorder, KeepsTheNewestAndIgnoresMarksOfTheOverwritten) {
  const auto recorder = std::make_unique<FlightRecorder>();
  const auto oldest = recorder->begin(0, 0, text("oldest"));
  const auto second = recorder->begin(0, 1, text("second"));
  for (std::uint64_t i = 2; i <= FlightRecorder::kCapacity; ++i) recorder->begin(0, i, text("later"));
  recorder->mark(oldest, Stage::kFailed);
  recorder->mark(second, Stage::kRunning);
  recorder->mark(1u << 30, Stage::kFailed);
  const auto records = recorder->records();
  ASSERT_EQ(records.size(), FlightRecorder::kCapacity);
  EXPECT_EQ(records.front().sequence, 1U);
  EXPECT_EQ(records.front().stage, Stage::kRunning);
  EXPECT_EQ(records.back().sequence, FlightRecorder::kCapacity);
  EXPECT_EQ(records.back().stage, Stage::kQueued) << "it lies where the oldest one was";
}

TEST(FlightRecorder, WritesOneJsonObjectPerLine) {
  const auto recorder = std::make_unique<FlightRecorder>();
  EXPECT_EQ(recorder->to_json_lines(), "");
  recorder->mark(recorder->begin(2, 5, text("a \"quoted\" name\nand \xff no UTF-8")), Stage::kFailed);
  recorder->begin(2, 6, text("barrier"));
  const auto lines = parse_lines(recorder->to_json_lines());
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_EQ(lines[0]["communicator"], 2);
  EXPECT_EQ(lines[0]["sequence"], 5);
  EXPECT_EQ(lines[0]["stage"], "failed");
  EXPECT_GE(lines[0]["duration_s"].get<double>(), 0.0);
  EXPECT_GE(lines[0]["age_s"].get<double>(), lines[0]["duration_s"].get<double>());
  EXPECT_TRUE(lines[1]["duration_s"].is_null());
  EXPECT_EQ(lines[1]["what"], "barrier");
}

TEST(FlightRecorder, AnInlineCollectiveRunsThenIsDoneWithoutDuration) {
  const auto recorder = std::make_unique<FlightRecorder>();
  const auto record = recorder->begin_inline(1, 2, text("barrier"));
  EXPECT_EQ(recorder->records().front().stage, Stage::kRunning);
  recorder->finish_inline(record);
  const auto lines = parse_lines(recorder->to_json_lines());
  ASSERT_EQ(lines.size(), 1U);
  EXPECT_EQ(lines[0]["stage"], "done");
  EXPECT_EQ(lines[0]["duration_s"], 0.0);
}

TEST(FlightRecorder, FinishingAnOverwrittenRecordChangesNoOther) {
  const auto recorder = std::make_unique<FlightRecorder>();
  const auto oldest = recorder->begin_inline(0, 0, text("oldest"));
  for (std::uint64_t i = 1; i <= FlightRecorder::kCapacity; ++i) recorder->begin(0, i, text("later"));
  recorder->finish_inline(oldest);
  for (const FlightRecord& record : recorder->records()) EXPECT_EQ(record.stage, Stage::kQueued) << record.sequence;
}

TEST(FlightRecorder, MayBeUsedByManyThreads) {
  const auto recorder = std::make_unique<FlightRecorder>();
  std::vector<std::jthread> threads;
  for (std::uint16_t thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&recorder, thread] {
      for (std::uint64_t i = 0; i < 200; ++i) recorder->mark(recorder->begin(thread, i, text("barrier")), Stage::kDone);
    });
  }
  threads.clear();
  const auto records = recorder->records();
  ASSERT_EQ(records.size(), 800U);
  for (const FlightRecord& record : records) EXPECT_EQ(record.stage, Stage::kDone);
}

}  // namespace
}  // namespace farandole
