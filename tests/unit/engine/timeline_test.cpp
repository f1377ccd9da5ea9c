// SPDX-License-Identifier: Apache-2.0
#include "timeline.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "engine_harness.h"

namespace farandole::testing {
namespace {

using nlohmann::json;

class TimelineFile {
 public:
  TimelineFile() : path_(std::filesystem::temp_directory_path() / ("timeline-" + std::to_string(getpid()) + ".json")) {}
  ~TimelineFile() { std::filesystem::remove(path_); }
  std::string path() const { return path_.string(); }
  json read() const { return json::parse(std::ifstream(path_)); }

 private:
  std::filesystem::path path_;
};

/// The activities of the row, with "end" for each end.
std::vector<std::string> row(const json& events, const std::string& tensor) {
  std::optional<int> number;
  std::vector<std::string> found;
  for (const json& event : events) {
    const json arguments = event.value("args", json::object());
    if (event["ph"] == "M" && arguments.value("name", "") == tensor) number = event["pid"].get<int>();
    if (!number || event["pid"] != *number || event["ph"] == "M") continue;
    found.push_back(event["ph"] == "E" ? "end" : event["name"].get<std::string>());
  }
  return found;
}

TEST(Timeline, HasARowForEachTensor) {
  const TimelineFile file;
  run_engines(2, [&](TensorEngine& engine, Client& client) {
    engine.start_timeline(file.path(), true);
    client.allreduce("small", {1.0F});
    Client::Options rows;
    rows.kind = RequestKind::kAllgather;
    client.run("rows \"quoted\"", {1.0F, 2.0F}, rows);
    client.allreduce("large", std::vector<float>(100'000));
    engine.stop_timeline();
    client.allreduce("later", {1.0F});
  });
  const json events = file.read();
  EXPECT_EQ(row(events, "small"), (std::vector<std::string>{"NEGOTIATE_ALLREDUCE", "end", "ALLREDUCE", "WAIT_FOR_DATA",
                                                            "FARANDOLE_ALLREDUCE", "end"}));
  EXPECT_EQ(row(events, "large"), row(events, "small"));
  EXPECT_EQ(row(events, "rows \"quoted\""),
            (std::vector<std::string>{"NEGOTIATE_ALLGATHER", "end", "ALLGATHER", "WAIT_FOR_DATA", "ALLOCATE_OUTPUT",
                                      "FARANDOLE_ALLGATHER", "end"}));
  EXPECT_TRUE(row(events, "later").empty());
  EXPECT_NE(events.dump().find("CYCLE_START"), std::string::npos);
}

TEST(Timeline, ShowsCopiesOfPackedTensorsAndEndsFailedSpans) {
  const TimelineFile file;
  run_engines(2, [&](TensorEngine& engine, Client& client) {
    engine.start_timeline(file.path(), false);
    const auto pending = client.submit("group", {{1.0F}, {2.0F}}, {});
    client.wait(pending);
    EXPECT_THROW(client.allreduce("wrong", std::vector<float>(engine.communicator().rank() + 1)), Mismatch);
    engine.stop_timeline();
  });
  const json events = file.read();
  EXPECT_EQ(row(events, "group"), (std::vector<std::string>{"NEGOTIATE_ALLREDUCE", "end", "ALLREDUCE", "WAIT_FOR_DATA",
                                                            "MEMCPY_IN_FUSION_BUFFER", "FARANDOLE_ALLREDUCE",
                                                            "MEMCPY_OUT_FUSION_BUFFER", "end"}));
  EXPECT_EQ(row(events, "wrong"), (std::vector<std::string>{"NEGOTIATE_ALLREDUCE", "end"}));
  EXPECT_EQ(events.dump().find("CYCLE_START"), std::string::npos);
}

TEST(Timeline, CountsDroppedEvents) {
  const TimelineFile file;
  Timeline timeline;
  timeline.start(file.path(), false);
  for (std::size_t i = 0; i < 40 * Timeline::kMaxPending; ++i) timeline.span("x", "y", Clock::now(), Clock::now());
  timeline.stop();
  std::size_t written = 0, dropped = 0;
  for (const json& event : file.read()) {
    if (event["ph"] == "X") ++written;
    if (event["ph"] == "i") dropped = std::stoul(event["name"].get<std::string>());
  }
  EXPECT_EQ(written + dropped, 40 * Timeline::kMaxPending);
}

TEST(Timeline, RefusesUnwritableFilesAndReplacesExisting) {
  const TimelineFile file;
  Timeline timeline;
  EXPECT_THROW(timeline.start("/no such directory/x", false), InvalidArgument);
  EXPECT_FALSE(timeline.is_on());
  timeline.stop();
  timeline.start(file.path(), false);
  timeline.begin("a", "NEGOTIATE", Clock::now());
  timeline.start(file.path(), false);
  timeline.stop();
  EXPECT_EQ(file.read().size(), 1U);
}

}  // namespace
}  // namespace farandole::testing
