// SPDX-License-Identifier: Apache-2.0
// The trainer's kernels for devices give the results of those for host memory.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <limits>
#include <string>
#include <vector>

#include "farandole/trainer/random.h"
#include "kernel_comparison.h"
#include "kernel_list.h"
#include "kernels/kernels.h"
#include "on_device.h"

namespace farandole::trainer::test {
namespace {

using farandole::test::on_each_device;
using testing::HasSubstr;

/// Values in [-1, 1), some of them equal.
template <class T>
std::vector<T> random_values(std::int64_t count, std::uint64_t seed) {
  const CounterRandom random(seed, 1);
  std::vector<T> values(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<T>(std::round(32 * (2 * random.uniform(i) - 1)) / 32);
  }
  return values;
}

TEST(TrainerFatbin, HasAllKernels) {
  const std::string path = FARANDOLE_TRAINER_FATBIN_LOG;
  if (path.empty()) GTEST_SKIP() << "built without nvcc";
  std::ifstream file(path);
  const std::string log{std::istreambuf_iterator<char>(file), {}};
#define FARANDOLE_KERNEL(name, body)                                                                    \
  for (const std::string type : {"f32", "f64"}) {                                                       \
    EXPECT_THAT(log, HasSubstr("Compiling entry function 'farandole_trainer_" #name "_" + type + "'")); \
  }
  FARANDOLE_TRAINER_KERNELS(FARANDOLE_KERNEL)
#undef FARANDOLE_KERNEL
#define FARANDOLE_KERNEL(name, body)                                                                    \
  for (const std::string type : {"bf16", "f16"}) {                                                      \
    EXPECT_THAT(log, HasSubstr("Compiling entry function 'farandole_trainer_" #name "_" + type + "'")); \
  }
  FARANDOLE_TRAINER_HALF_KERNELS(FARANDOLE_KERNEL)
#undef FARANDOLE_KERNEL
  EXPECT_THAT(log, testing::Not(testing::ContainsRegex(" [1-9][0-9]* bytes spill stores")));
}

template <class T>
class DeviceKernelsTest : public testing::Test {
 protected:
  static constexpr double kError = std::is_same_v<T, float> ? 2e-5 : 1e-12;
};
using Types = testing::Types<float, double>;
TYPED_TEST_SUITE(DeviceKernelsTest, Types, );

TYPED_TEST(DeviceKernelsTest, ComputeVectors) {
  using T = TypeParam;
  on_each_device([](Communicator& ranks) {
    for (const std::int64_t count : {1, 255, 256, 5000}) {
      Comparison<T>(ranks)
          .with(random_values<T>(count, 1))
          .with(random_values<T>(count, 2))
          .with(random_values<T>(count, 3))
          .with(random_values<T>(count, 4))
          .expect_equal(0, [&](const Kernels<T>& kernels, Workspace&, const Vectors<T>& v) {
            kernels.add(count, v[0], v[1], v[2]);
            kernels.add(count, v[2], v[0], v[2]);
            kernels.add(count, v[1], v[2], v[2]);
            kernels.multiply_elements(count, v[0], v[2], v[1]);
            kernels.scale(count, T(0.75), v[1]);
            kernels.approach(count, T(0.25), v[1], v[0]);
            kernels.move_average(count, T(0.875), T(0.125), v[0], v[2]);
            kernels.copy(count, v[2], v[3]);
            kernels.clear(count / 2, v[3]);
          });
    }
  });
}

TYPED_TEST(DeviceKernelsTest, ComputeActivations) {
  using T = TypeParam;
  on_each_device([](Communicator& ranks) {
    constexpr std::int64_t kCount = 1000;
    for (int kind = 0; kind <= static_cast<int>(ActivationKind::kHyperbolicTangent); ++kind) {
      const Activation activation{static_cast<ActivationKind>(kind), 0.25};
      Comparison<T> comparison(ranks);
      for (const std::uint64_t seed : {1, 2, 3, 4}) comparison.with(random_values<T>(kCount, seed));
      comparison.expect_equal(TestFixture::kError, [&](const Kernels<T>& kernels, Workspace&, const Vectors<T>& v) {
        kernels.activate(activation, kCount, v[0], v[1]);
        kernels.activate_backward(activation, kCount, v[0], v[1], v[2], v[3]);
      });
    }
  });
}

TYPED_TEST(DeviceKernelsTest, DrawTheFactorsOfDropouts) {
  using T = TypeParam;
  on_each_device([](Communicator& ranks) {
    Comparison<T>(ranks)
        .with(std::vector<T>(3001))
        .expect_equal(TestFixture::kError, [](const Kernels<T>& kernels, Workspace&, const Vectors<T>& v) {
          const DropoutDraw draw{
              .rate = 0.3, .seed = ~std::uint64_t{5}, .layer = std::uint64_t{1} << 63, .training_step = 9, .first = 7};
          kernels.draw_dropout(draw, 3001, v[0]);
        });
  });
}

TYPED_TEST(DeviceKernelsTest, ComputeMatrices) {
  using T = TypeParam;
  on_each_device([](Communicator& ranks) {
    constexpr std::int64_t kRows = 7, kInner = 5, kColumns = 3;
    Comparison<T>(ranks)
        .with(random_values<T>(kRows * kInner, 1))
        .with(random_values<T>(kInner * kColumns, 2))
        .with(std::vector<T>(kRows * 4))
        .with(std::vector<T>(kInner * kColumns))
        .with(std::vector<T>(kRows * kInner))
        .with(random_values<T>(kColumns, 3))
        .with(random_values<T>(kRows * kColumns, 4))
        .expect_equal(TestFixture::kError, [](const Kernels<T>& kernels, Workspace&, const Vectors<T>& v) {
          const Factor<T> left{v[0], kRows, kInner}, right{v[1], kInner, kColumns};
          kernels.multiply(left, right, false, v[2], 4);
          kernels.multiply(left, right, true, v[2], 4);
          kernels.multiply(left.transpose(), {v[6], kRows, kColumns}, false, v[3]);
          kernels.multiply({v[6], kRows, kColumns}, right.transpose(), false, v[4]);
          kernels.fill_rows(v[5], kRows, kColumns, v[6]);
          kernels.copy_columns(kRows, v[2], {1, 2, 4}, v[6], {0, 2, kColumns});
          kernels.sum_rows(v[6], kRows, kColumns, v[5]);
        });
  });
}

TYPED_TEST(DeviceKernelsTest, ComputePooling) {
  using T = TypeParam;
  on_each_device([](Communicator& ranks) {
    const PoolingWindows windows{2, 5, 7, 3, 2, 3};
    constexpr std::int64_t kSamples = 4;
    const std::int64_t inputs = windows.input_elements(kSamples), outputs = windows.count(kSamples) * 3;
    for (const Pooling pooling : {Pooling::kMaximum, Pooling::kAverage}) {
      Comparison<T>(ranks)
          .with(random_values<T>(inputs, 1))
          .with(std::vector<T>(static_cast<std::size_t>(outputs)))
          .with(random_values<T>(outputs, 2))
          .with(random_values<T>(inputs, 3))
          .expect_equal(TestFixture::kError, [&](const Kernels<T>& kernels, Workspace&, const Vectors<T>& v) {
            kernels.images().pool(pooling, windows, kSamples, v[0], v[1]);
            kernels.images().pool_backward(pooling, windows, kSamples, v[0], v[1], v[2], v[3]);
          });
    }
  });
}

TYPED_TEST(DeviceKernelsTest, PoolOverlappingWindows) {
  using T = TypeParam;
  on_each_device([](Communicator& ranks) {
    struct Case {
      std::int64_t size, stride, padding;
    };
    for (const auto [size, stride, padding] : {Case{3, 2, 1}, Case{3, 1, 0}, Case{2, 3, 1}, Case{4, 1, 3}}) {
      constexpr std::int64_t kSamples = 4, kHeight = 5, kWidth = 7, kChannels = 3;
      const StridedWindows windows{size,
                                   stride,
                                   padding,
                                   kHeight,
                                   kWidth,
                                   kChannels,
                                   (kHeight + 2 * padding - size) / stride + 1,
                                   (kWidth + 2 * padding - size) / stride + 1};
      const std::int64_t inputs = kSamples * windows.image_elements(), outputs = windows.count(kSamples) * kChannels;
      Comparison<T>(ranks)
          .with(random_values<T>(inputs, 1))
          .with(std::vector<T>(static_cast<std::size_t>(outputs)))
          .with(random_values<T>(outputs, 2))
          .with(random_values<T>(inputs, 3))
          .with(std::vector<std::int32_t>(static_cast<std::size_t>(outputs)))
          .with(random_values<T>(inputs, 4))
          .expect_equal(TestFixture::kError, [&](const Kernels<T>& all, Workspace&, const Vectors<T>& v) {
            const ImageKernels<T>& kernels = all.images();
            auto* const places = v.template as<std::int32_t>(4);
            kernels.max_pool(windows, kSamples, v[0], v[1], places);
            kernels.max_pool_backward(windows, kSamples, places, v[2], v[3]);
            kernels.average_pool(windows, kSamples, v[0], v[1]);
            kernels.average_pool_backward(windows, kSamples, v[1], v[5]);
          });
    }
  });
}

TYPED_TEST(DeviceKernelsTest, ConvolveEachChannel) {
  using T = TypeParam;
  on_each_device([](Communicator& ranks) {
    struct Case {
      std::int64_t kernel, stride, padding;
    };
    for (const auto [kernel, stride, padding] : {Case{3, 1, 1}, Case{3, 2, 0}, Case{1, 2, 0}, Case{2, 1, 2}}) {
      ConvolutionGeometry g = convolution_geometry("depthwise_conv2d", {6, 7, 5}, {kernel, stride, padding});
      g.channels = g.inputs;
      constexpr std::int64_t kSamples = 100;  // a partial sum has several pixels
      const std::int64_t inputs = kSamples * g.input_elements();
      const std::int64_t outputs = kSamples * g.output_positions() * g.channels;
      Comparison<T>(ranks)
          .with(random_values<T>(inputs, 1))
          .with(random_values<T>(g.patch_elements(), 2))
          .with(random_values<T>(g.channels, 3))
          .with(random_values<T>(outputs, 4))
          .with(random_values<T>(inputs, 5))
          .with(random_values<T>(g.patch_elements(), 6))
          .expect_equal(TestFixture::kError, [&](const Kernels<T>& all, Workspace& workspace, const Vectors<T>& v) {
            const ImageKernels<T>& kernels = all.images();
            kernels.depthwise(g, kSamples, v[0], v[1], v[2], v[3]);
            kernels.depthwise_weights(workspace, g, kSamples, v[0], v[3], v[5]);
            kernels.depthwise_backward(g, kSamples, v[3], v[1], v[4]);
          });
    }
  });
}

TYPED_TEST(DeviceKernelsTest, Upsample) {
  using T = TypeParam;
  on_each_device([](Communicator& ranks) {
    for (const std::int64_t factor : {1, 3}) {
      const Upsampling sizes{factor, 3, 4, 5};
      constexpr std::int64_t kSamples = 2;
      Comparison<T>(ranks)
          .with(random_values<T>(sizes.input_elements(kSamples), 1))
          .with(random_values<T>(sizes.output_elements(kSamples), 2))
          .with(random_values<T>(sizes.output_elements(kSamples), 3))
          .with(random_values<T>(sizes.input_elements(kSamples), 4))
          .expect_equal(TestFixture::kError, [&](const Kernels<T>& kernels, Workspace&, const Vectors<T>& v) {
            kernels.images().upsample(sizes, kSamples, v[0], v[1]);
            kernels.images().upsample_backward(sizes, kSamples, v[2], v[3]);
          });
    }
  });
}

TYPED_TEST(DeviceKernelsTest, AveragePositions) {
  using T = TypeParam;
  on_each_device([](Communicator& ranks) {
    const PositionSizes sizes{3, 6, 5};
    Comparison<T>(ranks)
        .with(random_values<T>(90, 1))
        .with(random_values<T>(15, 2))
        .with(random_values<T>(90, 3))
        .expect_equal(TestFixture::kError, [&](const Kernels<T>& kernels, Workspace&, const Vectors<T>& v) {
          kernels.images().average_positions(sizes, v[0], v[1]);
          kernels.images().average_positions_backward(sizes, v[1], v[2]);
        });
  });
}

TYPED_TEST(DeviceKernelsTest, NormalizeBatches) {
  using T = TypeParam;
  on_each_device([](Communicator& ranks) {
    for (const std::int64_t rows : {0, 1, 5, 700}) {
      constexpr std::int64_t kChannels = 3;
      Comparison<T> comparison(ranks);
      for (const std::uint64_t seed : {1, 2, 3, 4}) comparison.with(random_values<T>(rows * kChannels, seed));
      for (const std::uint64_t seed : {5, 6, 7, 8, 9, 10}) comparison.with(random_values<T>(kChannels, seed));
      comparison.expect_equal(10 * TestFixture::kError,
                              [&](const Kernels<T>& all, Workspace& workspace, const Vectors<T>& v) {
                                const NormalizationKernels<T>& kernels = all.normalization();
                                const ChannelRows<T> x{v[0], rows, kChannels};
                                Workspace::Scope scope(workspace);
                                const VectorView<double> numbers = scope.take<double>(2 * kChannels + 2);
                                double *const sums = numbers.data(), *const count = sums + 2 * kChannels + 1;
                                const ChannelStatistics<T> statistics{v[4], v[5], count};
                                const auto clear = [&] {
                                  for (int i = 0; i < 2 * kChannels + 1; ++i) all.set_gradient_scale(0, {}, sums + i);
                                };
                                // The moving variances must not be negative.
                                all.multiply_elements(kChannels, v[7], v[7], v[7]);
                                kernels.use_moving(kChannels, v[6], v[7], 1e-3, statistics);
                                kernels.normalize(x, statistics, {v[8], v[9]}, v[1]);
                                clear();
                                kernels.add_moments(workspace, x, sums);
                                kernels.use_batch(kChannels, sums, 1e-3, statistics, v[6], v[7]);
                                kernels.normalize(x, statistics, {v[8], v[9]}, v[2]);
                                clear();
                                kernels.add_gradient_moments(workspace, x, v[3], statistics, sums);
                                if (rows > 0) kernels.propagate(workspace, x, v[3], statistics, v[8], sums, v[3]);
                                kernels.store_gradients(kChannels, sums, v[8], v[9]);
                              });
    }
  });
}

TYPED_TEST(DeviceKernelsTest, NormalizeSets) {
  using T = TypeParam;
  on_each_device([](Communicator& ranks) {
    // Layer normalisation, and group normalisation with 1 and with 3 groups.
    for (const NormalizationSets sets : {NormalizationSets{4, 1, 6, 6}, {1, 4, 6, 6}, {3, 4, 2, 6}}) {
      for (const bool centred : {true, false}) {
        constexpr std::int64_t kSamples = 5;
        const SetNormalization normalization{sets, kSamples, centred, 1e-3};
        Comparison<T> comparison(ranks);
        for (const std::uint64_t seed : {1, 2, 3, 4}) comparison.with(random_values<T>(normalization.elements(), seed));
        for (const std::uint64_t seed : {5, 6}) comparison.with(random_values<T>(normalization.count(), seed));
        for (const std::uint64_t seed : {7, 8, 9, 10}) comparison.with(random_values<T>(sets.channels, seed));
        comparison.expect_equal(
            20 * TestFixture::kError, [&](const Kernels<T>& all, Workspace& workspace, const Vectors<T>& v) {
              const SequenceKernels<T>& kernels = all.sequence();
              const SetStatistics<T> statistics{v[4], v[5]};
              kernels.measure_sets(normalization, v[0], statistics);
              kernels.normalize_sets(normalization, v[0], statistics, v[6], centred ? v[7] : nullptr, v[1]);
              kernels.set_gradients(workspace, normalization, v[0], v[2], statistics, v[8], centred ? v[9] : nullptr);
              kernels.propagate_sets(normalization, v[0], v[2], statistics, v[6], v[3]);
              kernels.normalize_sets(normalization, v[0], statistics, nullptr, nullptr, v[0]);
              kernels.propagate_sets(normalization, v[0], v[2], statistics, nullptr, v[2]);
            });
      }
    }
  });
}

TYPED_TEST(DeviceKernelsTest, EmbedAndAttend) {
  using T = TypeParam;
  on_each_device([](Communicator& ranks) {
    constexpr std::int64_t kVocabulary = 7, kUnits = 6, kSamples = 3, kLength = 4, kHeads = 2;
    constexpr std::int64_t kTokens = kSamples * kLength, kScores = kSamples * kHeads * kLength * kLength;
    std::vector<T> indices(kTokens);
    for (std::size_t i = 0; i < indices.size(); ++i) indices[i] = static_cast<T>(i * i % kVocabulary);
    for (const bool causal : {false, true}) {
      Comparison<T>(ranks)
          .with(indices)
          .with(random_values<T>(kVocabulary * kUnits, 1))
          .with(std::vector<T>(kTokens * kUnits))
          .with(random_values<T>(kLength * kUnits, 2))
          .with(std::vector<T>(kScores))
          .with(std::vector<T>(kTokens * kUnits))
          .with(std::vector<T>(kScores))
          .expect_equal(
              20 * TestFixture::kError, [&](const Kernels<T>& all, Workspace& workspace, const Vectors<T>& v) {
                const SequenceKernels<T>& kernels = all.sequence();
                const EmbeddingRows<T> rows{v[0], kTokens, kVocabulary, kUnits};
                kernels.look_up(rows, v[1], v[2]);
                kernels.add_row(kSamples, kLength * kUnits, v[2], v[3], v[2]);
                // Queries and keys are the same; a head has half of the units.
                const Factor<T> heads{v[2], kLength, kUnits / kHeads, false, kUnits};
                const BatchOfProducts::Steps tokens{kLength * kUnits, kUnits / kHeads};
                const BatchOfProducts::Steps squares{kHeads * kLength * kLength, kLength * kLength};
                kernels.multiply_batch({kSamples, kHeads, tokens, tokens, squares}, heads, heads.transpose(), v[4], 0);
                const AttentionScores scores{kSamples * kHeads, kLength, causal, 0.5};
                kernels.softmax(workspace, scores, v[4]);
                kernels.multiply_batch({kSamples, kHeads, squares, tokens, tokens}, {v[4], kLength, kLength}, heads,
                                       v[5], kUnits);
                // One sample, so that the products of its heads are computed together.
                kernels.multiply_batch({1, kHeads, tokens, tokens, squares}, heads, heads.transpose(), v[6], 0);
                kernels.softmax_backward(workspace, scores, v[4], v[6]);
                kernels.look_up_backward(workspace, rows, v[5], v[1]);
              });
    }
  });
}

TYPED_TEST(DeviceKernelsTest, AddTheGradientsOfAnEmbedding) {
  using T = TypeParam;
  on_each_device([](Communicator& ranks) {
    constexpr std::int64_t kVocabulary = 50, kUnits = 3;
    for (const std::int64_t count : {0, 1, 2, 3, 5, 64, 777}) {
      std::vector<T> indices(static_cast<std::size_t>(count));
      const CounterRandom random(11, static_cast<std::uint64_t>(count));
      // Squares, so that some rows are used often and some never.
      for (std::size_t i = 0; i < indices.size(); ++i) {
        indices[i] = static_cast<T>(std::floor(kVocabulary * std::pow(random.uniform(i), 2)));
      }
      Comparison<T>(ranks)
          .with(indices)
          .with(random_values<T>(count * kUnits, 1))
          .with(random_values<T>(kVocabulary * kUnits, 2))
          .expect_equal(0, [&](const Kernels<T>& kernels, Workspace& workspace, const Vectors<T>& v) {
            kernels.scale(count * kUnits, T(0.1), v[1]);  // so that sums depend on their order
            kernels.sequence().look_up_backward(workspace, {v[0], count, kVocabulary, kUnits}, v[1], v[2]);
          });
    }
  });
}

TYPED_TEST(DeviceKernelsTest, ComputeCrossEntropies) {
  using T = TypeParam;
  on_each_device([](Communicator& ranks) {
    constexpr std::int64_t kRows = 300, kClasses = 7, kRowsPerSample = 3;
    std::vector<std::int32_t> labels(kRows);
    for (std::size_t i = 0; i < labels.size(); ++i) labels[i] = static_cast<std::int32_t>(i * i % kClasses);
    std::vector<float> weights(kRows);
    for (std::size_t i = 0; i < weights.size(); ++i) weights[i] = 0.25F * static_cast<float>(i % 5);
    std::vector<T> probabilities = random_values<T>(kRows * kClasses, 2);
    for (T& value : probabilities) value = std::abs(value);
    const std::vector<double> some{1, 0, 2, 0.5, 3, 1.5, 1}, others{2, 2, 1, 0, 1, 1, 4}, few{3, 0.5, 2};
    std::vector<std::int32_t> low(kRows);  // the data have fewer classes than there are logits
    for (std::size_t i = 0; i < low.size(); ++i) low[i] = static_cast<std::int32_t>(i % few.size());
    for (const double smoothing : {0.0, 0.1}) {
      Comparison<T>(ranks)
          .with(random_values<T>(kRows * kClasses, 1))
          .with(labels)
          .with(probabilities)
          .with(weights)
          .with(std::vector<T>(kRows * kClasses))
          .with(std::vector<T>(kRows * kClasses))
          .with(std::vector<double>(5))
          .with(std::vector<T>(kRows * kClasses))
          .with(std::vector<T>(kRows * kClasses))
          .with(low)
          .with(std::vector<T>(kRows * kClasses))
          .expect_equal(TestFixture::kError, [&](const Kernels<T>& all, Workspace& workspace, const Vectors<T>& v) {
            const LossKernels<T>& kernels = all.losses();
            const LabelledRows<T> of_few{v[0], v.template as<std::int32_t>(9), kRows, kClasses};
            kernels.cross_entropy(workspace, of_few, {1, smoothing, few}, 0.5, v[10], v.template as<double>(6) + 4);
            const LabelledRows<T> labelled{v[0], v.template as<std::int32_t>(1), kRows, kClasses};
            const RowsWithProbabilities<T> soft{v[0], v[2], kRows, kClasses};
            const auto* const of_samples = v.template as<float>(3);
            auto* const sums = v.template as<double>(6);
            kernels.cross_entropy(workspace, labelled, {kRowsPerSample, smoothing, {}, of_samples}, 0.5, v[4], sums);
            kernels.soft_cross_entropy(workspace, soft, {1, smoothing, {}, of_samples}, 0.5, v[5], sums + 1);
            for (const auto& of_classes : {some, others, some}) {
              const CrossEntropyTerms terms{1, smoothing, of_classes};
              kernels.cross_entropy(workspace, labelled, terms, 0.5, v[7], sums + 2);
              kernels.soft_cross_entropy(workspace, soft, terms, 0.5, v[8], sums + 3);
            }
          });
    }
  });
}

TYPED_TEST(DeviceKernelsTest, ComputeLossesOfTargets) {
  using T = TypeParam;
  on_each_device([](Communicator& ranks) {
    constexpr std::int64_t kSamples = 90, kWidth = 7, kCount = kSamples * kWidth;
    std::vector<float> weights(kSamples);
    for (std::size_t i = 0; i < weights.size(); ++i) weights[i] = 0.25F * static_cast<float>(i % 5);
    for (int kind = 0; kind <= static_cast<int>(TargetLossKind::kBinaryCrossEntropy); ++kind) {
      const TargetRule rule{static_cast<TargetLossKind>(kind), 0.5};
      Comparison<T>(ranks)
          .with(random_values<T>(kCount, 1))
          .with(random_values<T>(kCount, 2))
          .with(weights)
          .with(random_values<T>(kCount, 3))
          .with(std::vector<double>(4))
          .expect_equal(TestFixture::kError, [&](const Kernels<T>& all, Workspace& workspace, const Vectors<T>& v) {
            const LossKernels<T>& kernels = all.losses();
            const OutputsWithTargets<T> values{v[0], v[1], kSamples, kWidth};
            auto* const sums = v.template as<double>(4);
            kernels.target_loss(workspace, rule, values, v.template as<float>(2), 0.5, v[3], sums);
            kernels.target_loss(workspace, rule, values, nullptr, 0.5, nullptr, sums + 1);
            kernels.add_errors(workspace, rule, values, sums + 2);
            all.add_scaled(0.5, sums, sums + 1);
          });
    }
  });
}

TYPED_TEST(DeviceKernelsTest, CountForMetrics) {
  using T = TypeParam;
  on_each_device([](Communicator& ranks) {
    constexpr std::int64_t kRows = 500, kClasses = 5;
    std::vector<std::int32_t> labels(kRows);
    for (std::size_t i = 0; i < labels.size(); ++i) labels[i] = static_cast<std::int32_t>(i * i % kClasses);
    std::vector<T> logits = random_values<T>(kRows * kClasses, 2);
    for (std::size_t i = 0; i < logits.size(); i += 7) logits[i] = std::numeric_limits<T>::quiet_NaN();
    Comparison<T>(ranks)
        .with(labels)
        .with(logits)
        .with(std::vector<double>(kClasses * kClasses + 6))
        .expect_equal(0, [&](const Kernels<T>& all, Workspace& workspace, const Vectors<T>& v) {
          const LossKernels<T>& kernels = all.losses();
          const LabelledRows<T> rows{v[1], v.template as<std::int32_t>(0), kRows, kClasses};
          auto* const sums = v.template as<double>(2);
          kernels.count_right(workspace, rows, 1, sums);
          kernels.count_right(workspace, rows, 2, sums + 2);
          kernels.count_right_sides(workspace, 0.25, {v[1], v[1] + 1, kRows, kClasses - 1}, sums + 4);
          kernels.count_confusions(workspace, rows, sums + 6);
          kernels.count_confusions(workspace, rows, sums + 6);
        });
  });
}

/// Sizes of logits whose rows have several parts on a device: many classes with few rows, odd sizes, the shortest such
/// rows, and more rows than a part each.
struct LongRows {
  std::int64_t rows, classes;
};
constexpr LongRows kLongRows[]{{3, 50000}, {1, 50001}, {37, 1003}, {5, 64}, {2500, 65}};

/// Labels in runs, which begin with class 0 and end with the last one.
std::vector<std::int32_t> labels_in_runs(const LongRows& sizes) {
  std::vector<std::int32_t> labels(static_cast<std::size_t>(sizes.rows));
  for (std::size_t i = 0; i < labels.size(); ++i) {
    const auto index = static_cast<std::int64_t>(i) / 2 * 2;
    labels[i] = static_cast<std::int32_t>(index * (sizes.classes - 1) / std::max<std::int64_t>(sizes.rows - 1, 1));
  }
  return labels;
}

TYPED_TEST(DeviceKernelsTest, ComputeCrossEntropiesOfLongRows) {
  using T = TypeParam;
  on_each_device([](Communicator& ranks) {
    for (const LongRows& sizes : kLongRows) {
      const std::int64_t elements = sizes.rows * sizes.classes;
      std::vector<T> probabilities = random_values<T>(elements, 2), logits = random_values<T>(elements, 1);
      for (T& value : probabilities) value = std::abs(value) / static_cast<T>(sizes.classes);
      for (std::size_t i = 0; i < logits.size(); ++i) logits[i] *= static_cast<T>(i % 97);
      std::vector<double> of_classes(static_cast<std::size_t>(sizes.classes));
      for (std::size_t i = 0; i < of_classes.size(); ++i) of_classes[i] = 0.5 + 0.25 * static_cast<double>(i % 3);
      for (const double smoothing : {0.0, 0.1}) {
        Comparison<T>(ranks)
            .with(logits)
            .with(labels_in_runs(sizes))
            .with(probabilities)
            .with(std::vector<T>(logits.size()))
            .with(std::vector<T>(logits.size()))
            .with(std::vector<double>(3))
            .expect_equal(TestFixture::kError, [&](const Kernels<T>& all, Workspace& workspace, const Vectors<T>& v) {
              const LossKernels<T>& kernels = all.losses();
              const LabelledRows<T> labelled{v[0], v.template as<std::int32_t>(1), sizes.rows, sizes.classes};
              const RowsWithProbabilities<T> soft{v[0], v[2], sizes.rows, sizes.classes};
              auto* const sums = v.template as<double>(5);
              kernels.cross_entropy(workspace, labelled, {1, smoothing, of_classes}, 0.5, v[3], sums);
              kernels.cross_entropy(workspace, labelled, {1, smoothing, {}}, 0.5, nullptr, sums + 1);
              kernels.soft_cross_entropy(workspace, soft, {1, smoothing, of_classes}, 0.5, v[4], sums + 2);
            });
      }
    }
  });
}

TYPED_TEST(DeviceKernelsTest, ComputeCrossEntropiesOfInfiniteLogits) {
  using T = TypeParam;
  on_each_device([](Communicator& ranks) {
    constexpr std::int64_t kRows = 4, kClasses = 128;
    constexpr T kInfinity = std::numeric_limits<T>::infinity();
    std::vector<T> logits(kRows * kClasses, -kInfinity);
    logits[3] = -1000;                                               // all other parts of row 0 have no finite logit
    logits[kClasses + 7] = std::numeric_limits<T>::quiet_NaN();      // row 1
    std::fill_n(logits.begin() + 2 * kClasses, kClasses, T{-1000});  // row 2, and row 3 has no finite logit at all
    const std::vector<std::int32_t> labels{3, 0, 5, 1};
    Comparison<T>(ranks)
        .with(logits)
        .with(labels)
        .with(std::vector<T>(logits.size()))
        .with(std::vector<double>(kRows))
        .expect_equal(TestFixture::kError, [&](const Kernels<T>& all, Workspace& workspace, const Vectors<T>& v) {
          for (std::int64_t row = 0; row < kRows; ++row) {
            const LabelledRows<T> one{v[0] + row * kClasses, v.template as<std::int32_t>(1) + row, 1, kClasses};
            all.losses().cross_entropy(workspace, one, {}, 1, v[2] + row * kClasses, v.template as<double>(3) + row);
          }
        });
  });
}

TYPED_TEST(DeviceKernelsTest, CountForMetricsOfLongRows) {
  using T = TypeParam;
  on_each_device([](Communicator& ranks) {
    for (const LongRows& sizes : kLongRows) {
      std::vector<T> logits = random_values<T>(sizes.rows * sizes.classes, 2);
      for (std::size_t i = 0; i < logits.size(); i += 7) logits[i] = std::numeric_limits<T>::quiet_NaN();
      const bool has_matrix = sizes.classes < 2000;
      const std::int64_t counts = has_matrix ? sizes.classes * sizes.classes : 0;
      Comparison<T>(ranks)
          .with(labels_in_runs(sizes))
          .with(logits)
          .with(std::vector<double>(static_cast<std::size_t>(counts + 4)))
          .expect_equal(0, [&](const Kernels<T>& all, Workspace& workspace, const Vectors<T>& v) {
            const LossKernels<T>& kernels = all.losses();
            const LabelledRows<T> rows{v[1], v.template as<std::int32_t>(0), sizes.rows, sizes.classes};
            auto* const sums = v.template as<double>(2);
            kernels.count_right(workspace, rows, 1, sums);
            kernels.count_right(workspace, rows, sizes.classes / 2, sums + 2);
            if (has_matrix) kernels.count_confusions(workspace, rows, sums + 4);
          });
    }
  });
}

TYPED_TEST(DeviceKernelsTest, CountConfusionsOfRunsOfLabels) {
  using T = TypeParam;
  on_each_device([](Communicator& ranks) {
    constexpr std::int64_t kRows = 20001, kClasses = 9;
    std::vector<std::int32_t> labels(kRows);
    for (std::size_t i = 0; i < labels.size(); ++i) labels[i] = static_cast<std::int32_t>(i * kClasses / kRows);
    Comparison<T>(ranks)
        .with(labels)
        .with(random_values<T>(kRows * kClasses, 3))
        .with(std::vector<double>(kClasses * kClasses, 0.0))
        .expect_equal(0, [&](const Kernels<T>& all, Workspace& workspace, const Vectors<T>& v) {
          const LabelledRows<T> rows{v[1], v.template as<std::int32_t>(0), kRows, kClasses};
          all.losses().count_confusions(workspace, rows, v.template as<double>(2));
        });
  });
}

TYPED_TEST(DeviceKernelsTest, AttendToLongRows) {
  using T = TypeParam;
  on_each_device([](Communicator& ranks) {
    for (const std::int64_t length : {64, 131}) {
      for (const bool causal : {false, true}) {
        std::vector<T> scores = random_values<T>(3 * length * length, 1);
        for (std::size_t i = 0; i < scores.size(); ++i) scores[i] *= static_cast<T>(i % 53);
        Comparison<T>(ranks)
            .with(scores)
            .with(random_values<T>(3 * length * length, 2))
            .expect_equal(TestFixture::kError, [&](const Kernels<T>& all, Workspace& workspace, const Vectors<T>& v) {
              const AttentionScores squares{3, length, causal, 0.25};
              all.sequence().softmax(workspace, squares, v[0]);
              all.sequence().softmax_backward(workspace, squares, v[0], v[1]);
            });
      }
    }
  });
}

TYPED_TEST(DeviceKernelsTest, UpdateParameters) {
  using T = TypeParam;
  on_each_device([](Communicator& ranks) {
    constexpr std::int64_t kCount = 700;
    Comparison<T> comparison(ranks);
    for (const std::uint64_t seed : {1, 2, 3, 4}) comparison.with(random_values<T>(kCount, seed));
    comparison.expect_equal(
        TestFixture::kError, [](const Kernels<T>& kernels, Workspace& workspace, const Vectors<T>& v) {
          // The scale lies in the memory of the kernels: take it from the workspace.
          Workspace::Scope scope(workspace);
          const VectorView<double> numbers = scope.take<double>(2);
          double *const squares = numbers.data(), *const scale = numbers.data() + 1;
          kernels.set_gradient_scale(0, {}, squares);
          kernels.add_squares(workspace, kCount, v[1], squares);
          for (const double limit : {0.0, 1e-3, 1e6}) {
            kernels.set_gradient_scale(0.5, {limit, squares}, scale);
            for (const bool nesterov : {false, true}) {
              kernels.sgd({{0.1}, 0.9, 1e-2, nesterov, scale}, kCount, v[1], v[2], v[0]);
            }
            kernels.multiply_elements(kCount, v[3], v[3], v[3]);  // second moments are not negative
            kernels.adam({{0.01}, 0.9, 0.99, 1e-8, 0.75, 1.5, 1e-2, 1e-3, scale}, kCount, v[1], v[2], v[3], v[0]);
          }
        });
  });
}

}  // namespace
}  // namespace farandole::trainer::test
