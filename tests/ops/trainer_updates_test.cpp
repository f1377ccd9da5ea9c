// SPDX-License-Identifier: Apache-2.0
// Parameter groups, the moving average and update rules of the program's own in trainings.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "followed_training.h"

namespace farandole::trainer {
namespace {

using test::contains;
using test::Course;
using test::errors_of;
using test::follow;
using test::follow_in_parts;
using test::options_for;

constexpr std::size_t kFirstLayer = 64 * 16 + 16;  // parameters of layer 0 of the MLP

std::vector<double> initial_parameters() {
  Model<double> model(test::kImage, test::mlp<double>());
  model.initialize(test::kSeed);
  return {model.parameters().host().begin(), model.parameters().host().end()};
}

TEST(Groups, FrozenLayersKeepTheirBitsOnEveryRank) {
  TrainerOptions options = options_for(12);
  options.clip_norm = 0.1;
  options.optimizer = {.kind = OptimizerKind::kAdamW, .weight_decay = 0.1};
  options.optimizer.groups = {{.pattern = "0.*", .trainable = false}};
  const std::vector<double> initial = initial_parameters();
  for (const Course& course : follow(3, options)) {
    for (std::size_t i = 0; i < course.parameters.size(); ++i) {
      ASSERT_EQ(course.parameters[i] == initial[i], i < kFirstLayer) << "parameter " << i;
    }
  }
}

TEST(Groups, APatternThatFitsNothingIsRefusedOnEveryRank) {
  TrainerOptions options = options_for(3);
  options.optimizer.groups = {{.pattern = "1.*", .rate_factor = 0.5}};
  for (const std::string& message : errors_of<InvalidArgument>(2, options)) {
    EXPECT_TRUE(contains(message, "the parameters are 0.dense.weight, 0.dense.bias, 2.dense.weight, 2.dense.bias"));
  }
}

/// SGD with momentum. Sums the squares of the gradients that it gets, and keeps their scale.
class Recorder : public UpdateRule<double> {
 public:
  struct Step {
    double squares = 0, scale = 0;
  };
  explicit Recorder(std::string name, std::vector<Step>* steps = nullptr) : name_(std::move(name)), steps_(steps) {}
  std::string name() const override { return name_; }
  std::vector<std::string> states() const override { return {"velocity"}; }
  void update(VectorView<double> parameters, VectorView<const double> all_gradients,
              std::span<const VectorView<double>> states, const UpdateFacts& facts) override {
    const std::span<double> values = parameters.host();
    const std::span<const double> gradients = all_gradients.host();
    if (steps_ != nullptr) {
      steps_->resize(static_cast<std::size_t>(facts.training_step) + 1);
      for (const double g : gradients) steps_->back().squares += g * g;
      steps_->back().scale = facts.scale();
    }
    for (std::size_t i = 0; i < values.size(); ++i) {
      states[0].host()[i] = 0.9 * states[0].host()[i] + facts.scale() * gradients[i];
      values[i] -= facts.learning_rate * states[0].host()[i];
    }
  }

