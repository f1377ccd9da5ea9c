// SPDX-License-Identifier: Apache-2.0
#include "farandole/trainer/metric.h"

#include <gmock/gmock.h>

#include <cmath>
#include <limits>
#include <numeric>

#include "farandole/core/error.h"
#include "layer_harness.h"
#include "message_of.h"

namespace farandole::trainer {
namespace {

using testing::ElementsAre;

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

template <class Scalar>
Tensor<Scalar> tensor(const Shape& sample, const std::vector<double>& values) {
  Tensor<Scalar> result(static_cast<std::int64_t>(values.size()) / elements(sample), sample);
  std::transform(values.begin(), values.end(), result.data(), [](double value) { return static_cast<Scalar>(value); });
  return result;
}

template <class Scalar>
std::vector<double> sums_of(const MetricPointer<Scalar>& metric, const Tensor<Scalar>& outputs,
                            const Batch<Scalar>& batch) {
  std::vector<double> sums(metric->sums(outputs.shape()));
  metric->add(Execution(), outputs, batch, sums);
  return sums;
}

TEST(ClassMetrics, KnownValues) {
  const auto outputs = tensor<float>({4}, {0, 3, 2, 1,    // label 1: the largest
                                           0, 3, 2, 1,    // label 2: the second
                                           0, 3, 2, 1,    // label 0: the last
                                           1, 1, 1, 1});  // label 1: equal outputs; class 0 is the larger one
  Batch<float> batch;
  batch.labels = {1, 2, 0, 1};
  batch.weights = {0, 0, 0, 9};  // belong to the loss
  const auto matrix = confusion_matrix<float>();
  EXPECT_THAT(sums_of(accuracy<float>(), outputs, batch), ElementsAre(1, 4));
  EXPECT_THAT(sums_of(top_k_accuracy<float>(1), outputs, batch), ElementsAre(1, 4));
  EXPECT_THAT(sums_of(top_k_accuracy<float>(2), outputs, batch), ElementsAre(3, 4));
  EXPECT_THAT(sums_of(top_k_accuracy<float>(3), outputs, batch), ElementsAre(3, 4));
  EXPECT_THAT(sums_of(top_k_accuracy<float>(4), outputs, batch), ElementsAre(4, 4));
  EXPECT_THAT(sums_of(matrix, outputs, batch), ElementsAre(0, 1, 0, 0, 1, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0));
  EXPECT_NEAR(matrix->value(sums_of(matrix, outputs, batch)), (0 + 0.5 + 0) / 3, 1e-15) << "class 3 has no samples";
  EXPECT_EQ(accuracy<float>()->value(std::vector<double>{3, 4}), 0.75);
}

TEST(ClassMetrics, EachLabelOfASampleCounts) {
  // Two samples of three labels each, and two classes.
  const auto outputs = tensor<double>({3, 2}, {0, 1, 1, 0, 0, 1, 1, 0, 1, 0, 0, 1});
  Batch<double> batch;
  batch.labels = {1, 0, 0, 0, 1, 1};
  EXPECT_THAT(sums_of(accuracy<double>(), outputs, batch), ElementsAre(4, 6));
  EXPECT_THAT(sums_of(confusion_matrix<double>(), outputs, batch), ElementsAre(2, 1, 1, 2));
}

TEST(ClassMetrics, AnOutputThatIsNaNIsWrong) {
  Batch<double> batch;
  batch.labels = {0, 1};
  EXPECT_THAT(sums_of(accuracy<double>(), tensor<double>({2}, {kNaN, kNaN, 0, kNaN}), batch), ElementsAre(0, 2));
}

TEST(TargetMetrics, KnownValues) {
  const auto outputs = tensor<double>({2}, {2, -1, 0.25, 0.75});
  Batch<double> batch;
  batch.targets = tensor<double>({2}, {0.5, 1, 0, 1});
  batch.weights = {0, 9};  // belong to the loss
  EXPECT_THAT(sums_of(mean_absolute_error_metric<double>(), outputs, batch), ElementsAre((1.5 + 2) / 2 + 0.25, 2));
  EXPECT_THAT(sums_of(mean_squared_error_metric<double>(), outputs, batch), ElementsAre((2.25 + 4) / 2 + 0.0625, 2));
  EXPECT_THAT(sums_of(binary_accuracy<double>(), outputs, batch), ElementsAre(1, 4)) << "0.25 is above 0";
  EXPECT_THAT(sums_of(binary_accuracy<double>(0.5), outputs, batch), ElementsAre(2, 4));
  EXPECT_EQ(mean_squared_error_metric<double>()->value(std::vector<double>{3, 2}), 1.5);
}

template <class Scalar>
std::vector<MetricPointer<Scalar>> all_metrics() {
  return {accuracy<Scalar>(),         top_k_accuracy<Scalar>(2),
          confusion_matrix<Scalar>(), mean_absolute_error_metric<Scalar>(),
          binary_accuracy<Scalar>(),  mean_squared_error_metric<Scalar>(),
          binary_accuracy<Scalar>(2)};
}

TEST(Metrics, WithoutSamplesAreNaN) {
  for (const auto& metric : all_metrics<float>()) {
    const std::vector<double> zeros(metric->sums({3}));
    EXPECT_TRUE(std::isnan(metric->value(zeros))) << metric->name();
    EXPECT_EQ(sums_of(metric, Tensor<float>(0, {3}), Batch<float>{}), zeros);
  }
}

TEST(Metrics, DoNotDependOnTheBatch) {
  constexpr std::int64_t kSamples = 6;
  Batch<double> batch;
  batch.labels = {0, 2, 1, 1, 0, 2};
  batch.targets = normal_tensor<double>(kSamples, {3}, 91);
  const Tensor<double> outputs = normal_tensor<double>(kSamples, {3}, 90, 2);
  for (const auto& metric : all_metrics<double>()) {
    std::vector<double> parts(metric->sums({3}));
    for (std::int64_t sample = 0; sample < kSamples; ++sample) {
      Tensor<double> one(1, {3});
      Batch<double> of_one;
      of_one.targets.resize(1, {3});
      std::copy_n(outputs.data() + 3 * sample, 3, one.data());
      std::copy_n(batch.targets.data() + 3 * sample, 3, of_one.targets.data());
      of_one.labels = {batch.labels[static_cast<std::size_t>(sample)]};
      metric->add(Execution(), one, of_one, parts);
    }
    EXPECT_THAT(parts, testing::Pointwise(testing::DoubleNear(1e-13), sums_of(metric, outputs, batch)))
        << metric->name() << ", seed " << kTestSeed;
  }
}

TEST(Metrics, RefuseWhatTheyCannotCompare) {
  const auto with_targets =
      memory_dataset({.shape = {1}, .inputs = std::vector<float>{1, 2}, .targets = {1, 2, 3, 4}, .target_shape = {2}});
  const auto with_classes =
      memory_dataset({.shape = {1}, .inputs = std::vector<float>{1, 2}, .labels = {0, 2}, .classes = 3});
  const auto refusal = [](const MetricPointer<float>& metric, const Shape& output, const Dataset& data) {
    return farandole::test::message_of<InvalidArgument>([&] { metric->check(output, data, "the training data"); });
  };
  EXPECT_EQ(refusal(accuracy<float>(), {2}, *with_targets),
            "the metric accuracy needs samples with classes, and the training data have none");
  EXPECT_EQ(refusal(confusion_matrix<float>(), {2}, *with_classes),
            "the metric confusion_matrix needs one output per class: the model's output is 2, but the training data "
            "have 3 classes");
  EXPECT_EQ(refusal(top_k_accuracy<float>(5), {4}, *with_classes),
            "the metric top_5_accuracy needs at least 5 outputs per label; the model's output is 4");
  EXPECT_EQ(refusal(mean_squared_error_metric<float>(), {3}, *with_targets),
            "the metric mean_squared_error needs targets of shape 3, as the model's output, but the training data have "
            "targets of shape 2");
  EXPECT_EQ(refusal(binary_accuracy<float>(0.5), {3}, *with_classes),
            "the metric binary_accuracy, threshold 0.5 needs targets of shape 3, as the model's output, but the "
            "training data have no targets");
  EXPECT_EQ(
      refusal(accuracy<float>(), {7, 3}, *with_classes),
      "the metric accuracy needs one output per class for each label: the model's output is 7x3, but the training "
      "data have 3 classes and 1 labels per sample");
  const auto pairs = memory_dataset(
      {.shape = {1}, .inputs = std::vector<float>{1, 2}, .labels = {0, 2, 1, 1}, .classes = 3, .labels_per_sample = 2});
  EXPECT_NO_THROW(accuracy<float>()->check({2, 3}, *pairs, "the training data"));
  EXPECT_THROW(top_k_accuracy<float>(0), InvalidArgument);
  EXPECT_THROW(binary_accuracy<float>(kNaN), InvalidArgument);
}

TEST(Metrics, RefuseBatchesThatDoNotFit) {
  Batch<double> batch;
  const auto outputs = tensor<double>({3}, std::vector<double>(6));
  const auto refusal = [&](const MetricPointer<double>& metric) {
    return farandole::test::message_of<InvalidArgument>([&] { sums_of(metric, outputs, batch); });
  };
  batch.labels = {0};
  EXPECT_EQ(refusal(accuracy<double>()), "the metric accuracy: 1 labels, but 2 samples with outputs of shape 3");
  for (const std::int32_t wrong : {-1, 3}) {
    batch.labels = {0, wrong};
    EXPECT_EQ(refusal(confusion_matrix<double>()), "the metric confusion_matrix: sample 1 of the batch has label " +
                                                       std::to_string(wrong) + ", expected 0 to 2");
  }
  batch.targets.resize(2, {2});
  EXPECT_EQ(refusal(binary_accuracy<double>()), "the metric binary_accuracy: 6 outputs, but 4 targets");
}

TEST(MetricResults, AreFoundByName) {
  const std::vector<MetricResult> metrics{{"accuracy", 0.5}, {"close", 0.25, {1, 4}}};
  EXPECT_EQ(metric_value(metrics, "close"), 0.25);
  EXPECT_THAT(find_metric(metrics, "close")->sums, ElementsAre(1, 4));
  EXPECT_EQ(find_metric(metrics, "clos"), nullptr);
  EXPECT_EQ(farandole::test::message_of<InvalidArgument>([&] { metric_value(metrics, "acuracy"); }),
            "there is no metric 'acuracy'; the metrics are: accuracy, close");
  EXPECT_EQ(farandole::test::message_of<InvalidArgument>([&] { metric_value({}, "accuracy"); }),
            "there is no metric 'accuracy'; the metrics are: none");
}

TEST(ClassMetrics, ALabelWhoseOutputIsNaNIsWrongInTheMatrix) {
  const auto outputs = tensor<float>({3}, {kNaN, kNaN, kNaN, kNaN, 1, 2, 5, kNaN, 6, kNaN, kNaN, kNaN});
  Batch<float> batch;
  batch.labels = {0, 0, 0, 2};
  const std::vector<double> sums = sums_of(confusion_matrix<float>(), outputs, batch);
  EXPECT_EQ(sums[0], 0) << "no sample of class 0 is right";
  EXPECT_EQ(sums[1] + sums[2], 3);
  EXPECT_EQ(sums[8], 0);
  EXPECT_EQ(confusion_matrix<float>()->value(sums), 0);
}

}  // namespace
}  // namespace farandole::trainer
