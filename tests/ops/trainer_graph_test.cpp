// SPDX-License-Identifier: Apache-2.0
// Trainings of a graph with two inputs, a shared layer, skips and two outputs, and of gpt: the number of replicas does
// not matter, and checkpoints describe the model.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>

#include "farandole/core/error.h"
#include "farandole/trainer/checkpoint.h"
#include "farandole/trainer/outputs.h"
#include "farandole/trainer/parameters.h"
#include "farandole/trainer/random.h"
#include "message_of.h"
#include "small_training.h"
#include "trainer_files.h"

namespace farandole::trainer {
namespace {

using test::contains;
using test::kSeed;
using test::options_for;

constexpr std::int64_t kCount = 250;  // the last batch of an epoch has 26 samples

/// Two points of the plane, whether they are close, and their difference.
std::shared_ptr<const Dataset> pairs() {
  Samples left{.shape = {2}, .target_shape = {2}}, right{.shape = {2}};
  std::vector<float> of_left, of_right;
  const CounterRandom random(kSeed, 9);
  for (std::uint64_t i = 0; i < kCount; ++i) {
    const double a = random.normal(4 * i), b = random.normal(4 * i + 1), c = random.normal(4 * i + 2),
                 d = random.normal(4 * i + 3);
    of_left.insert(of_left.end(), {static_cast<float>(a), static_cast<float>(b)});
    of_right.insert(of_right.end(), {static_cast<float>(c), static_cast<float>(d)});
    left.labels.push_back(std::hypot(a - c, b - d) < 1.5 ? 1 : 0);
    left.targets.insert(left.targets.end(), {static_cast<float>(a - c), static_cast<float>(b - d)});
  }
  left.inputs = std::move(of_left);
  left.classes = 2;
  right.inputs = std::move(of_right);
  return joined_inputs({memory_dataset(left), memory_dataset(right)});
}

template <class Scalar>
Model<Scalar> siamese(std::int64_t units = 8) {
  GraphBuilder<Scalar> graph;
  const Node left = graph.input("left", {2}), right = graph.input("right", {2});
  const SharedLayer tower = graph.shared(sequence<Scalar>(trainer::layers<Scalar>(
                                             dense<Scalar>(units), hyperbolic_tangent<Scalar>(), dropout<Scalar>(0.1))),
                                         "tower");
  const Node a = graph.add(tower, left), b = graph.add(tower, right);
  const Node seen = graph.add(batch_normalization<Scalar>(), graph.concatenate({a, b, graph.multiply({a, b})}));
  const Node deep =
      graph.sum({seen, graph.add(trainer::layers<Scalar>(dense<Scalar>(3 * units), relu<Scalar>()), seen)});
  graph.output("close", graph.add(dense<Scalar>(2), deep));
  graph.output("difference",
               graph.add(dense<Scalar>(2), graph.concatenate({graph.slice(deep, 0, units), left, right})));
  return Model<Scalar>(std::move(graph));
}

template <class Scalar>
struct Outcome {
  std::vector<double> losses;
  std::vector<Scalar> values;
  EpochReport report;
};

template <class Scalar>
using TrainerMaker = std::function<Trainer<Scalar>(Communicator&, const TrainerOptions&)>;

template <class Scalar>
Trainer<Scalar> siamese_trainer(Communicator& replica, const TrainerOptions& options) {
  const auto data = pairs();
  Model<Scalar> model = siamese<Scalar>();
  const OutputParts parts{model.outputs(), {"close"}};
  const auto loss = combined_loss<Scalar>(
      parts, {{"close", cross_entropy_loss<Scalar>()}, {"difference", mean_squared_error<Scalar>(), 0.25}});
  return Trainer<Scalar>(replica, std::move(model), data, data, options, loss,
                         {metric_of_output<Scalar>(parts, "close", accuracy<Scalar>())});
}

/// Trains to predict the next character of each position, of a text in which each is a function of the one before, save
/// for noise.
template <class Scalar>
Trainer<Scalar> gpt_trainer(Communicator& replica, const TrainerOptions& options) {
  constexpr std::int64_t kLength = 6, kCharacters = 7;
  Samples samples{.shape = {kLength}, .classes = kCharacters, .labels_per_sample = kLength};
  std::vector<float> inputs;
  const CounterRandom random(kSeed, 10);
  for (std::int64_t i = 0, character = 0; i < kCount * kLength; ++i) {
    inputs.push_back(static_cast<float>(character));
    character = (3 * character + (random.normal(static_cast<std::uint64_t>(i)) > 1 ? 2 : 1)) % kCharacters;
    samples.labels.push_back(static_cast<std::int32_t>(character));
  }
  samples.inputs = std::move(inputs);
  const auto data = memory_dataset(std::move(samples));
  const ModelOptions sizes{
      .input = {kLength}, .vocabulary = kCharacters, .blocks = 2, .units = 8, .heads = 2, .dropout = 0.1};
  return Trainer<Scalar>(replica, Model<Scalar>(sizes.input, layers_of<Scalar>("gpt", sizes)), data, data, options);
}

template <class Scalar>
Outcome<Scalar> train(int replicas, const TrainerOptions& options,
                      const TrainerMaker<Scalar>& make_trainer = siamese_trainer<Scalar>) {
  Outcome<Scalar> outcome;
  run_replicas(replicas, [&](Communicator& replica) {
    TrainerOptions mine = options;
    const bool first = replica.rank() == 0;
    if (first) mine.on_step = [&](const StepReport& report) { outcome.losses.push_back(report.loss); };
    Trainer<Scalar> trainer = make_trainer(replica, mine);
    const EpochReport report = trainer.fit();
    if (!first) return;
    outcome.report = report;
    const auto parameters = trainer.model().parameters().host(), statistics = trainer.model().statistics().host();
    outcome.values.assign(parameters.begin(), parameters.end());
    outcome.values.insert(outcome.values.end(), statistics.begin(), statistics.end());
  });
  return outcome;
}

template <class Scalar>
void expect_same_bits(const TrainerMaker<Scalar>& make_trainer) {
  TrainerOptions options = options_for(12);
  options.deterministic = true;
  const Outcome<Scalar> one = train<Scalar>(1, options, make_trainer);
  ASSERT_EQ(one.losses.size(), 12U);
  for (const int replicas : {2, 4}) {
    const Outcome<Scalar> more = train<Scalar>(replicas, options, make_trainer);
    EXPECT_EQ(more.losses, one.losses) << replicas;
    ASSERT_EQ(more.values.size(), one.values.size());
    EXPECT_EQ(std::memcmp(more.values.data(), one.values.data(), one.values.size() * sizeof(Scalar)), 0) << replicas;
    EXPECT_EQ(more.report.test->loss, one.report.test->loss) << replicas;
  }
}

TEST(TrainGraph, DeterministicBitsDoNotDependOnReplicas) {
  expect_same_bits<float>(siamese_trainer<float>);
  expect_same_bits<double>(siamese_trainer<double>);
}

TEST(TrainGraph, DeterministicBitsOfGptDoNotDependOnReplicas) {
  expect_same_bits<float>(gpt_trainer<float>);
  expect_same_bits<double>(gpt_trainer<double>);
}

TEST(TrainGraph, GptLearns) {
  TrainerOptions options = options_for(160);
  options.optimizer.kind = OptimizerKind::kAdamW;
  options.learning_rate.base = 0.01;
  const Outcome<float> two = train<float>(2, options, gpt_trainer<float>);
  EXPECT_LT(two.losses.back(), two.losses.front() / 2);
}

TEST(TrainGraph, LearnsBothOutputs) {
  TrainerOptions options = options_for(160);
  options.learning_rate.base = 0.1;
  const Outcome<double> one = train<double>(1, options), two = train<double>(2, options);
  EXPECT_LT(one.losses.back(), one.losses.front() / 2);
  EXPECT_GT(one.report.test->metric("close.accuracy"), 0.85);
  EXPECT_GT(two.report.test->metric("close.accuracy"), 0.85);
}

TEST(TrainGraph, SeveralOutputsNeedALossAndHaveNoDefaultMetric) {
  const auto data = pairs();
  run_replicas(2, [&](Communicator& replica) {
    const std::string message = farandole::test::message_of<InvalidArgument>(
        [&] { Trainer<double>(replica, siamese<double>(), data, data, options_for(3)); });
    EXPECT_TRUE(contains(message, "combined_loss")) << message;
    Model<double> model = siamese<double>();
    const OutputParts parts{model.outputs(), {"close"}};
    const auto loss = combined_loss<double>(
        parts, {{"close", cross_entropy_loss<double>()}, {"difference", mean_squared_error<double>()}});
    Trainer<double> trainer(replica, std::move(model), data, data, options_for(3), loss);
    EXPECT_TRUE(trainer.fit().metrics.empty()) << "the largest of all four outputs is no class";
  });
}

TEST(TrainGraph, CheckpointsDescribeTheModel) {
  const test::TemporaryDirectory directory;
  TrainerOptions options = options_for(3);
  options.checkpoints.directory = directory.path() / "checkpoints";
  options.optimizer.ema_decay = 0.5;
  const Outcome<float> trained = train<float>(2, options);
  const LoadedCheckpoint found = describe_checkpoint(options.checkpoints.directory);
  EXPECT_EQ(found.path.filename(), "step-000003");
  EXPECT_EQ(found.state.training_step, 3);
  EXPECT_EQ(found.state.model, siamese<float>().description());

  Model<float> same = siamese<float>();
  load_parameters(options.checkpoints.directory, same);
  EXPECT_TRUE(std::equal(same.parameters().host().begin(), same.parameters().host().end(), trained.values.begin()));
  Model<float> other = siamese<float>(7);
  const std::string text =
      farandole::test::message_of<InvalidArgument>([&] { load_parameters(options.checkpoints.directory, other); });
  EXPECT_TRUE(contains(text, "this model has 'tower.0.dense.weight' of shape 2x7"));
  EXPECT_TRUE(contains(text, "The checkpoint's model is " + describe(*found.state.model)));
  EXPECT_TRUE(contains(text, "this model is " + describe(other.description())));
}

}  // namespace
}  // namespace farandole::trainer