 private:
  const std::string name_;
  std::vector<Step>* const steps_;
};

TrainerOptions with_own_rule(std::int64_t steps, const std::string& name = "recorder",
                             std::vector<Recorder::Step>* recorded = nullptr) {
  TrainerOptions options = options_for(steps);
  options.optimizer.kind = OptimizerKind::kOwn;
  options.optimizer.own.f64 = [=] { return std::make_unique<Recorder>(name, recorded); };
  return options;
}

TEST(Groups, FrozenParametersDoNotCountForClipping) {
  std::vector<Recorder::Step> steps;
  TrainerOptions options = with_own_rule(10, "recorder", &steps);
  options.clip_norm = 0.05;
  options.optimizer.groups = {{.pattern = "0.*", .trainable = false}};
  follow(1, options);
  ASSERT_EQ(steps.size(), 10U);
  for (const Recorder::Step& step : steps) EXPECT_NEAR(step.scale * std::sqrt(step.squares), 0.05, 1e-14);
}

TEST(OwnRule, TrainsLikeTheBuiltInOneAndResumes) {
  const auto courses = follow(2, with_own_rule(20));
  const Course built_in = follow(2, options_for(20))[0];
  for (std::size_t i = 0; i < built_in.parameters.size(); ++i) {
    ASSERT_NEAR(courses[0].parameters[i], built_in.parameters[i], 1e-12);
  }
  EXPECT_EQ(courses[1].parameters, courses[0].parameters);
  EXPECT_EQ(follow_in_parts(2, with_own_rule(20), {5, 16}).parameters, courses[0].parameters);
}

TEST(OwnRule, IsComparedByNameAcrossRanksAndWithTheCheckpoint) {
  for (const std::string& message : errors_of<Mismatch>(2, options_for(3), [](TrainerOptions&mine, int rank) {
         mine = with_own_rule(3, rank == 0 ? "recorder" : "other");
       })) {
    EXPECT_TRUE(contains(message, "the name of the own optimizer is recorder on rank 0"));
  }
  const test::TemporaryDirectory directory;
  TrainerOptions options = with_own_rule(3);
  options.checkpoints.directory = directory.path();
  follow(1, options);
  options = with_own_rule(6, "other");
  options.checkpoints = {.directory = directory.path(), .resume = true};
  EXPECT_TRUE(contains(errors_of<InvalidArgument>(1, options)[0],
                       "was written with optimizer recorder, but this training has other"));
}

TEST(OwnRule, AMakerForAnotherPrecisionIsRefused) {
  TrainerOptions options = options_for(3);
  options.optimizer.kind = OptimizerKind::kOwn;
  options.optimizer.own.f32 = [] { return make_update_rule<float>({}); };
  for (const std::string& message : errors_of<InvalidArgument>(2, options)) {
    EXPECT_TRUE(contains(message, "own.f64 is empty"));
  }
}

TrainerOptions averaging_options(std::int64_t steps) {
  TrainerOptions options = options_for(steps);
  options.optimizer.ema_decay = 0.9;
  options.evaluate_with_ema = true;
  return options;
}

TEST(Average, ChangesNoParameterAndIsTheSameOnEveryRank) {
  const auto courses = follow(3, averaging_options(20));
  EXPECT_EQ(courses[0].parameters, follow(3, options_for(20))[0].parameters);
  EXPECT_NE(courses[0].averages, courses[0].parameters);
  for (const Course& course : courses) EXPECT_EQ(course.averages, courses[0].averages);
  EXPECT_TRUE(follow(1, options_for(2))[0].averages.empty());
}

TEST(Average, IsResumedWithTheSameBits) {
  const Course whole = follow(2, averaging_options(20))[0];
  const Course parts = follow_in_parts(2, averaging_options(20), {3, 16});
  EXPECT_EQ(parts.averages, whole.averages);
  EXPECT_EQ(parts.report.test->loss, whole.report.test->loss);
}

/// Test loss of parameters, evaluated by a trainer that has no average.
double test_loss(const std::vector<double>& parameters) {
  double loss = 0;
  run_replicas(1, [&](Communicator& replica) {
    const test::Data data;
    Model<double> model(test::kImage, test::mlp<double>());
    std::copy(parameters.begin(), parameters.end(), model.parameters().host().begin());
    TrainerOptions plain = options_for(1);
    plain.initialize = false;
    Trainer<double> trainer(replica, std::move(model), data.training, data.test, plain);
    loss = trainer.evaluate(*data.test).loss;
  });
  return loss;
}

TEST(Average, IsEvaluatedWhereAsked) {
  const Course with = follow(2, averaging_options(20))[0];
  TrainerOptions options = averaging_options(20);
  options.evaluate_with_ema = false;
  const Course without = follow(2, options)[0];
  EXPECT_EQ(with.report.test->loss, test_loss(with.averages));
  EXPECT_EQ(without.report.test->loss, test_loss(with.parameters));
  EXPECT_NE(with.report.test->loss, without.report.test->loss);
}

TEST(Average, EvaluateUsesTheAverageAndRestoresTheParameters) {
  const std::vector<double> initial = initial_parameters();
  const double initial_loss = test_loss(initial);
  run_replicas(2, [&](Communicator& replica) {
    const test::Data data;
    Trainer<double> trainer(replica, Model<double>(test::kImage, test::mlp<double>()), data.training, data.test,
                            averaging_options(10));
    EXPECT_EQ(trainer.evaluate(*data.test).loss, initial_loss) << "no average before the first training step";
    EXPECT_TRUE(std::equal(initial.begin(), initial.end(), trainer.model().parameters().host().begin()));
    const EpochReport report = trainer.fit();
    const std::span<double> parameters = trainer.model().parameters().host();
    const std::vector<double> after(parameters.begin(), parameters.end());
    EXPECT_EQ(trainer.evaluate(*data.test).loss, report.test->loss);
    EXPECT_TRUE(std::equal(after.begin(), after.end(), parameters.begin()));
  });
}

TEST(Average, WrongOptionsSayWhatIsExpected) {
  TrainerOptions options = options_for(3);
  options.evaluate_with_ema = true;
  EXPECT_TRUE(contains(errors_of<InvalidArgument>(2, options)[1], "ema_decay is 0"));
  const test::TemporaryDirectory directory;
  options = options_for(3);
  options.checkpoints.directory = directory.path();
  follow(1, options);
  options.checkpoints.resume = true;
  options.max_steps = 6;
  EXPECT_EQ(follow(1, options)[0].report.training_steps, 6);
  options.optimizer.ema_decay = 0.5;
  EXPECT_TRUE(contains(errors_of<InvalidArgument>(1, options)[0],
                       "was written with parameter average none, but this training has exponential"));
}

}  // namespace
}  // namespace farandole::trainer
