// SPDX-License-Identifier: Apache-2.0
// Metrics of trainings and evaluations, built in and of the program.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <stdexcept>
#include <string>
#include <utility>

#include "farandole/core/error.h"
#include "farandole/trainer/random.h"
#include "small_training.h"
#include "trainer_files.h"

namespace farandole::trainer {
namespace {

using test::layers;
using test::options_for;
using testing::AllOf;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr std::int64_t kCount = 250;  // 8 training steps per epoch, of which the last has 26 samples

/// Points with a class, the sector in which they lie, and three targets.
std::shared_ptr<const Dataset> points(bool with_classes = true) {
  Samples samples{.shape = {2}, .target_shape = {3}};
  std::vector<float> inputs;
  const CounterRandom random(7, 0);
  for (std::uint64_t i = 0; i < kCount; ++i) {
    const double x = random.normal(2 * i), y = random.normal(2 * i + 1);
    inputs.insert(inputs.end(), {static_cast<float>(x), static_cast<float>(y)});
    if (with_classes) samples.labels.push_back(x > std::abs(y) ? 0 : y > 0 ? 1 : 2);
    for (const double target : {x, y, x * y}) samples.targets.push_back(static_cast<float>(target));
  }
  samples.inputs = std::move(inputs);
  samples.classes = with_classes ? 3 : 0;
  return memory_dataset(samples);
}

/// Fraction of the outputs that are closer to their targets than 1/4. Throws on the replica of a rank.
class Close final : public Metric<double> {
 public:
  enum class Fault { kNone, kAdd, kValue };
  explicit Close(Fault fault = Fault::kNone) : fault_(fault) {}

  std::string name() const override { return "close"; }
  std::size_t sums(const Shape&) const override { return 2; }
  void add(const Execution&, const Tensor<double>& outputs, const BatchView<double>& batch,
           VectorView<double> sums) const override {
    if (fault_ == Fault::kAdd) throw std::runtime_error("no addition");
    for (std::size_t i = 0; i < outputs.host().size(); ++i) {
      sums.host()[0] += std::abs(outputs.host()[i] - batch.targets.host()[i]) < 0.25;
    }
    sums.host()[1] += static_cast<double>(outputs.size());
  }
  double value(std::span<const double> sums) const override {
    if (fault_ == Fault::kValue) throw std::runtime_error("no value");
    return sums[0] / sums[1];
  }

