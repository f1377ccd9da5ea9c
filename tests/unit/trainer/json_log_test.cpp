// SPDX-License-Identifier: Apache-2.0
#include "json_log.h"

#include <gtest/gtest.h>

#include <limits>

#include "trainer_files.h"

namespace farandole::trainer {
namespace {

TEST(JsonLog, HoldsAllMetricsOfAnEpoch) {
  const test::TemporaryDirectory directory;
  EpochReport report;
  report.epoch = 2;
  report.metrics = {{"accuracy", 0.5}, {"close", std::numeric_limits<double>::quiet_NaN()}};
  JsonLog log(directory.path() / "log", false);
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

}  // namespace
}  // namespace farandole::trainer
