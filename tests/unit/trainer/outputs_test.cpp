// SPDX-License-Identifier: Apache-2.0
// Losses and metrics of models with several outputs, and data with several inputs.
#include "farandole/trainer/outputs.h"
#include "farandole/trainer/augmentation.h"
#include "farandole/trainer/stream.h"

#include <gmock/gmock.h>

#include "farandole/core/error.h"
#include "layer_harness.h"
#include "message_of.h"

namespace farandole::trainer {
namespace {

using farandole::test::message_of;
using testing::ElementsAre;

/// Outputs of a class (3), a price (1) and a position (2), of which the class has labels.
const OutputParts kParts{{{"class", {3}}, {"price", {1}}, {"position", {2}}}, {"class"}};

std::vector<LossPart<double>> losses() {
  return {{"position", mean_absolute_error<double>(), 2},
          {"class", cross_entropy_loss<double>()},
          {"price", mean_squared_error<double>(), 0.5}};
}

Batch<double> truth() {
  Batch<double> batch;
  batch.labels = {2, 0};
  batch.targets.resize(2, {3});
  const double targets[] = {1, 2, 3, 4, 5, 6};
  std::copy(std::begin(targets), std::end(targets), batch.targets.data());
  batch.weights = {1, 3};
  return batch;
}

std::shared_ptr<const Dataset> data(std::int64_t targets, std::int32_t classes = 3) {
  Samples samples{.shape = {1}, .inputs = std::vector<float>{0, 0}, .target_shape = {targets}};
  if (classes > 0) samples.labels = {0, 1};
  samples.classes = classes;
  samples.targets.resize(static_cast<std::size_t>(2 * targets));
  return memory_dataset(samples);
}

TEST(CombinedLoss, IsTheWeightedSumOfItsParts) {
  const auto outputs = normal_tensor<double>(2, {6}, 70);
  const auto part = [&](std::int64_t first, std::int64_t count) {
    Tensor<double> result(2, {count});
    for (std::int64_t s = 0; s < 2; ++s) std::copy_n(outputs.data() + 6 * s + first, count, result.data() + count * s);
    return result;
  };
  const auto target = [&](std::int64_t first, std::int64_t count) {
    Batch<double> batch;
    batch.weights = {1, 3};
    batch.targets.resize(2, {count});
    const Batch<double> all = truth();
    for (std::int64_t s = 0; s < 2; ++s) {
      std::copy_n(all.targets.data() + 3 * s + first, count, batch.targets.data() + count * s);
    }
    return batch;
  };
  const double expected =
      loss_sum(*cross_entropy_loss<double>(), Execution(), part(0, 3), truth(), 1, nullptr) +
      0.5 * loss_sum(*mean_squared_error<double>(), Execution(), part(3, 1), target(0, 1), 1, nullptr) +
      2 * loss_sum(*mean_absolute_error<double>(), Execution(), part(4, 2), target(1, 2), 1, nullptr);
  const LossPointer<double> loss = combined_loss<double>(kParts, losses());
  EXPECT_DOUBLE_EQ(loss_sum(*loss, Execution(), outputs, truth(), 1, nullptr), expected);
  EXPECT_EQ(loss->name(),
            "combined 1 * cross_entropy of 'class' + 0.5 * mean_squared_error of 'price' + 2 * mean_absolute_error of "
            "'position'");
}

TEST(CombinedLoss, GradientMatchesCentralDifferences) {
  const LossPointer<double> loss = combined_loss<double>(kParts, losses());
  auto outputs = normal_tensor<double>(2, {6}, 71);
  Tensor<double> gradient, ignored;
  loss_sum(*loss, Execution(), outputs, truth(), 0.25, &gradient);
  for (std::int64_t i = 0; i < outputs.size(); ++i) {
    constexpr double kStep = 1e-6;
    const double value = outputs.data()[i];
    outputs.data()[i] = value + kStep;
    const double above = loss_sum(*loss, Execution(), outputs, truth(), 1, nullptr);
    outputs.data()[i] = value - kStep;
    const double below = loss_sum(*loss, Execution(), outputs, truth(), 1, nullptr);
    outputs.data()[i] = value;
    EXPECT_NEAR(gradient.data()[i], 0.25 * (above - below) / (2 * kStep), 1e-8) << i << ", seed " << kTestSeed;
  }
}

TEST(CombinedLoss, WrongPartsAreNamed) {
  const auto make = [](const std::function<void(std::vector<LossPart<double>>&)>& change) {
    std::vector<LossPart<double>> parts = losses();
    change(parts);
    combined_loss<double>(kParts, parts);
  };
  expect_invalid([&] { make([](auto& parts) { parts.pop_back(); }); }, {"no loss for output 'price'"});
  expect_invalid([&] { make([](auto& parts) { parts[0].output = "class"; }); }, {"two losses for output 'class'"});
  expect_invalid([&] { make([](auto& parts) { parts[0].output = "colour"; }); },
                 {"no output 'colour'", "class, price, position"});
  expect_invalid([&] { make([](auto& parts) { parts[0].loss = nullptr; }); }, {"loss of output 'position' is null"});
  expect_invalid([&] { make([](auto& parts) { parts[0].weight = -1; }); }, {"output 'position' has the weight -1"});
  expect_invalid([] { combined_loss<double>({kParts.outputs, {"clas"}}, losses()); }, {"no output 'clas'"});
  expect_invalid([] { combined_loss<double>({}, {}); }, {"without outputs"});
}

TEST(CombinedLoss, ChecksTheDataOfEveryPart) {
  const LossPointer<double> loss = combined_loss<double>(kParts, losses());
  EXPECT_NO_THROW(loss->check({6}, *data(3), "the data"));
  expect_invalid([&] { loss->check({7}, *data(3), "the data"); }, {"output 'class'", "output is 7", "6 elements"});
  expect_invalid([&] { loss->check({6}, *data(4), "the data"); },
                 {"output 'price'", "the data have targets of 4 elements", "have 3 together"});
  expect_invalid([&] { loss->check({6}, *data(3, 0), "the data"); }, {"output 'class'", "needs samples with classes"});
  expect_invalid([&] { loss->check({6}, *data(3, 5), "the data"); }, {"output 'class'", "have 5 classes"});
}

TEST(MetricOfOutput, SeesItsOutputAlone) {
  const auto right = metric_of_output<double>(kParts, "class", accuracy<double>());
  const auto error = metric_of_output<double>(kParts, "position", mean_absolute_error_metric<double>());
  EXPECT_EQ(right->name(), "class.accuracy");
  EXPECT_EQ(error->name(), "position.mean_absolute_error");
  EXPECT_TRUE(right->counts());
  EXPECT_NO_THROW(error->check({6}, *data(3), "the data"));
  Tensor<double> outputs(2, {6});
  const double values[] = {0, 1, 9, 100, 2, 5,  //
                           0, 1, 0, 100, 6, 6};
  std::copy(std::begin(values), std::end(values), outputs.data());
  std::vector<double> sums(right->sums({6}));
  right->add(Execution(), outputs, truth(), sums);
  EXPECT_THAT(sums, ElementsAre(1, 2));
  sums.assign(error->sums({6}), 0);
  error->add(Execution(), outputs, truth(), sums);
  EXPECT_DOUBLE_EQ(error->value(sums), (0 + 2 + 1 + 0) / 4.0);
  expect_invalid([] { metric_of_output<double>(kParts, "clas", accuracy<double>()); }, {"no output 'clas'"});
  expect_invalid([] { metric_of_output<double>(kParts, "class", nullptr); }, {"metric of output 'class' is null"});
}

Samples three_samples(const Shape& shape, float first) {
  Samples samples{.shape = shape};
  std::vector<float> inputs(static_cast<std::size_t>(3 * elements(shape)));
  for (float& input : inputs) input = first++;
  samples.inputs = std::move(inputs);
  return samples;
}

TEST(JoinedInputs, PutsSamplesTogether) {
  Samples left = three_samples({2}, 0), right = three_samples({1, 1}, 10), plain = three_samples({1}, 20);
  left.labels = {1, 0, 1};
  left.classes = 2;
  left.weights = {1, 2, 3};
  right.targets = {7, 8, 9};
  right.target_shape = {1};
  right.weights = {5, 5, 5};
  const auto joined = joined_inputs({memory_dataset(left), memory_dataset(right), memory_dataset(plain)});
  EXPECT_EQ(joined->size(), 3);
  EXPECT_EQ(joined->shape(), Shape({4}));
  EXPECT_EQ(joined->classes(), 2);
  EXPECT_EQ(joined->target_shape(), Shape({1}));
  Batch<double> batch;
  const std::vector<std::uint32_t> samples{2, 0};
  joined->gather(samples, batch);
  EXPECT_THAT(batch.inputs.host(), ElementsAre(4, 5, 12, 22, 0, 1, 10, 20));
  EXPECT_THAT(batch.labels, ElementsAre(1, 1));
  EXPECT_THAT(batch.targets.host(), ElementsAre(9, 7));
  EXPECT_THAT(batch.weights, ElementsAre(15, 5));

  plain.targets = {1, 2, 3, 4, 5, 6};
  plain.target_shape = {2};
  const auto both = joined_inputs({memory_dataset(right), memory_dataset(plain)});
  EXPECT_EQ(both->target_shape(), Shape({3}));
  both->gather(samples, batch);
  EXPECT_THAT(batch.targets.host(), ElementsAre(9, 5, 6, 7, 1, 2));
  EXPECT_TRUE(batch.labels.empty());
  EXPECT_NE(both->checksum(), joined->checksum());
}

TEST(JoinedInputs, KeepAugmentationAndStreams) {
  Samples images = three_samples({2, 2, 1}, 0), ages = three_samples({1}, 20);
  images.labels = {1, 0, 1};
  images.classes = 2;
  const auto changed = augmented(memory_dataset(images), {.cutout = 2, .mixup = 0.4});
  const auto joined = joined_inputs({changed, memory_dataset(ages)});
  EXPECT_TRUE(joined->targets_are_probabilities());
  EXPECT_EQ(joined->for_replica(), nullptr);
  const std::vector<std::uint32_t> samples{2, 0};
  const TrainingDraw draw{.seed = 3, .epoch = 1};
  Batch<double> alone, together;
  changed->gather_for_training(samples, draw, alone);
  joined->gather_for_training(samples, draw, together);
  EXPECT_TRUE(together.targets_are_probabilities);
  for (std::int64_t i = 0; i < 2; ++i) {
    for (std::int64_t k = 0; k < 4; ++k) EXPECT_EQ(together.inputs.data()[5 * i + k], alone.inputs.data()[4 * i + k]);
  }
  EXPECT_EQ(together.inputs.data()[4], 22);
  EXPECT_THAT(together.targets.host(), testing::ElementsAreArray(alone.targets.host()));

  const auto stream = stream_dataset({.shape = {1}, .samples_per_epoch = 3},
                                     [] { return [](StreamSample& sample) { sample.input[0] += 1; }; });
  const auto with_stream = joined_inputs({stream, memory_dataset(ages)});
  EXPECT_TRUE(with_stream->is_sequential());
  ASSERT_NE(with_stream->for_replica(), nullptr);
  Batch<float> batch;
  with_stream->for_replica()->gather(std::vector<std::uint32_t>{0, 1}, batch);
  EXPECT_THAT(batch.inputs.host(), ElementsAre(1, 20, 2, 21));
}

TEST(JoinedInputs, DataThatDoNotFitAreRefused) {
  Samples labelled = three_samples({1}, 0);
  labelled.labels = {0, 1, 0};
  labelled.classes = 2;
  const auto classes = memory_dataset(labelled), more = synthetic_dataset(4, {1}, 2, 1);
  expect_invalid([] { joined_inputs({}); }, {"no data sets"});
  expect_invalid([&] { joined_inputs({classes, nullptr}); }, {"data set 1 is null"});
  expect_invalid([&] { joined_inputs({classes, more}); }, {"data set 0 has 3 samples, and data set 1 has 4"});
  expect_invalid([&] { joined_inputs({classes, classes}); }, {"2 data sets have classes"});
}

/// Samples of three classes, mixed.
std::shared_ptr<const Dataset> with_mixed_classes() {
  const auto plain =
      memory_dataset({.shape = {1}, .inputs = std::vector<float>{0, 1, 2, 3}, .labels = {0, 1, 2, 0}, .classes = 3});
  return augmented(plain, {.mixup = 1});
}

TEST(CombinedLoss, TakesTheProbabilitiesOfMixedClasses) {
  const auto data = with_mixed_classes();
  const OutputParts parts{{{"class", {3}}, {"other", {3}}}, {"class", "other"}};
  const auto one = cross_entropy_loss<double>();
  const auto both = combined_loss<double>(parts, {{"class", one}, {"other", one, 0}});
  ASSERT_NO_THROW(both->check({6}, *data, "the data"));
  Batch<double> batch;
  data->gather_for_training(std::vector<std::uint32_t>{0, 1, 2, 3}, {1, 0}, batch);
  const auto outputs = normal_tensor<double>(4, {6}, 71);
  Tensor<double> of_class(4, {3});
  for (std::int64_t s = 0; s < 4; ++s) std::copy_n(outputs.data() + 6 * s, 3, of_class.data() + 3 * s);
  EXPECT_EQ(loss_sum(*both, Execution(), outputs, batch, 1, nullptr),
            loss_sum(*one, Execution(), of_class, batch, 1, nullptr));
}

TEST(CombinedLoss, HasNoTargetsBesideTheProbabilitiesOfClasses) {
  const OutputParts parts{{{"class", {3}}, {"position", {3}}}, {"class"}};
  const auto loss = combined_loss<double>(
      parts, {{"class", cross_entropy_loss<double>()}, {"position", mean_squared_error<double>()}});
  EXPECT_THAT(message_of<InvalidArgument>([&] { loss->check({6}, *with_mixed_classes(), "the data"); }),
              testing::HasSubstr("output 'position': the targets of the data are probabilities of classes"));
}

}  // namespace
}  // namespace farandole::trainer
