// SPDX-License-Identifier: Apache-2.0
// Checks of several training steps at once, comparisons of replicas, and master values, in trainings.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
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

TEST(Checks, ComeAfterTheFirstStepAtTheirDistanceAndAtTheEndOfEpochsAndOfFit) {
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
    const auto reports = step == 1    ? done({1})
                         : step == 4  ? done({2, 3, 4})
                         : step == 7  ? done({5, 6, 7})
                         : step == 8  ? done({8})
                         : step == 10 ? done({9, 10})
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
        if (step == 5) trainer_of_this_rank->stop();
      };
    }
    Trainer<double> trainer(replica, Model<double>(test::kImage, test::mlp<double>()), data.training, data.test, mine);
    trainer_of_this_rank = &trainer;
    reports[static_cast<std::size_t>(replica.rank())] = trainer.fit();
    EXPECT_EQ(trainer.fit().training_steps, 30);
  });
  for (const EpochReport& report : reports) {
    EXPECT_TRUE(report.stopped);
    EXPECT_EQ(report.training_steps, 7);
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
  EXPECT_THAT(late,
              HasSubstr("were updated with it, up to training step 5, because not every training step has a check"));
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

/// Trains 20 steps of one replica; `breaks` makes the options throw once, in step 12. Returns what `on_step` was told.
std::vector<StepReport> resumed_after(
    std::int64_t every, const std::function<void(TrainerOptions&, const std::function<void()>&)>& breaks) {
  std::vector<StepReport> steps;
  run_replicas(1, [&](Communicator& replica) {
    const test::Data data;
    TrainerOptions options = options_for(20);
    options.check_every = every;
    options.on_step = [&](const StepReport& report) { steps.push_back(report); };
    std::int64_t step = 0;
    bool thrown = false;
    options.before_step = [&](std::int64_t number) { step = number; };
    breaks(options, [&] {
      if (step == 12 && !std::exchange(thrown, true)) throw std::runtime_error("once");
    });
    Trainer<double> trainer(replica, Model<double>(test::kImage, test::mlp<double>()), data.training, nullptr, options);
    EXPECT_THROW(trainer.fit(), std::runtime_error);
    trainer.fit();
  });
  return steps;
}

/// Throws in the update of a parameter.
class Fragile final : public UpdateRule<double> {
 public:
  explicit Fragile(std::function<void()> use) : use_(std::move(use)) {}
  std::string name() const override { return "fragile"; }
  std::vector<std::string> states() const override { return {}; }
  void update(VectorView<double> values, VectorView<const double> gradients, std::span<const VectorView<double>>,
              const UpdateFacts& facts) override {
    use_();
    const std::span<double> to = values.host();
    const std::span<const double> slopes = gradients.host();
    for (std::size_t i = 0; i < to.size(); ++i) to[i] -= facts.learning_rate * slopes[i];
  }

 private:
  const std::function<void()> use_;
};

/// The steps before the bad one count, once, in the epoch of a training that goes on with other parameters.
TEST(Checks, AFitAfterALateErrorKeepsTheGoodSteps) {
  std::vector<std::int64_t> steps;
  std::vector<double> samples;
  run_replicas(2, [&](Communicator& replica) {
    const test::Data data;
    TrainerOptions options = options_for(kEpoch);
    options.check_every = 5;
    options.optimizer.kind = OptimizerKind::kOwn;  // without states, which would keep the NaN
    options.optimizer.own.f64 = [] { return std::make_unique<Fragile>([] {}); };
    options.learning_rate.schedule = LearningRateSchedule::kOwn;
    bool bad = true;
    options.learning_rate.own = [&](std::int64_t step, std::int64_t, std::int64_t) {
      return step == 2 && bad ? 1e300 : 0.01;
    };
    if (replica.rank() == 0) {
      options.on_step = [&](const StepReport& report) {
        steps.push_back(report.training_step);
        samples.push_back(report.metrics[0].sums[1]);
      };
    }
    Trainer<double> trainer(replica, Model<double>(test::kImage, test::mlp<double>()), data.training, nullptr, options);
    const std::span<double> parameters = trainer.model().parameters().host();
    const std::vector<double> saved(parameters.begin(), parameters.end());
    EXPECT_THROW(trainer.fit(), DataError);
    std::ranges::copy(saved, parameters.begin());
    bad = false;
    EXPECT_EQ(trainer.fit().training_steps, kEpoch);
  });
  EXPECT_THAT(steps, ElementsAre(1, 2, 3, 6, 7, 8)) << "4 and 5 were computed with bad parameters";
  EXPECT_THAT(samples, ElementsAre(32, 64, 96, 128, 160, 186));
}

TEST(Checks, AFitAfterAnExceptionReportsEachStepOnce) {
  using Fault = std::function<void()>;
  const auto plain = [](TrainerOptions& options) {
    options.optimizer.kind = OptimizerKind::kOwn;
    options.optimizer.own.f64 = [] { return std::make_unique<Fragile>([] {}); };
  };
  const std::vector<std::pair<std::string, std::function<void(TrainerOptions&, const Fault&)>>> cases{
      {"stop_requested",
       [&](TrainerOptions& options, const Fault& fault) {
         plain(options);
         options.stop_requested = [fault] { return fault(), false; };
       }},
      {"rate",
       [&](TrainerOptions& options, const Fault& fault) {
         plain(options);
         options.learning_rate.schedule = LearningRateSchedule::kOwn;
         options.learning_rate.own = [fault](std::int64_t, std::int64_t, std::int64_t) { return fault(), 0.02; };
       }},
      {"rule",
       [&](TrainerOptions& options, const Fault& fault) {
         plain(options);
         options.optimizer.own.f64 = [fault] { return std::make_unique<Fragile>(fault); };
       }},
      {"on_step", [&](TrainerOptions& options, const Fault& fault) {
         plain(options);
         const auto record = options.on_step;
         options.on_step = [record, fault](const StepReport& report) { record(report), fault(); };
       }}};
  for (const auto& [name, breaks] : cases) {
    for (const std::int64_t every : {1, 4}) {
      SCOPED_TRACE(name + ", every " + std::to_string(every));
      const std::vector<StepReport> steps = resumed_after(every, breaks);
      ASSERT_EQ(steps.size(), 20U);
      std::int64_t samples = 0;
      for (std::size_t i = 0; i < steps.size(); ++i) {
        EXPECT_EQ(steps[i].training_step, static_cast<std::int64_t>(i) + 1);
        EXPECT_EQ(steps[i].learning_rate, 0.02);
        EXPECT_LT(steps[i].seconds, 10);
        if (steps[i].step_of_epoch == 1) samples = 0;
        samples += steps[i].step_of_epoch == kEpoch ? 26 : 32;
        EXPECT_EQ(steps[i].metrics[0].sums[1], samples) << i;
      }
    }
  }
}

/// A loss that forgets what was in the sum before.
class Forgetful final : public Loss<double> {
 public:
  explicit Forgetful(LossPointer<double> loss) : loss_(std::move(loss)) {}
  std::string name() const override { return "forgetful"; }
  void evaluate(const Execution& execution, const Tensor<double>& outputs, const BatchView<double>& batch, double scale,
                Tensor<double>* gradient, VectorView<double> sum) const override {
    sum.host()[0] = loss_sum(*loss_, execution, outputs, batch, scale, gradient);
  }

 private:
  const LossPointer<double> loss_;
};

TEST(Checks, ALossFindsAZeroInItsSum) {
  const auto loss_with = [](std::int64_t accumulate) {
    double loss = 0;
    run_replicas(1, [&](Communicator& replica) {
      const test::Data data;
      TrainerOptions options = options_for(3);
      options.accumulate = accumulate;
      Trainer<double> trainer(replica, Model<double>(test::kImage, test::mlp<double>()), data.training, nullptr,
                              options, std::make_shared<Forgetful>(cross_entropy_loss<double>()));
      loss = trainer.fit().loss;
    });
    return loss;
  };
  EXPECT_NEAR(loss_with(4), loss_with(1), 1e-12);
}

/// Requests are looked at about every second.
TEST(Checks, DoNotWaitForManySlowSteps) {
  TrainerOptions options = options_for(40);
  options.epochs = 100;
  options.global_batch = 4;  // 62 training steps an epoch
  options.check_every = 1'000'000;
  std::int64_t asked = 0;
  const Course course = follow(1, options, [&](TrainerOptions& mine, int) {
    mine.before_step = [](std::int64_t) { std::this_thread::sleep_for(std::chrono::milliseconds(50)); };
    mine.stop_requested = [&] { return ++asked, false; };
  })[0];
  EXPECT_EQ(course.report.training_steps, 40);
  EXPECT_GE(asked, 3) << "after the first step, about every 20, and at the end";
  EXPECT_LE(asked, 20);
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
