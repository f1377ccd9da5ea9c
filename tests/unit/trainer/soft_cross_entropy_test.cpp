// SPDX-License-Identifier: Apache-2.0
// Cross-entropy of samples with a probability for each class.
#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

#include "farandole/trainer/loss.h"
#include "kernels/kernels.h"
#include "layer_harness.h"
#include "message_of.h"

namespace farandole::trainer {
namespace {

constexpr double kStep = 1e-5;

/// Returns the sum of the losses in host memory.
double soft_cross_entropy(const Tensor<double>& logits, const Tensor<double>& targets, const CrossEntropyTerms& terms,
                          double scale, Tensor<double>* gradient) {
  if (gradient != nullptr) gradient->resize(logits.samples(), logits.shape());
  Workspace workspace;
  double sum = 0;
  host_kernels<double>().losses().soft_cross_entropy(
      workspace, {logits.data(), targets.data(), logits.samples(), logits.sample_elements()}, terms, scale,
      gradient == nullptr ? nullptr : gradient->data(), &sum);
  return sum;
}

/// Five samples with the shares of two classes each.
Tensor<double> shares() {
  Tensor<double> targets(5, {3});
  const double values[] = {0.25, 0.75, 0, 1, 0, 0, 0, 0.5, 0.5, 0.1, 0, 0.9, 0, 0, 1};
  std::copy(std::begin(values), std::end(values), targets.data());
  return targets;
}

TEST(SoftCrossEntropy, IsTheMeanOfTheLossesOfTheClasses) {
  const Tensor<double> logits = normal_tensor<double>(5, {3}, 90, 2), targets = shares();
  const std::vector<double> class_weights{0.5, 2, 1};
  const std::vector<float> weights{1, 2, 0.5F, 0, 3};
  double expected = 0, weighted = 0;
  for (std::int64_t i = 0; i < 5; ++i) {
    const double* const z = logits.data() + 3 * i;
    const double sum = std::exp(z[0]) + std::exp(z[1]) + std::exp(z[2]);
    double loss = 0, weight = 0;
    for (std::int64_t c = 0; c < 3; ++c) {
      const double target = targets.data()[3 * i + c];
      loss += target * (std::log(sum) - z[c]);
      weight += target * class_weights[static_cast<std::size_t>(c)];
    }
    expected += loss;
    weighted += weight * weights[static_cast<std::size_t>(i)] * loss;
  }
  EXPECT_NEAR(soft_cross_entropy(logits, targets, {}, 1, nullptr), expected, 1e-12);
  const CrossEntropyTerms terms{.class_weights = class_weights, .sample_weights = weights.data()};
  EXPECT_NEAR(soft_cross_entropy(logits, targets, terms, 1, nullptr), weighted, 1e-12);
}

TEST(SoftCrossEntropy, GradientMatchesCentralDifferences) {
  Tensor<double> logits = normal_tensor<double>(5, {3}, 91, 2), gradient;
  const Tensor<double> targets = shares();
  const std::vector<double> class_weights{0.5, 2, 1};
  const CrossEntropyTerms terms{.smoothing = 0.1, .class_weights = class_weights};
  soft_cross_entropy(logits, targets, terms, 0.25, &gradient);
  for (std::int64_t i = 0; i < logits.size(); ++i) {
    const double value = logits.data()[i];
    logits.data()[i] = value + kStep;
    const double above = soft_cross_entropy(logits, targets, terms, 1, nullptr);
    logits.data()[i] = value - kStep;
    const double below = soft_cross_entropy(logits, targets, terms, 1, nullptr);
    logits.data()[i] = value;
    EXPECT_NEAR(gradient.data()[i], 0.25 * (above - below) / (2 * kStep), 1e-9) << i << ", seed " << kTestSeed;
  }
}

TEST(SoftCrossEntropy, ProbabilitiesOfOneGiveTheGradientOfLabels) {
  const Tensor<double> logits = normal_tensor<double>(4, {3}, 92, 2);
  Batch<double> by_label, by_probability;
  by_label.labels = by_probability.labels = {2, 0, 1, 1};
  by_label.weights = by_probability.weights = {1, 2, 0.5F, 1};
  by_probability.targets.resize(4, {3});
  by_probability.targets_are_probabilities = true;
  for (std::int64_t i = 0; i < 12; ++i) {
    by_probability.targets.data()[i] = by_label.labels[static_cast<std::size_t>(i / 3)] == i % 3 ? 1 : 0;
  }
  const auto loss = cross_entropy_loss<double>({.label_smoothing = 0.2, .class_weights = {0.5, 2, 1}});
  Tensor<double> expected, found;
  loss_sum(*loss, Execution(), logits, by_label, 0.5, &expected);
  loss_sum(*loss, Execution(), logits, by_probability, 0.5, &found);
  for (std::int64_t i = 0; i < 12; ++i) EXPECT_NEAR(found.data()[i], expected.data()[i], 1e-15);
}

TEST(SoftCrossEntropy, TargetsAreProbabilitiesOnlyIfTheDataSaySo) {
  Samples samples{.shape = {1},
                  .inputs = std::vector<float>{1, 2},
                  .labels = {0, 1},
                  .classes = 2,
                  .targets = {1, 0, 0.5, 0.5},
                  .target_shape = {2},
                  .targets_are_probabilities = true};
  Tensor<float> logits(2, {2});
  const float values[] = {3, 1, 0, 2};
  std::copy(std::begin(values), std::end(values), logits.data());
  const auto loss_of = [&](const Dataset& data) {
    Batch<float> batch;
    data.gather(std::vector<std::uint32_t>{0, 1}, batch);
    return loss_sum(*cross_entropy_loss<float>(), Execution(), logits, batch, 1, nullptr);
  };
  const auto soft = memory_dataset(samples);
  EXPECT_NO_THROW(cross_entropy_loss<float>()->check({2}, *soft, "the data"));
  EXPECT_NEAR(loss_of(*soft), std::log1p(std::exp(-2)) + std::log1p(std::exp(2)) - 1, 1e-6);
  samples.targets_are_probabilities = false;  // numbers that only happen to be as many as the classes
  EXPECT_NEAR(loss_of(*memory_dataset(samples)), 2 * std::log1p(std::exp(-2)), 1e-6);
  samples.classes = 3;
  samples.targets_are_probabilities = true;
  EXPECT_THROW(memory_dataset(samples), InvalidArgument);
  EXPECT_EQ(
      farandole::test::message_of<InvalidArgument>([&] { cross_entropy_loss<float>()->check({3}, *soft, "the data"); }),
      "the model's output is 3, but the data have probabilities of shape 2");
}

TEST(SoftCrossEntropy, RefusesABatchWithoutAProbabilityForEachOutput) {
  Batch<double> batch;
  batch.targets_are_probabilities = true;
  batch.labels = {0, 1, 2, 0, 1};
  const Tensor<double> logits = normal_tensor<double>(5, {3}, 91, 2);
  EXPECT_EQ(farandole::test::message_of<InvalidArgument>(
                [&] { loss_sum(*cross_entropy_loss<double>(), Execution(), logits, batch, 1, nullptr); }),
            "the loss cross_entropy: 15 outputs, but 0 probabilities");
}

}  // namespace
}  // namespace farandole::trainer
