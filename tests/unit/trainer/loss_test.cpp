// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <limits>

#include "farandole/core/error.h"
#include "farandole/trainer/loss.h"
#include "layer_harness.h"
#include "message_of.h"

namespace farandole::trainer {
namespace {

TEST(SoftmaxCrossEntropy, GradientMatchesCentralDifferences) {
  Tensor<double> logits = normal_tensor<double>(5, {7}, 70, 3), gradient;
  const std::vector<std::int32_t> labels{0, 6, 3, 3, 1};
  constexpr double kScale = 0.125, kStep = 1e-5;
  softmax_cross_entropy<double>(logits, labels, kScale, &gradient);
  for (std::int64_t i = 0; i < logits.size(); ++i) {
    const double value = logits.data()[i];
    logits.data()[i] = value + kStep;
    const double above = softmax_cross_entropy<double>(logits, labels, 1, nullptr);
    logits.data()[i] = value - kStep;
    const double below = softmax_cross_entropy<double>(logits, labels, 1, nullptr);
    logits.data()[i] = value;
    EXPECT_NEAR(gradient.data()[i], kScale * (above - below) / (2 * kStep), 1e-9) << i << ", seed " << kTestSeed;
  }
}

TEST(SoftmaxCrossEntropy, KnownValues) {
  Tensor<float> logits(3, {4});
  const float values[] = {0, 0, 0, 0, 1000, 0, 0, -1000, 1, 2, 3, 2};
  std::copy(std::begin(values), std::end(values), logits.data());
  const std::vector<std::int32_t> labels{2, 0, 1};
  const double loss_sum = softmax_cross_entropy<float>(logits, labels, 1, nullptr);
  const double third = std::log(std::exp(-1) + 1 + std::exp(1) + 1);
  EXPECT_NEAR(loss_sum, std::log(4) + 0 + third, 1e-12);
}

TEST(SoftmaxCrossEntropy, NotANumberShows) {
  Tensor<float> logits(1, {3});
  std::fill(logits.host().begin(), logits.host().end(), 0.0F);
  logits.data()[1] = std::numeric_limits<float>::quiet_NaN();
  const std::vector<std::int32_t> labels{0};
  EXPECT_TRUE(std::isnan(softmax_cross_entropy<float>(logits, labels, 1, nullptr)));
}

TEST(SoftmaxCrossEntropy, NoSamples) {
  Tensor<float> gradient;
  EXPECT_EQ(softmax_cross_entropy<float>(Tensor<float>(0, {3}), {}, 1, &gradient), 0);
  EXPECT_EQ(gradient.size(), 0);
}

TEST(SoftmaxCrossEntropy, BadLabelsAreRefused) {
  const Tensor<float> logits = normal_tensor<float>(2, {3}, 71);
  EXPECT_THROW(softmax_cross_entropy<float>(logits, std::vector<std::int32_t>{0, 3}, 1, nullptr), InvalidArgument);
  EXPECT_THROW(softmax_cross_entropy<float>(logits, std::vector<std::int32_t>{-1, 0}, 1, nullptr), InvalidArgument);
  EXPECT_THROW(softmax_cross_entropy<float>(logits, std::vector<std::int32_t>{0}, 1, nullptr), InvalidArgument);
  EXPECT_THROW(
      softmax_cross_entropy<float>(normal_tensor<float>(2, {3, 3, 1}, 71), std::vector<std::int32_t>{0, 0}, 1, nullptr),
      InvalidArgument);
}

/// Samples with everything that a loss may use: 5 samples of 3 outputs.
Batch<double> example_batch() {
  Batch<double> batch;
  batch.labels = {0, 2, 1, 1, 0};
  batch.targets = normal_tensor<double>(5, {3}, 81);
  for (double& target : batch.targets.host()) target = 1 / (1 + std::exp(-target));  // as binary_cross_entropy needs
  batch.weights = {0.5F, 1, 2, 0, 1.25F};
  return batch;
}

std::vector<LossPointer<double>> all_losses() {
  return {cross_entropy_loss<double>(),
          cross_entropy_loss<double>({.label_smoothing = 0.1}),
          cross_entropy_loss<double>({.label_smoothing = 0.3, .class_weights = {0.5, 2, 1}}),
          binary_cross_entropy_loss<double>(),
          mean_squared_error<double>(),
          mean_absolute_error<double>(),
          huber_loss<double>(),
          huber_loss<double>(0.25)};
}

TEST(Losses, GradientsMatchCentralDifferences) {
  constexpr double kScale = 0.125, kStep = 1e-6;
  const Batch<double> batch = example_batch();
  for (const LossPointer<double>& loss : all_losses()) {
    Tensor<double> outputs = normal_tensor<double>(5, {3}, 80, 2), gradient;
    loss_sum(*loss, Execution(), outputs, batch, kScale, &gradient);
    ASSERT_EQ(gradient.size(), outputs.size());
    for (std::int64_t i = 0; i < outputs.size(); ++i) {
      const double value = outputs.data()[i];
      outputs.data()[i] = value + kStep;
      const double above = loss_sum(*loss, Execution(), outputs, batch, 1, nullptr);
      outputs.data()[i] = value - kStep;
      const double below = loss_sum(*loss, Execution(), outputs, batch, 1, nullptr);
      outputs.data()[i] = value;
      EXPECT_NEAR(gradient.data()[i], kScale * (above - below) / (2 * kStep), 1e-8) << loss->name() << ", " << i;
    }
  }
}

TEST(Losses, DoNotDependOnTheBatch) {
  const Batch<double> batch = example_batch();
  const Tensor<double> outputs = normal_tensor<double>(5, {3}, 80, 2);
  for (const LossPointer<double>& loss : all_losses()) {
    double sum = 0;
    for (std::int64_t sample = 0; sample < 5; ++sample) {
      Tensor<double> one(1, {3});
      Batch<double> of_one;
      of_one.targets.resize(1, {3});
      std::copy_n(outputs.data() + 3 * sample, 3, one.data());
      std::copy_n(batch.targets.data() + 3 * sample, 3, of_one.targets.data());
      of_one.labels = {batch.labels[static_cast<std::size_t>(sample)]};
      of_one.weights = {batch.weights[static_cast<std::size_t>(sample)]};
      sum += loss_sum(*loss, Execution(), one, of_one, 1, nullptr);
    }
    EXPECT_NEAR(sum, loss_sum(*loss, Execution(), outputs, batch, 1, nullptr), 1e-13) << loss->name();
  }
}

/// Loss of one sample with the outputs 2 and -1, and the targets 0.5 and 1, or class 1.
double loss_of(const LossPointer<double>& loss) {
  Tensor<double> outputs(1, {2});
  Batch<double> batch;
  batch.targets.resize(1, {2});
  outputs.data()[0] = 2, outputs.data()[1] = -1;
  batch.targets.data()[0] = 0.5, batch.targets.data()[1] = 1;
  batch.labels = {1};
  return loss_sum(*loss, Execution(), outputs, batch, 1, nullptr);
}

TEST(Losses, KnownValues) {
  EXPECT_NEAR(loss_of(mean_squared_error<double>()), (1.5 * 1.5 + 2 * 2) / 2, 1e-15);
  EXPECT_NEAR(loss_of(mean_absolute_error<double>()), (1.5 + 2) / 2, 1e-15);
  EXPECT_NEAR(loss_of(huber_loss<double>(1.75)), (1.5 * 1.5 / 2 + 1.75 * (2 - 1.75 / 2)) / 2, 1e-15);
  const double first = -0.5 * std::log(1 / (1 + std::exp(-2))) - 0.5 * std::log(1 - 1 / (1 + std::exp(-2)));
  const double second = -std::log(1 / (1 + std::exp(1)));
  EXPECT_NEAR(loss_of(binary_cross_entropy_loss<double>()), (first + second) / 2, 1e-14);
  const double p0 = std::exp(2) / (std::exp(2) + std::exp(-1));
  const double smoothed = -0.1 * std::log(p0) - 0.9 * std::log(1 - p0);
  EXPECT_NEAR(loss_of(cross_entropy_loss<double>({.label_smoothing = 0.2})), smoothed, 1e-14);
  EXPECT_NEAR(loss_of(cross_entropy_loss<double>({.class_weights = {3, 0.5}})), -0.5 * std::log(1 - p0), 1e-14);
}

/// Two samples with three labels each, and their rows as six samples with a label each.
struct SeveralLabels {
  Tensor<double> outputs = normal_tensor<double>(2, {3, 4}, 90, 2), rows;
  Batch<double> batch, batch_of_rows;