 private:
  const Fault fault_;
};

using Metrics = std::vector<MetricPointer<double>>;

Metrics many() {
  return {accuracy<double>(),
          top_k_accuracy<double>(2),
          confusion_matrix<double>(),
          mean_absolute_error_metric<double>(),
          mean_squared_error_metric<double>(),
          binary_accuracy<double>(),
          std::make_shared<Close>()};
}

struct Plan {
  TrainerOptions options = options_for(11);  // ends in the second epoch
  Metrics metrics = many();
  std::shared_ptr<const Dataset> training = points(), test = training;
  LossPointer<double> loss = cross_entropy_loss<double>();
};

Trainer<double> trainer_of(Communicator& replica, const Plan& plan) {
  Model<double> model({2},
                      layers<double>({[] { return dense<double>(8); }, relu<double>, [] { return dense<double>(3); }}));
  return {replica, std::move(model), plan.training, plan.test, plan.options, plan.loss, plan.metrics};
}

/// The reports of rank 0, and rank 0's predictions after the training.
struct Seen {
  std::vector<StepReport> steps;
  EpochReport report;
  Tensor<double> outputs;
};

Seen train(int replicas, const Plan& plan) {
  Seen seen;
  run_replicas(replicas, [&](Communicator& replica) {
    Plan mine = plan;
    if (replica.rank() == 0) mine.options.on_step = [&](const StepReport& step) { seen.steps.push_back(step); };
    Trainer<double> trainer = trainer_of(replica, mine);
    const EpochReport report = trainer.fit();
    Tensor<double> outputs = trainer.predict(*plan.training);
    if (replica.rank() == 0) seen.report = report, seen.outputs = std::move(outputs);
  });
  return seen;
}

std::vector<std::vector<double>> sums_of(const std::vector<MetricResult>& metrics) {
  std::vector<std::vector<double>> sums;
  for (const MetricResult& metric : metrics) sums.push_back(metric.sums);
  return sums;
}

std::vector<std::string> names_of(const std::vector<MetricResult>& metrics) {
  std::vector<std::string> names;
  for (const MetricResult& metric : metrics) names.push_back(metric.name);
  return names;
}

Batch<double> all_samples(const Dataset& data) {
  std::vector<std::uint32_t> all(static_cast<std::size_t>(data.size()));
  std::iota(all.begin(), all.end(), 0U);
  Batch<double> batch;
  data.gather(all, batch);
  return batch;
}

TEST(Metrics, AccuracyIsTheDefaultForSamplesWithClasses) {
  const Seen seen = train(3, {.metrics = {}});
  ASSERT_EQ(seen.steps.size(), 11U);
  EXPECT_THAT(names_of(seen.steps[0].metrics), ElementsAre("accuracy"));
  EXPECT_THAT(names_of(seen.report.metrics), ElementsAre("accuracy"));
  EXPECT_THAT(names_of(seen.report.test->metrics), ElementsAre("accuracy"));
  EXPECT_EQ(seen.steps[7].metrics[0].sums[1], 250) << "a step's metrics cover the epoch so far";
  EXPECT_EQ(seen.steps[8].metrics[0].sums[1], 32) << "the next epoch begins with zeros";
  EXPECT_EQ(seen.report.metric("accuracy"), seen.steps[10].metric("accuracy"));
  std::vector<double> sums(2);
  accuracy<double>()->add(Execution(), seen.outputs, all_samples(*points()), sums);
  EXPECT_EQ(seen.report.test->metric("accuracy"), sums[0] / kCount);
}

TEST(Metrics, TargetsAloneHaveNoDefault) {
  EXPECT_TRUE(train(2, {.metrics = {}, .training = points(false), .loss = mean_squared_error<double>()})
                  .report.metrics.empty());
}

TEST(Metrics, DefaultAccuracyIgnoresDataWithoutClasses) {
  run_replicas(2, [](Communicator& replica) {
    const Plan plan{.metrics = {}, .loss = mean_squared_error<double>()};
    Trainer<double> trainer = trainer_of(replica, plan);
    EXPECT_GE(trainer.evaluate(*plan.training).metric("accuracy"), 0);
    EXPECT_TRUE(std::isnan(trainer.evaluate(*points(false)).metric("accuracy")));
  });
}

/// Evaluates an untrained model, which is the same on any number of replicas. Returns the sums of all metrics.
std::vector<std::vector<double>> evaluated_by(int replicas, Tensor<double>* outputs = nullptr) {
  std::vector<std::vector<double>> sums;
  run_replicas(replicas, [&](Communicator& replica) {
    const Plan plan;
    Trainer<double> trainer = trainer_of(replica, plan);
    const Evaluation evaluation = trainer.evaluate(*plan.training);
    if (outputs != nullptr) *outputs = trainer.predict(*plan.training);
    if (replica.rank() == 0) sums = sums_of(evaluation.metrics);
  });
  return sums;
}

TEST(Metrics, EvaluationIsExactForAnyNumberOfReplicas) {
  Tensor<double> outputs;
  const auto expected = evaluated_by(1, &outputs);
  const Batch<double> batch = all_samples(*points());
  const Metrics metrics = many();
  for (std::size_t i = 0; i < metrics.size(); ++i) {
    std::vector<double> sums(expected[i].size());
    metrics[i]->add(Execution(), outputs, batch, sums);
    EXPECT_THAT(expected[i], testing::Pointwise(testing::DoubleNear(1e-11), sums)) << metrics[i]->name();
  }
  const std::vector<double>& matrix = expected[2];
  EXPECT_EQ(std::accumulate(matrix.begin(), matrix.end(), 0.0), kCount);
  EXPECT_EQ(matrix[0] + matrix[4] + matrix[8], expected[0][0]) << "the diagonal holds the right labels";
  for (const int replicas : {2, 3, 5, 8}) EXPECT_EQ(evaluated_by(replicas), expected) << replicas << " replicas";
}

TEST(Metrics, HaveTheSameBitsOnAnyNumberOfReplicas) {
  Plan plan;
  plan.options.deterministic = true;
  const Seen alone = train(1, plan);
  for (const int replicas : {2, 4, 8}) {
    const Seen together = train(replicas, plan);
    ASSERT_EQ(together.steps.size(), alone.steps.size());
    for (std::size_t i = 0; i < alone.steps.size(); ++i) {
      EXPECT_EQ(sums_of(together.steps[i].metrics), sums_of(alone.steps[i].metrics)) << i << " on " << replicas;
    }
    EXPECT_EQ(sums_of(together.report.metrics), sums_of(alone.report.metrics));
  }
}

TEST(Metrics, CoverTheGlobalBatchWhateverItsParts) {
  const Seen alone = train(1, {});
  Plan plan;
  plan.options.accumulate = 3;
  const Seen parts = train(3, plan);
  for (std::size_t i = 0; i < alone.steps.size(); ++i) {
    for (std::size_t metric = 0; metric < plan.metrics.size(); ++metric) {
      EXPECT_THAT(parts.steps[i].metrics[metric].sums,
                  testing::Pointwise(testing::DoubleNear(1e-10), alone.steps[i].metrics[metric].sums))
          << plan.metrics[metric]->name() << ", training step " << i;
    }
  }
}

TEST(Metrics, OfAnEpochSurviveAResume) {
  Plan plan;
  plan.options.deterministic = true;
  plan.options.max_steps = 14;
  const Seen whole = train(1, plan);
  const test::TemporaryDirectory directory;
  plan.options.checkpoints.directory = directory.path();
  for (const auto& [replicas, stop] : {std::pair{2, 3}, {8, 8}, {4, 10}, {1, 14}}) {
    plan.options.max_steps = stop;
    const Seen part = train(replicas, plan);
    EXPECT_EQ(sums_of(part.report.metrics), sums_of(whole.steps[static_cast<std::size_t>(stop) - 1].metrics)) << stop;
    plan.options.checkpoints.resume = true;
  }
}

TEST(Metrics, ThatACheckpointLacksBeginWithZeros) {
  const test::TemporaryDirectory directory;
  Plan plan{.metrics = {accuracy<double>(), mean_squared_error_metric<double>()}};
  plan.options.checkpoints.directory = directory.path();
  plan.options.max_steps = 5;
  train(2, plan);
  plan.options.checkpoints.resume = true;
  plan.options.max_steps = 7;
  plan.metrics = {mean_absolute_error_metric<double>(), accuracy<double>()};
  const Seen resumed = train(2, plan);
  EXPECT_EQ(resumed.report.metrics[0].sums[1], 2 * 32);
  EXPECT_EQ(resumed.report.metrics[1].sums[1], 7 * 32);
}

TEST(Metrics, AResumeGivesTheSumsToEveryRank) {
  const test::TemporaryDirectory directory;
  Plan plan;
  plan.options.checkpoints.directory = directory.path();
  plan.options.max_steps = 3;
  train(1, plan);
  plan.options.checkpoints.resume = true;
  plan.options.max_steps = 5;
  std::vector<std::vector<std::vector<double>>> sums(3);
  run_replicas(3, [&](Communicator& replica) {
    sums[static_cast<std::size_t>(replica.rank())] = sums_of(trainer_of(replica, plan).fit().metrics);
  });
  EXPECT_EQ(sums[0][0][1], 5 * 32) << "samples of the accuracy";
  EXPECT_THAT(sums, Each(sums[0]));
}

/// Each sum counts the samples.
class Counter final : public Metric<double> {
 public:
  explicit Counter(std::string name, std::size_t sums) : name_(std::move(name)), sums_(sums) {}
  std::string name() const override { return name_; }
  std::size_t sums(const Shape&) const override { return sums_; }
  void add(const Execution&, const Tensor<double>& outputs, const BatchView<double>&,
           VectorView<double> sums) const override {
    for (double& sum : sums.host()) sum += static_cast<double>(outputs.samples());
  }
  double value(std::span<const double> sums) const override { return sums[0]; }

