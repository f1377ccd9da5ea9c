// SPDX-License-Identifier: Apache-2.0
// Which epoch was the best, when the patience ends, and when a checkpoint is due.
#include "training_monitor.h"

#include <gtest/gtest.h>

#include <chrono>
#include <limits>
#include <optional>
#include <tuple>

#include "checkpoint_schedule.h"

namespace farandole::trainer {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

TrainerOptions watching(const MonitorOptions& monitor, std::int64_t evaluate_every = 1) {
  TrainerOptions options;
  options.monitor = monitor;
  options.evaluate_every = evaluate_every;
  return options;
}

/// Report of an epoch of ten training steps. @param test  loss on the test set; empty: it was not evaluated
EpochReport report_of(std::int64_t epoch, double loss, std::optional<double> test = std::nullopt) {
  EpochReport report;
  report.epoch = epoch;
  report.training_steps = 10 * epoch;
  report.loss = loss;
  if (test) report.test = Evaluation{.loss = *test};
  return report;
}

TEST(TrainingMonitor, ResultsBetterByMoreThanTheDeltaCount) {
  TrainingMonitor monitor(watching({.min_delta = 0.5, .patience = 2}), false);
  EXPECT_TRUE(monitor.end_epoch(report_of(1, 4)));
  EXPECT_TRUE(monitor.end_epoch(report_of(2, 3)));
  EXPECT_FALSE(monitor.end_epoch(report_of(3, 2.5))) << "better by the delta, not by more";
  EXPECT_FALSE(monitor.is_exhausted());
  EXPECT_TRUE(monitor.end_epoch(report_of(4, 2.25))) << "compared with the best epoch, not with the last";
  EXPECT_TRUE(monitor.is_best(40));
  EXPECT_FALSE(monitor.is_best(30));
  EXPECT_FALSE(monitor.end_epoch(report_of(5, 9)));
  EXPECT_FALSE(monitor.is_exhausted());
  EXPECT_FALSE(monitor.end_epoch(report_of(6, 8)));
  EXPECT_TRUE(monitor.is_exhausted());
}

TEST(TrainingMonitor, HigherResultsOfAMetricCanBeBetter) {
  TrainingMonitor monitor(watching({.value = "accuracy", .higher_is_better = true, .patience = 5}), false);
  for (const auto& [epoch, accuracy, better] : {std::tuple{1, 0.5, true}, {2, 0.75, true}, {3, 0.75, false}}) {
    EpochReport report = report_of(epoch, /*loss=*/epoch);
    report.metrics = {{.name = "accuracy", .value = accuracy}};
    EXPECT_EQ(monitor.end_epoch(report), better) << epoch;
  }
}

TEST(TrainingMonitor, NotANumberIsNeverTheBest) {
  TrainingMonitor monitor(watching({.patience = 2}), false);
  EXPECT_FALSE(monitor.end_epoch(report_of(1, kNaN)));
  EXPECT_FALSE(monitor.is_best(10));
  EXPECT_TRUE(monitor.end_epoch(report_of(2, 5))) << "the first number is the best so far";
  EXPECT_FALSE(monitor.end_epoch(report_of(3, kNaN)));
  EXPECT_FALSE(monitor.end_epoch(report_of(4, kNaN)));
  EXPECT_TRUE(monitor.is_exhausted());
}

TEST(TrainingMonitor, WatchesTheTestSetWhereEpochsAreEvaluated) {
  TrainingMonitor evaluated(watching({.patience = 1}, 2), true);
  EXPECT_FALSE(evaluated.end_epoch(report_of(1, 1))) << "an epoch without a result";
  EXPECT_TRUE(evaluated.end_epoch(report_of(2, 1, 7)));
  EXPECT_EQ(evaluated.state()->best, 7);
  TrainingMonitor unevaluated(watching({.patience = 1}, 0), true), without_test(watching({.patience = 1}), false);
  EXPECT_TRUE(unevaluated.end_epoch(report_of(1, 1)));
  EXPECT_EQ(unevaluated.state()->best, 1) << "fit evaluates no epoch";
  EXPECT_TRUE(without_test.end_epoch(report_of(1, 1)));
}

TEST(TrainingMonitor, AResultThatAStopLeftOutIsPending) {
  const TrainerOptions options = watching({.patience = 5}, 2);
  TrainingMonitor monitor(options, true);
  monitor.end_epoch_unevaluated(report_of(1, 1), 1);
  EXPECT_FALSE(monitor.needs_test_result()) << "only every second epoch is evaluated";
  EXPECT_TRUE(monitor.end_epoch(report_of(2, 1, 7)));
  monitor.end_epoch_unevaluated(report_of(4, 1), 4);
  EXPECT_TRUE(monitor.needs_test_result());

  TrainingMonitor resumed(options, true);
  resumed.restore(monitor.state());
  EXPECT_TRUE(resumed.needs_test_result());
  EXPECT_FALSE(resumed.end_epoch(report_of(4, 1, 8)));
  EXPECT_FALSE(resumed.needs_test_result());
  EXPECT_TRUE(resumed.is_best(20));
  EXPECT_EQ(resumed.state()->bad_results, 1);

  TrainingMonitor without_test(options, false);
  without_test.restore(monitor.state());
  EXPECT_FALSE(without_test.needs_test_result()) << "no test set can give the result";
  EXPECT_TRUE(without_test.end_epoch_unevaluated(report_of(5, 1), 5)) << "the training's result is there";
  monitor.restore(std::nullopt);
  EXPECT_EQ(monitor.state(), MonitorState{}) << "the checkpoint had no monitor";
}

TEST(TrainingMonitor, IsIdleUnlessItsResultIsUsed) {
  TrainingMonitor idle(watching({}), false);
  EXPECT_FALSE(idle.end_epoch(report_of(1, 1)));
  EXPECT_FALSE(idle.is_exhausted());
  EXPECT_EQ(idle.state(), std::nullopt);
  TrainerOptions options = watching({});
  options.checkpoints.keep_best = true;
  TrainingMonitor keeps_best(options, false);
  EXPECT_TRUE(keeps_best.end_epoch(report_of(1, 1)));
  EXPECT_FALSE(keeps_best.end_epoch(report_of(2, 1)));
  EXPECT_FALSE(keeps_best.is_exhausted()) << "a patience of 0 has no end";
}

TEST(CheckpointSchedule, CountsEpochsAndSteps) {
  CheckpointOptions options;
  options.every_epochs = 3;
  options.every_steps = 4;
  const CheckpointSchedule schedule(options);
  for (const std::int64_t number : {1, 2, 5, 7}) {
    EXPECT_FALSE(schedule.is_due_after_epoch(number));
    EXPECT_FALSE(schedule.is_due_after_step(number));
  }
  EXPECT_TRUE(schedule.is_due_after_epoch(6));
  EXPECT_TRUE(schedule.is_due_after_step(8));
  options.every_epochs = options.every_steps = 0;
  const CheckpointSchedule never(options);
  EXPECT_FALSE(never.is_due_after_epoch(6));
  EXPECT_FALSE(never.is_due_after_step(8));
}

TEST(CheckpointSchedule, MeasuresMinutesSinceTheLastCheckpoint) {
  using std::chrono::seconds;
  const Clock::time_point start = Clock::now();
  CheckpointOptions options;
  options.every_minutes = 2;
  CheckpointSchedule schedule(options, start);
  EXPECT_FALSE(schedule.time_has_passed(start + seconds(119)));
  EXPECT_TRUE(schedule.time_has_passed(start + seconds(120)));
  schedule.written(start + seconds(130));
  EXPECT_FALSE(schedule.time_has_passed(start + seconds(249)));
  EXPECT_TRUE(schedule.time_has_passed(start + seconds(250)));
  EXPECT_FALSE(CheckpointSchedule({}, start).time_has_passed(start + std::chrono::hours(99)));
}

}  // namespace
}  // namespace farandole::trainer