  SeveralLabels() {
    rows.resize(6, {4});
    std::copy(outputs.host().begin(), outputs.host().end(), rows.data());
    batch.labels = batch_of_rows.labels = {0, 3, 1, 2, 2, 0};
    batch.weights = {0.5F, 2};
    batch_of_rows.weights = {0.5F, 0.5F, 0.5F, 2, 2, 2};
  }
};

TEST(Losses, OfSeveralLabelsAreTheMeanOfTheirRows) {
  const SeveralLabels data;
  for (const auto& loss : {cross_entropy_loss<double>(),
                           cross_entropy_loss<double>({.label_smoothing = 0.2, .class_weights = {0.5, 2, 1, 3}})}) {
    Tensor<double> gradient, of_rows;
    const double result = loss_sum(*loss, Execution(), data.outputs, data.batch, 0.25, &gradient);
    const double expected = loss_sum(*loss, Execution(), data.rows, data.batch_of_rows, 0.25, &of_rows);
    EXPECT_NEAR(result, expected / 3, 1e-13) << loss->name();
    EXPECT_EQ(gradient.shape(), (Shape{3, 4}));
    for (std::int64_t i = 0; i < gradient.size(); ++i) {
      EXPECT_NEAR(gradient.data()[i], of_rows.data()[i] / 3, 1e-15) << loss->name() << ", " << i;
    }
  }
}

TEST(Losses, SeveralLabelsNeedAsManyRowsOfLogits) {
  const auto data = memory_dataset(
      {.shape = {1}, .inputs = std::vector<float>{1, 2}, .labels = {0, 1, 2, 0}, .classes = 3, .labels_per_sample = 2});
  const auto loss = cross_entropy_loss<float>();
  loss->check({2, 3}, *data, "the training data");
  EXPECT_EQ(farandole::test::message_of<InvalidArgument>([&] { loss->check({3}, *data, "the training data"); }),
            "the model's output is 3, but the training data have 3 classes and 2 labels per sample; the loss "
            "cross_entropy needs one logit per class for each label");
  EXPECT_THROW(loss->check({2, 2}, *data, "the training data"), InvalidArgument);
  EXPECT_THROW(softmax_cross_entropy<float>(Tensor<float>(1, {2, 3}), std::vector<std::int32_t>{0}, 1, nullptr),
               InvalidArgument);
}

TEST(Losses, RefuseWhatTheyCannotCompare) {
  const auto with_targets =
      memory_dataset({.shape = {1}, .inputs = std::vector<float>{1, 2}, .targets = {1, 2, 3, 4}, .target_shape = {2}});
  const auto with_classes =
      memory_dataset({.shape = {1}, .inputs = std::vector<float>{1, 2}, .labels = {0, 2}, .classes = 3});
  const auto refusal = [](const LossPointer<float>& loss, const Shape& output, const Dataset& data) {
    return farandole::test::message_of<InvalidArgument>([&] { loss->check(output, data, "the training data"); });
  };
  EXPECT_EQ(refusal(mean_squared_error<float>(), {3}, *with_targets),
            "the loss mean_squared_error needs targets of shape 3, as the model's output, but the training data have "
            "targets of shape 2");
  EXPECT_EQ(refusal(huber_loss<float>(2), {3}, *with_classes),
            "the loss huber, delta 2 needs targets of shape 3, as the model's output, but the training data have no "
            "targets");
  EXPECT_EQ(refusal(cross_entropy_loss<float>(), {2}, *with_targets),
            "the loss cross_entropy needs samples with classes, and the training data have none; for targets use "
            "mean_squared_error or another loss");
  EXPECT_EQ(refusal(cross_entropy_loss<float>(), {2}, *with_classes),
            "the model's output is 2, but the training data have 3 classes");
  EXPECT_EQ(refusal(cross_entropy_loss<float>({.class_weights = {1, 2}}), {3}, *with_classes),
            "2 class weights, but the training data have 3 classes");
  EXPECT_THROW(cross_entropy_loss<float>({.label_smoothing = 1}), InvalidArgument);
  EXPECT_THROW(cross_entropy_loss<float>({.class_weights = {1, -1}}), InvalidArgument);
  EXPECT_THROW(huber_loss<float>(0), InvalidArgument);
}

}  // namespace
}  // namespace farandole::trainer
