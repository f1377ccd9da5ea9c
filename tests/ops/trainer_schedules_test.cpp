// SPDX-License-Identifier: Apache-2.0
// Schedules of the learning rate in trainings: on several ranks, and over stops and resumes.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <stdexcept>

#include "followed_training.h"

namespace farandole::trainer {
namespace {

using test::contains;
using test::Course;
using test::errors_of;
using test::follow;
using test::follow_in_parts;
using test::options_for;
using Schedule = LearningRateSchedule;

double own_rate(std::int64_t step, std::int64_t per_epoch, std::int64_t total) {
  return 0.02 / (1 + static_cast<double>(step * step) / static_cast<double>(per_epoch * total));
}

/// 5 epochs of 8 training steps. The options of every schedule make the rate change within them.
TrainerOptions scheduled(Schedule schedule, std::int64_t evaluate_every = 0) {
  TrainerOptions options = options_for(40);
  options.epochs = 5;
  options.evaluate_every = evaluate_every;
  options.learning_rate = {
      .base = 0.02, .schedule = schedule, .warmup_steps = 3, .step_factor = 0.5, .step_epochs = 2, .power = 2};
  options.learning_rate.plateau = {.factor = 0.5, .patience = 1, .threshold = 0.999};
  if (schedule == Schedule::kOwn) options.learning_rate.own = own_rate;
  return options;
}

std::string described(const TrainerOptions& options) {
  return std::string(name(options.learning_rate.schedule)) + ", evaluations every " +
         std::to_string(options.evaluate_every) + " epochs";
}

void expect_same(const Course& found, const Course& expected) {
  EXPECT_EQ(found.rates, expected.rates);
  EXPECT_EQ(found.parameters, expected.parameters);
}

/// All schedules, and kPlateau with the training loss, with each test loss and with every second epoch's.
std::vector<TrainerOptions> all_schedules() {
  std::vector<TrainerOptions> all;
  for (const auto schedule : {Schedule::kConstant, Schedule::kStep, Schedule::kCosine, Schedule::kPolynomial,
                              Schedule::kOneCycle, Schedule::kPlateau, Schedule::kOwn}) {
    all.push_back(scheduled(schedule));
  }
  all.push_back(scheduled(Schedule::kPlateau, 1));
  all.push_back(scheduled(Schedule::kPlateau, 2));
  all.back().learning_rate.plateau.patience = 0;
  return all;
}

TEST(Schedules, ResumeInTheMiddleGivesTheSameBits) {
  for (const TrainerOptions& options : all_schedules()) {
    SCOPED_TRACE(described(options));
    const Course whole = follow(2, options)[0];
    ASSERT_EQ(whole.rates.size(), 40U);
    if (options.learning_rate.schedule != Schedule::kConstant) {
      EXPECT_NE(whole.rates[3], whole.rates[38]) << "the schedule does nothing in this test";
    }
    expect_same(follow_in_parts(2, options, {1, 13, 24, 29}), whole);
  }
}

TEST(Schedules, EveryRankHasTheSameRates) {
  for (const TrainerOptions& options : all_schedules()) {
    SCOPED_TRACE(described(options));
    const auto courses = follow(3, options);
    for (const Course& course : courses) expect_same(course, courses[0]);
  }
}

TEST(Schedules, RatesFollowTheFormula) {
  for (const auto schedule : {Schedule::kPolynomial, Schedule::kOneCycle, Schedule::kOwn}) {
    const TrainerOptions options = scheduled(schedule);
    const Course course = follow(1, options)[0];
    for (std::int64_t step = 0; step < 40; ++step) {
      EXPECT_EQ(course.rates[static_cast<std::size_t>(step)], learning_rate(options.learning_rate, 1, step, 8, 40));
    }
  }
}

/// Options whose `stop_requested` is true in one training step.
TrainerOptions stopping_once(TrainerOptions options, std::int64_t step) {
  options.stop_requested = [step, asked = std::int64_t{0}]() mutable { return ++asked == step; };
  return options;
}

TEST(Plateau, AStopAtTheEndOfAnEpochLosesNoLoss) {
  for (const std::int64_t evaluate_every : {0, 1, 2}) {
    TrainerOptions options = scheduled(Schedule::kPlateau, evaluate_every);
    options.learning_rate.plateau.patience = 0;
    SCOPED_TRACE(described(options));
    const Course whole = follow(2, options)[0];
    for (const std::int64_t stop : {8, 16, 24}) {
      const test::TemporaryDirectory directory;
      options.checkpoints = {.directory = directory.path()};
      const Course first = follow(2, stopping_once(options, stop))[0];
      EXPECT_TRUE(first.report.stopped);
      EXPECT_EQ(first.report.training_steps, stop);
      options.checkpoints.resume = true;
      Course second = follow(2, options)[0];
      second.rates.insert(second.rates.begin(), first.rates.begin(), first.rates.end());
      expect_same(second, whole);
    }
  }
}

TEST(Plateau, ASecondFitGoesOnFromAStop) {
  const TrainerOptions options = scheduled(Schedule::kPlateau, 1);
  const Course whole = follow(1, options)[0];
  run_replicas(1, [&](Communicator& replica) {
    const test::Data data;
    Course course;
    TrainerOptions mine = stopping_once(options, 16);
    mine.on_step = [&](const StepReport& report) { course.rates.push_back(report.learning_rate); };
    Trainer<double> trainer(replica, Model<double>(test::kImage, test::mlp<double>()), data.training, data.test, mine);
    EXPECT_TRUE(trainer.fit().stopped);
    EXPECT_FALSE(trainer.fit().stopped);
    course.parameters.assign(trainer.model().parameters().host().begin(), trainer.model().parameters().host().end());
    expect_same(course, whole);
  });
}

TEST(Plateau, BeginsAnewFromACheckpointOfAnotherSchedule) {
  const test::TemporaryDirectory directory;
  TrainerOptions options = scheduled(Schedule::kConstant);
  options.checkpoints.directory = directory.path();
  options.max_steps = 20;
  follow(1, options);
  options.checkpoints.resume = true;
  options.max_steps = 40;
  options.learning_rate.schedule = Schedule::kPlateau;
  const Course resumed = follow(1, options)[0];
  ASSERT_EQ(resumed.rates.size(), 20U);
  EXPECT_EQ(resumed.rates[0], 0.02);
  EXPECT_EQ(resumed.rates.back(), 0.02) << "one loss is the best, and one is tolerated";
}

TEST(OwnSchedule, RatesThatDifferAreNamedOnEveryRank) {
  const auto alter = [](TrainerOptions& options, int rank) {
    options.learning_rate.own = [rank](std::int64_t step, std::int64_t, std::int64_t) {
      return step == 5 && rank == 1 ? 0.25 : 0.125;
    };
  };
  for (const bool deterministic : {false, true}) {
    TrainerOptions options = scheduled(Schedule::kOwn);
    options.deterministic = deterministic;
    options.learning_rate.warmup_steps = 0;
    for (const std::string& message : errors_of<Mismatch>(deterministic ? 2 : 3, options, alter)) {
      EXPECT_TRUE(contains(message, "the rate 0.125 on rank 0 and 0.25 on rank 1 for training step 5"));
    }
  }
}

TEST(OwnSchedule, ErrorsOfOneRankAreEveryRanks) {
  const TrainerOptions options = scheduled(Schedule::kOwn);
  for (const double wrong : {-1.0, std::nan(""), std::numeric_limits<double>::infinity()}) {
    const auto alter = [wrong](TrainerOptions& mine, int rank) {
      if (rank == 2) mine.learning_rate.own = [wrong](std::int64_t, std::int64_t, std::int64_t) { return wrong; };
    };
    for (const std::string& message : errors_of<InvalidArgument>(3, options, alter)) {
      EXPECT_TRUE(contains(message, "for training step 0; it must be finite and at least 0"));
    }
  }
}

TEST(OwnSchedule, AnExceptionOfOneRankKeepsItsType) {
  for (const bool averaging : {true, false}) {
    TrainerOptions options = scheduled(Schedule::kOwn);
    options.averaging = averaging;
    const auto alter = [](TrainerOptions& mine, int rank) {
      if (rank != 1) return;
      mine.learning_rate.own = [](std::int64_t, std::int64_t, std::int64_t) -> double {
        throw std::out_of_range("no table of rates");
      };
    };
    try {
      follow(3, options, alter);
      ADD_FAILURE() << "no exception";
    } catch (const std::out_of_range& error) {
      EXPECT_STREQ(error.what(), "no table of rates");
    }
  }
}

TEST(OwnSchedule, AnExceptionOfOneRankEndsAll) {
  std::vector<std::string> messages(2);
  run_replicas(2, [&](Communicator& replica) {
    TrainerOptions options = scheduled(Schedule::kOwn);
    if (replica.rank() == 1) {
      options.learning_rate.own = [](std::int64_t, std::int64_t, std::int64_t) -> double {
        throw std::out_of_range("no table of rates");
      };
    }
    try {
      Trainer<double>(replica, Model<double>(test::kImage, test::mlp<double>()), test::Data().training, nullptr,
                      options)
          .fit();
    } catch (const std::exception& error) {
      messages[static_cast<std::size_t>(replica.rank())] = error.what();
    }
  });
  EXPECT_TRUE(contains(messages[0],
                       "PeerLost: rank 1 has stopped training, because LearningRateOptions::own threw: no "
                       "table of rates"));
  EXPECT_EQ(messages[1], "no table of rates");
}

TEST(OwnSchedule, WithoutAveragingRanksMayDiffer) {
  TrainerOptions options = scheduled(Schedule::kOwn);
  options.averaging = false;
  const auto courses = follow(2, options, [](TrainerOptions& mine, int rank) {
    mine.learning_rate.warmup_steps = 0;
    mine.learning_rate.own = [rank](std::int64_t, std::int64_t, std::int64_t) { return rank == 0 ? 0.25 : 0.125; };
  });
  EXPECT_EQ(courses[0].rates[0], 0.25);
  EXPECT_EQ(courses[1].rates[0], 0.125);
}

std::string log_of(const TrainerOptions& options) {
  testing::internal::CaptureStderr();
  follow(2, options);
  return testing::internal::GetCapturedStderr();
}

TEST(WarmUp, LongerThanTheTrainingWarnsOnce) {
  TrainerOptions options = options_for(4);
  options.learning_rate.warmup_steps = 4;
  EXPECT_EQ(log_of(options), "");
  options.learning_rate.warmup_steps = 5;
  const std::string log = log_of(options);
  const std::string warning = "the learning rate warms up for 5 training steps, but the training ends after 4";
  EXPECT_TRUE(contains(log, warning));
  EXPECT_EQ(log.find(warning), log.rfind(warning)) << "only rank 0 warns";
}

}  // namespace
}  // namespace farandole::trainer
