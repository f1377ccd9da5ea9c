// SPDX-License-Identifier: Apache-2.0
// Checks of several training steps at once, comparisons of replicas, and master values, in trainings.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "farandole/trainer/parameters.h"
#include "followed_training.h"

namespace farandole::trainer {
namespace {

using test::contains;
using test::Course;
using test::errors_of;
using test::follow;
using test::follow_in_parts;
using test::options_for;
using testing::ElementsAre;
using testing::HasSubstr;

/// Training steps of an epoch of the small training.
constexpr std::int64_t kEpoch = 8;

/// What a rank is told, and when.
struct Told {
  std::vector<StepReport> steps;
  std::vector<std::string> events;
  Course course;
};

Told told(int replicas, const TrainerOptions& options) {
  Told result;
  result.course = follow(replicas, options, [&](TrainerOptions& mine, int rank) {
    const auto count_rates = mine.on_step;
    if (rank != 0) return;
    mine.before_step = [&](std::int64_t step) { result.events.push_back("step " + std::to_string(step)); };
    mine.on_step = [&, count_rates](const StepReport& report) {
      count_rates(report);
      result.steps.push_back(report);
      result.events.push_back("did " + std::to_string(report.training_step));
    };
  })[0];
  return result;
}

/// The numbers of a report that must not depend on the distance of checks.
std::vector<double> numbers_of(const StepReport& report) {
  EXPECT_GT(report.seconds, 0);
  return {static_cast<double>(report.training_step),
          static_cast<double>(report.epoch),
          static_cast<double>(report.step_of_epoch),
          report.loss,
          report.epoch_loss,
          report.metric("accuracy"),
          report.learning_rate};
}

void expect_same(const Told& found, const Told& expected) {
  ASSERT_EQ(found.steps.size(), expected.steps.size());
  for (std::size_t i = 0; i < found.steps.size(); ++i) {
    EXPECT_EQ(numbers_of(found.steps[i]), numbers_of(expected.steps[i])) << "training step " << i + 1;
  }
  EXPECT_EQ(found.course.parameters, expected.course.parameters);
  EXPECT_EQ(found.course.report.loss, expected.course.report.loss);
  EXPECT_EQ(found.course.report.parameters_checksum, expected.course.report.parameters_checksum);
}

TEST(Checks, OfSeveralStepsGiveTheSameReportsLater) {
  for (const bool deterministic : {false, true}) {
    TrainerOptions options = options_for(2 * kEpoch + 5);
    options.deterministic = deterministic;
    options.learning_rate = {.base = 0.02, .schedule = LearningRateSchedule::kCosine};
    options.clip_norm = 0.5;
    for (const int replicas : {1, 2, 4}) {
      options.check_every = 1;
      const Told each = told(replicas, options);
      for (const std::int64_t every : {2, 3, 100}) {
        SCOPED_TRACE("every " + std::to_string(every) + " on " + std::to_string(replicas));
        options.check_every = every;
        expect_same(told(replicas, options), each);
      }
    }
  }
}

TEST(Checks, ComeAtMultiplesAndAtTheEndOfEpochsAndOfFit) {
  TrainerOptions options = options_for(kEpoch + 2);
  options.check_every = 3;
  const auto done = [](std::initializer_list<int> steps) {
    std::vector<std::string> events;
    for (const int step : steps) events.push_back("did " + std::to_string(step));
    return events;
  };
  std::vector<std::string> expected;
  for (int step = 1; step <= kEpoch + 2; ++step) {
    expected.push_back("step " + std::to_string(step));
    const auto reports = step == 3    ? done({1, 2, 3})
                         : step == 6  ? done({4, 5, 6})
                         : step == 8  ? done({7, 8})
                         : step == 9  ? done({9})
                         : step == 10 ? done({10})
                                      : done({});
    expected.insert(expected.end(), reports.begin(), reports.end());
  }
  EXPECT_EQ(told(2, options).events, expected);
}

TEST(Checks, AStopTakesEffectAtTheNextOne) {
  TrainerOptions options = options_for(30);
  options.check_every = 3;
  std::vector<EpochReport> reports(2);
  run_replicas(2, [&](Communicator& replica) {
    const test::Data data;
    TrainerOptions mine = options;
    Trainer<double>* trainer_of_this_rank = nullptr;
    if (replica.rank() == 1) {
      mine.before_step = [&](std::int64_t step) {
        if (step == 4) trainer_of_this_rank->stop();
      };
    }
    Trainer<double> trainer(replica, Model<double>(test::kImage, test::mlp<double>()), data.training, data.test, mine);
    trainer_of_this_rank = &trainer;
    reports[static_cast<std::size_t>(replica.rank())] = trainer.fit();
    EXPECT_EQ(trainer.fit().training_steps, 30);
  });
  for (const EpochReport& report : reports) {
    EXPECT_TRUE(report.stopped);
    EXPECT_EQ(report.training_steps, 6);
  }
}

TEST(Checks, ACheckpointHasOneOfItsOwn) {
  TrainerOptions options = options_for(2 * kEpoch);
  options.check_every = 100;
  const Course whole = follow(2, options)[0];
  const test::TemporaryDirectory directory;
  options.checkpoints.directory = directory.path();
  options.checkpoints.every_steps = 5;
  options.max_steps = 7;
  follow(2, options);
  EXPECT_TRUE(std::filesystem::exists(directory.path() / "step-000005"));
  options.checkpoints.resume = true;
  options.max_steps = 2 * kEpoch;
  const Course resumed = follow(2, options)[0];
  EXPECT_EQ(resumed.parameters, whole.parameters);
  EXPECT_EQ(resumed.report.loss, whole.report.loss);
}

TEST(Checks, ALossThatIsNoNumberIsFoundLateButNamed) {
  const auto message = [](std::int64_t every) {
    TrainerOptions options = options_for(20);
    options.check_every = every;
    options.learning_rate.schedule = LearningRateSchedule::kOwn;
    options.learning_rate.own = [](std::int64_t step, std::int64_t, std::int64_t) { return step == 2 ? 1e300 : 0.01; };
    const std::vector<std::string> messages = errors_of<DataError>(2, options);
    EXPECT_EQ(messages[0], messages[1]);
    return messages[0];
  };
  const std::string now = message(1), late = message(5);
  EXPECT_THAT(now, HasSubstr("the loss is not a number"));
  EXPECT_THAT(now, HasSubstr("Parameters are as they were before it"));
  const std::string step = now.substr(0, now.find(','));
  EXPECT_THAT(step, HasSubstr("training step "));
  EXPECT_THAT(late, HasSubstr(step)) << "the same training step";
  EXPECT_THAT(late, HasSubstr("were updated in it and up to training step 4, because losses are checked every 5"));
}

/// A sample of the data that is no number, in a training step that is not the last one before the check.
TEST(Checks, ASampleThatIsNoNumberIsNamed) {
  std::vector<std::string> messages(2);
  run_replicas(2, [&](Communicator& replica) {
    Samples samples{.shape = {1}};
    std::vector<float> inputs(40, 0.5F), targets(40, 1.0F);
    targets[23] = std::numeric_limits<float>::quiet_NaN();
    samples.inputs = inputs;
    samples.targets = targets;
    samples.target_shape = {1};
    const auto data = memory_dataset(std::move(samples));
    TrainerOptions options = options_for(20);
    options.global_batch = 2;
    options.check_every = 100;
    messages[static_cast<std::size_t>(replica.rank())] = farandole::test::message_of<DataError>([&] {
      Trainer<double> trainer(replica, Model<double>({1}, farandole::trainer::layers<double>(dense<double>(1))), data,
                              nullptr, options, mean_squared_error<double>());
      trainer.fit();
    });
  });
  EXPECT_THAT(messages, testing::Each(HasSubstr("Sample 23 of the training data has a number that is NaN")));
}

TEST(Checks, WrongDistancesAreRefused) {
  TrainerOptions options = options_for(3);
  options.check_every = 0;
  EXPECT_TRUE(contains(errors_of<InvalidArgument>(1, options)[0], "between checks in training steps is 0"));
  options = options_for(3);
  options.compare_every = -1;
  EXPECT_TRUE(contains(errors_of<InvalidArgument>(1, options)[0], "comparisons of the replicas in epochs is -1"));
  EXPECT_TRUE(contains(
      errors_of<Mismatch>(2, options_for(3), [](TrainerOptions& mine, int rank) { mine.check_every = 1 + rank; })[1],
      "check_every"));
}

TEST(Comparisons, OfReplicasComeAtTheirDistance) {
  for (const std::int64_t every : {0, 1, 2}) {
    TrainerOptions options = options_for(5 * kEpoch);
    options.compare_every = every;
    std::vector<bool> compared;
    const Course course = follow(2, options, [&](TrainerOptions& mine, int rank) {
      if (rank == 0) {
        mine.on_epoch = [&](const EpochReport& report) { compared.push_back(report.parameters_checksum.has_value()); };
      }
    })[0];
    EXPECT_TRUE(course.report.parameters_checksum.has_value()) << "of fit";
    EXPECT_THAT(compared, every == 0   ? ElementsAre(false, false, false, false, false)
                          : every == 1 ? ElementsAre(true, true, true, true, true)
                                       : ElementsAre(false, true, false, true, false));
  }
}

/// Trains a model of floats. Returns its parameters, and their average.
std::pair<std::vector<float>, std::vector<float>> train_floats(int replicas, const TrainerOptions& options) {
  std::pair<std::vector<float>, std::vector<float>> result;
  run_replicas(replicas, [&](Communicator& replica) {
    const test::Data data;
    Trainer<float> trainer(replica, Model<float>(test::kImage, test::mlp<float>()), data.training, data.test, options);
    trainer.fit();
    if (replica.rank() != 0) return;
    const std::span<float> parameters = trainer.model().parameters().host();
    result = {{parameters.begin(), parameters.end()}, trainer.averaged_parameters()};
  });
  return result;
}

TrainerOptions with_masters(std::int64_t steps) {
  TrainerOptions options = options_for(steps);
  options.optimizer = {.kind = OptimizerKind::kAdam, .ema_decay = 0.9, .master = DType::kF64};
  options.deterministic = true;
  options.evaluate_with_ema = true;
  return options;
}

TEST(MasterValuesInTraining, GiveTheSameBitsOnAnyNumberOfReplicasAndAfterAStop) {
  const auto whole = train_floats(1, with_masters(20));
  for (const int replicas : {2, 4}) EXPECT_EQ(train_floats(replicas, with_masters(20)), whole) << replicas;
  const test::TemporaryDirectory directory;
  TrainerOptions options = with_masters(11);
  options.checkpoints.directory = directory.path();
  train_floats(2, options);
  options.checkpoints.resume = true;
  options.max_steps = 20;
  EXPECT_EQ(train_floats(4, options), whole);
  TrainerOptions without = with_masters(20);
  without.optimizer.master.reset();
  EXPECT_NE(train_floats(1, without).first, whole.first);
}

TEST(MasterValuesInTraining, ACheckpointGoesOnWithItsTypeOnly) {
  const test::TemporaryDirectory directory;
  TrainerOptions options = with_masters(3);
  options.checkpoints.directory = directory.path();
  train_floats(1, options);
  Model<float> model(test::kImage, test::mlp<float>());
  load_parameters(directory.path(), model, {.average = true});
  options.checkpoints.resume = true;
  options.optimizer.master.reset();
  EXPECT_THAT(farandole::test::message_of<InvalidArgument>([&] { train_floats(1, options); }),
              HasSubstr("was written with type of master values f64, but this training has none"));
}

}  // namespace
}  // namespace farandole::trainer