 private:
  const std::string name_;
  const std::size_t sums_;
};

TEST(Metrics, OfAnotherNumberOfSumsBeginWithZeros) {
  const test::TemporaryDirectory directory;
  Plan plan{.metrics = {std::make_shared<Counter>("samples", 3), std::make_shared<Counter>("rows", 2)}};
  plan.options.checkpoints.directory = directory.path();
  plan.options.max_steps = 5;
  train(2, plan);
  plan.options.checkpoints.resume = true;
  plan.options.max_steps = 7;
  plan.metrics[0] = std::make_shared<Counter>("samples", 1);
  const Seen resumed = train(2, plan);
  EXPECT_THAT(resumed.report.metrics[0].sums, ElementsAre(2 * 32));
  EXPECT_THAT(resumed.report.metrics[1].sums, ElementsAre(7 * 32, 7 * 32));
}

TEST(Metrics, OfAReplicaAloneCoverItsOwnSamples) {
  Plan plan;
  plan.options.averaging = false;
  EXPECT_EQ(train(2, plan).steps[0].metrics[0].sums[1], 16);
}

TEST(OwnMetric, ThatThrowsOnOneRankEndsAll) {
  for (const auto& [fault, text] : {std::pair{Close::Fault::kAdd, "Metric::add threw: no addition"},
                                    {Close::Fault::kValue, "Metric::value threw: no value"}}) {
    const auto messages = test::errors_of(3, [&, fault = fault](Communicator& replica) {
      Plan plan;
      plan.options.on_step = [](const StepReport&) {};
      plan.metrics = {std::make_shared<Close>(replica.rank() == 1 ? fault : Close::Fault::kNone)};
      trainer_of(replica, plan).fit();
    });
    EXPECT_THAT(messages[1], testing::StartsWith("no "));
    for (const std::size_t other : {0, 2}) {
      EXPECT_THAT(messages[other],
                  AllOf(HasSubstr("PeerLost"), HasSubstr("rank 1 has stopped training"), HasSubstr(text)));
    }
  }
}

TEST(OwnMetric, ThatThrowsInAnEvaluationEndsAll) {
  const auto messages = test::errors_of(2, [](Communicator& replica) {
    Plan plan;
    plan.metrics = {std::make_shared<Close>(replica.rank() == 0 ? Close::Fault::kAdd : Close::Fault::kNone)};
    trainer_of(replica, plan).evaluate(*plan.training);
  });
  EXPECT_EQ(messages[0], "no addition");
  EXPECT_THAT(messages[1], HasSubstr("because an evaluation threw: no addition"));
}

/// Errors of a trainer's constructor on each rank. The communicator stays usable.
template <class Kind>
std::vector<std::string> refusals(const Plan& plan, const Metrics& of_rank_1) {
  std::vector<std::string> messages(2);
  run_replicas(2, [&](Communicator& replica) {
    Plan mine = plan;
    if (replica.rank() == 1) mine.metrics = of_rank_1;
    messages[static_cast<std::size_t>(replica.rank())] =
        farandole::test::message_of<Kind>([&] { trainer_of(replica, mine); });
    replica.barrier();
  });
  return messages;
}

void expect_refused(const Plan& plan, const std::string& text) {
  EXPECT_THAT(refusals<InvalidArgument>(plan, plan.metrics), Each(HasSubstr(text)));
}

class Huge final : public Metric<double> {
 public:
  std::string name() const override { return "huge"; }
  std::size_t sums(const Shape&) const override { return (1 << 20) - 1; }
  void add(const Execution&, const Tensor<double>&, const BatchView<double>&, VectorView<double>) const override {}
  double value(std::span<const double>) const override { return 0; }
};

TEST(Metrics, ThatDoNotFitAreRefusedOnEveryRank) {
  expect_refused({.metrics = {accuracy<double>(), accuracy<double>()}}, "two metrics have the name 'accuracy'");
  expect_refused({.metrics = {accuracy<double>(), nullptr}}, "metric 1 of the trainer is null");
  expect_refused({.metrics = {std::make_shared<Counter>("", 1)}}, "Metric::name has returned an empty text");
  expect_refused({.metrics = {top_k_accuracy<double>(4)}}, "top_4_accuracy needs at least 4 outputs per label");
  expect_refused({.training = points(false), .loss = mean_squared_error<double>()},
                 "accuracy needs samples with classes, and the training data have none");
  expect_refused({.test = points(false), .loss = mean_squared_error<double>()},
                 "accuracy needs samples with classes, and the test data have none");
  expect_refused({.metrics = {std::make_shared<Huge>(), accuracy<double>()}},
                 "with the metric accuracy the metrics need 1048577 sums; a trainer takes at most 1048576");
}

TEST(Metrics, AreComparedAcrossRanks) {
  EXPECT_THAT(refusals<Mismatch>({.metrics = {accuracy<double>()}}, {confusion_matrix<double>(), accuracy<double>()}),
              Each(AllOf(HasSubstr("the list of metrics is accuracy on rank 0"),
                         HasSubstr("confusion_matrix; accuracy on rank 1"))));
}

TEST(Metrics, MustFitTheDataToEvaluate) {
  run_replicas(2, [](Communicator& replica) {
    Trainer<double> trainer = trainer_of(replica, {.loss = mean_squared_error<double>()});
    EXPECT_THAT(farandole::test::message_of<InvalidArgument>([&] { trainer.evaluate(*points(false)); }),
                HasSubstr("accuracy needs samples with classes, and the data to evaluate have none"));
    EXPECT_NO_THROW(trainer.evaluate(*points()));
  });
}

}  // namespace
}  // namespace farandole::trainer
