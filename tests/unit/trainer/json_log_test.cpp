// SPDX-License-Identifier: Apache-2.0
#include "json_log.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <limits>

#include "trainer_files.h"

namespace farandole::trainer {
namespace {

TEST(JsonLog, HoldsAllMetricsOfAnEpoch) {
  const test::TemporaryDirectory directory;
  EpochReport report;
  report.epoch = 2;
  report.metrics = {{"accuracy", 0.5}, {"close", std::numeric_limits<double>::quiet_NaN()}};
  JsonLog log(directory.path() / "log");
  log.epoch(report, false);
  report.test = {.loss = 0.25, .metrics = {{"close", 1}, {"accuracy", 0.75}}};
  log.epoch(report, true);
  const std::string text = test::read_bytes(directory.path() / "log");
  const std::string first = text.substr(0, text.find('\n')), second = text.substr(first.size());
  EXPECT_TRUE(test::contains(first, R"("metrics":{"accuracy":0.5,"close":null},"test_loss":null,"test_accuracy":null,)"
                                    R"("test_metrics":null,)"));
  EXPECT_TRUE(test::contains(second, R"("test_loss":0.25,"test_accuracy":0.75,"test_metrics":{"close":1.0,)"
                                     R"("accuracy":0.75},)"));
  EXPECT_TRUE(test::contains(second, R"("final":true)"));
}

TEST(JsonLog, WritesALossThatIsNoNumberAsNull) {
  const test::TemporaryDirectory directory;
  JsonLog log(directory.path() / "log");
  log.step({.training_step = 3, .loss = std::numeric_limits<double>::quiet_NaN()});
  log.step({.training_step = 4, .loss = 0.5});
  const std::string text = test::read_bytes(directory.path() / "log");
  EXPECT_TRUE(test::contains(text, R"({"training_step":3,"loss":null,)"));
  EXPECT_TRUE(test::contains(text, R"({"training_step":4,"loss":0.5,)"));
}

TEST(JsonLog, HoldsTheTimesOfADeviceAndTheLossScale) {
  const test::TemporaryDirectory directory;
  JsonLog log(directory.path() / "log");
  EpochReport report;
  log.epoch(report, false);
  report.device_times = {.steps = 3, .input = 0.125, .forward = 0.25, .graph_steps = 7, .graph_gradients = 0.5};
  report.peak_share = 0.75;
  report.skipped_steps = 2;
  report.loss_scale = 32768;
  log.epoch(report, true);
  const std::string text = test::read_bytes(directory.path() / "log");
  EXPECT_TRUE(test::contains(text, R"("device_times":null,"peak_share":null,"skipped_steps":0,"loss_scale":null,)"));
  EXPECT_TRUE(test::contains(
      text, R"("device_times":{"steps":3,"input":0.125,"forward":0.25,"backward":0.0,)"
            R"("exposed_communication":0.0,"update":0.0,"graph_steps":7,"graph_input":0.0,)"
            R"("graph_gradients":0.5,"graph_update":0.0},"peak_share":0.75,"skipped_steps":2,"loss_scale":32768.0,)"));
}

TEST(JsonLog, HoldsTheProfileOfTheLayers) {
  const test::TemporaryDirectory directory;
  JsonLog log(directory.path() / "log");
  EpochReport report;
  log.epoch(report, false);
  TrainingProfile& profile = report.profile.emplace();
  profile.steps = 5;
  profile.samples = 16;
  profile.layers = {{{"0.dense", "dense, 3 units", {3}, 12, 24}, 0.25, 0.5}, {{"1.relu", "relu", {3}}, 0.125, 0}};
  profile.parts.update = 0.0625;
  profile.peak = 1e9;
  log.epoch(report, true);
  const std::string text = test::read_bytes(directory.path() / "log");
  EXPECT_FALSE(test::contains(text.substr(0, text.find('\n')), "profile"));
  EXPECT_TRUE(test::contains(
      text, R"("steps":5,"samples":16.0,"kernel_threads":1,"local_replicas":1,"layers":[{"name":"0.dense",)"
            R"("kind":"dense, 3 units","output":[3],"forward":0.25,"backward":0.5,"flops":576.0},{"name":"1.relu",)"
            R"("kind":"relu","output":[3],"forward":0.125,"backward":0.0,"flops":null}],"loss":0.0,"averaging":0.0,)"
            R"("update":0.0625,"input":0.0,"rest":0.0,)"));
}

TEST(JsonLog, HoldsEachEpochOnceAfterAKillAndAResume) {
  const test::TemporaryDirectory directory;
  const std::filesystem::path file = directory.path() / "log";
  std::ofstream(file) << R"({"training_step":8,"loss":1})"
                      << "\n"
                      << R"({"epoch":1,"training_steps":8})"
                      << "\n"
                      << R"({"training_step":9,"loss":1})"
                      << "\n"
                      << R"({"epoch":2,"training_steps":16})"
                      << "\n"
                      << R"({"epoch":3,"train)";
  JsonLog log(file);
  log.begin(8);
  EXPECT_EQ(test::read_bytes(file), "{\"training_step\":8,\"loss\":1}\n{\"epoch\":1,\"training_steps\":8}\n");
  log.step({.training_step = 9});
  EXPECT_TRUE(test::contains(test::read_bytes(file), "8}\n{\"training_step\":9,"));
  JsonLog(file).begin(0);
  EXPECT_EQ(test::read_bytes(file), "") << "a new training begins a new file";
}

}  // namespace
}  // namespace farandole::trainer
