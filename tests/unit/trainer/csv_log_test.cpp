// SPDX-License-Identifier: Apache-2.0
#include "csv_log.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "trainer_files.h"

namespace farandole::trainer {
namespace {

EpochReport report_of(std::int64_t epoch) {
  EpochReport report;
  report.epoch = epoch;
  report.training_steps = 8 * epoch;
  report.loss = 0.5;
  report.learning_rate = 0.25;
  report.metrics = {{"accuracy", 0.25}};
  report.images_per_second = 100;
  report.seconds = 2;
  return report;
}

constexpr const char* kNames =
    "epoch,training_steps,loss,accuracy,test_loss,test_accuracy,images_per_second,seconds,exposed_communication_"
    "share,device_step,device_input,device_forward,device_backward,device_exposed_communication,device_update,"
    "peak_share,skipped_steps,loss_scale,learning_rate\n";

TEST(CsvLog, AddsTheEvaluationAtTheEndToTheLastRow) {
  const test::TemporaryDirectory directory;
  for (const bool append : {false, true}) {
    CsvLog log(directory.path() / "log");
    log.begin(append ? 16 : 0);
    log.epoch(report_of(1));
    log.epoch(report_of(2));
    EpochReport last = report_of(2);
    last.seconds = 4;  // of both epochs
    log.epoch(last);
    last.test = {.loss = 0.75, .metrics = {{"accuracy", 1}}};
    log.epoch(last);
    log.epoch(last);
  }
  const std::string rows = "1,8,0.5,0.25,,,100,2,0,,,,,,,,,,0.25\n2,16,0.5,0.25,0.75,1,100,2,0,,,,,,,,,,0.25\n";
  EXPECT_EQ(test::read_bytes(directory.path() / "log"), kNames + rows + rows);
}

TEST(CsvLog, HoldsTheTimesOfADeviceAndTheLossScale) {
  const test::TemporaryDirectory directory;
  CsvLog log(directory.path() / "log");
  EpochReport report = report_of(1);
  report.device_times = {
      .steps = 3, .input = 0.125, .forward = 0.25, .backward = 0.5, .exposed_communication = 1, .update = 2};
  report.peak_share = 0.5;
  log.epoch(report);
  report.training_steps = 16;
  report.device_times = {.graph_steps = 3, .graph_input = 0.125, .graph_gradients = 0.25, .graph_update = 0.5};
  report.peak_share.reset();
  report.skipped_steps = 2;
  report.loss_scale = 32768;
  log.epoch(report);
  EXPECT_EQ(test::read_bytes(directory.path() / "log"),
            std::string(kNames) + "1,8,0.5,0.25,,,100,2,0,3.875,0.125,0.25,0.5,1,2,0.5,,,0.25\n" +
                "1,16,0.5,0.25,,,100,2,0,0.875,0.125,,,,0.5,,2,32768,0.25\n");
}

TEST(CsvLog, HoldsEachEpochOnceAfterAKillAndAResume) {
  const test::TemporaryDirectory directory;
  const std::filesystem::path file = directory.path() / "log";
  {
    CsvLog killed(file);
    killed.begin(0);
    for (const int epoch : {1, 2, 3}) killed.epoch(report_of(epoch));
  }
  std::ofstream(file, std::ios::app) << "4,3";  // a row that the kill has cut
  CsvLog resumed(file);
  EXPECT_TRUE(test::contains(test::read_bytes(file), "3,24,")) << "nothing is lost if the training is refused";
  resumed.begin(8);
  for (const int epoch : {2, 3}) resumed.epoch(report_of(epoch));
  EXPECT_EQ(test::read_bytes(file),
            std::string(kNames) + "1,8,0.5,0.25,,,100,2,0,,,,,,,,,,0.25\n" +
                "2,16,0.5,0.25,,,100,2,0,,,,,,,,,,0.25\n3,24,0.5,0.25,,,100,2,0,,,,,,,,,,0.25\n");
  CsvLog(file).begin(0);
  EXPECT_EQ(test::read_bytes(file), "") << "a new training begins a new file";
}

}  // namespace
}  // namespace farandole::trainer
