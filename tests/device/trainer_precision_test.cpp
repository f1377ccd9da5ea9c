// SPDX-License-Identifier: Apache-2.0
// Trainings whose products and convolutions are computed in bf16 or f16: the kernels, the loss scale, and what is
// refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <functional>
#include <limits>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "farandole/trainer/models.h"
#include "farandole/trainer/random.h"
#include "groups.h"
#include "half_values.h"
#include "kernel_comparison.h"
#include "message_of.h"
#include "on_device.h"
#include "small_nets.h"

namespace farandole::trainer::test {
namespace {

using farandole::test::for_each_device_group;
using farandole::test::message_of;
using farandole::test::on_each_device;
using testing::HasSubstr;

/// A comparison of a device that computes in `half` on values with the host, in f32 on the rounded values.
class HalfComparison : public Comparison<float> {
 public:
  HalfComparison(Communicator& ranks, DType half, AlgorithmChoice choice = AlgorithmChoice::kFixed)
      : Comparison<float>(ranks, {choice, half}), half_(half) {}
  HalfComparison& with_factor(std::int64_t count, std::uint64_t seed) {
    const std::vector<float> values = fine_values<float>(count, seed);
    reading(rounded(values, half_), values);
    return *this;
  }
  HalfComparison& with_result(std::int64_t count) {
    with(fine_values<float>(count, 99));
    return *this;
  }

 private:
  const DType half_;
};

/// Of sums of products of floats in another order.
constexpr double kSumError = 2e-5;

TEST(HalfKernels, RoundTheFactorsOfProductsOnly) {
  on_each_device([](Communicator& ranks) {
    for (const DType half : kHalves) {
      for (const std::int64_t inner : {5, 8, 40}) {
        constexpr std::int64_t kRows = 7, kColumns = 3;
        HalfComparison(ranks, half)
            .with_factor(kRows * inner, 1)
            .with_factor(inner * kColumns, 2)
            .with_factor(kRows * kColumns, 3)
            .with_result(kRows * 4)
            .with_result(inner * kColumns)
            .with_result(kRows * inner)
            .expect_equal(kSumError, [&](const Kernels<float>& kernels, Workspace&, const Vectors<float>& v) {
              const Factor<float> left{v[0], kRows, inner}, right{v[1], inner, kColumns};
              kernels.multiply(left, right, false, v[3], 4);
              kernels.multiply(left, right, true, v[3], 4);
              kernels.multiply(left.transpose(), {v[2], kRows, kColumns}, false, v[4]);
              kernels.multiply({v[2], kRows, kColumns}, right.transpose(), false, v[5]);
              kernels.multiply({v[0] + 1, kRows, inner - 1, false, inner}, {v[1], inner - 1, kColumns}, true, v[3], 4);
            });
      }
    }
  });
}

TEST(HalfKernels, ComputeEverythingElseInFloats) {
  on_each_device([](Communicator& ranks) {
    for (const DType half : kHalves) {
      constexpr std::int64_t kRows = 9, kColumns = 4;
      Comparison<float>(ranks, {.compute = half})
          .with(fine_values<float>(kRows * kColumns, 1))
          .with(fine_values<float>(kRows * kColumns, 2))
          .with(std::vector<float>(kColumns))
          .expect_equal(1e-6, [](const Kernels<float>& kernels, Workspace&, const Vectors<float>& v) {
            kernels.add(kRows * kColumns, v[0], v[1], v[1]);
            kernels.sum_rows(v[1], kRows, kColumns, v[2]);
          });
    }
  });
}

TEST(HalfKernels, RoundTheFactorsOfHeads) {
  on_each_device([](Communicator& ranks) {
    for (const DType half : kHalves) {
      for (const auto& [samples, heads] : {std::pair<std::int64_t, std::int64_t>{3, 2}, {2, 5}}) {
        constexpr std::int64_t kLength = 6, kUnits = 3;
        const std::int64_t width = heads * kUnits, batch = samples, of_sample = kLength * width, count = heads;
        HalfComparison(ranks, half)
            .with_factor(samples * of_sample, 1)
            .with_factor(samples * of_sample, 2)
            .with_result(samples * heads * kLength * kLength)
            .expect_equal(kSumError, [&](const Kernels<float>& kernels, Workspace&, const Vectors<float>& v) {
              const BatchOfProducts::Steps by_row{of_sample, kUnits},
                  scores{count * kLength * kLength, kLength * kLength};
              const Factor<float> left{v[0], kLength, kUnits, false, width}, right{v[1], kLength, kUnits, true, width};
              kernels.sequence().multiply_batch({batch, count, by_row, by_row, scores}, left, right, v[2], 0);
            });
      }
    }
  });
}

TEST(HalfKernels, ConvolveWithinTheRoundingOfTheirResults) {
  on_each_device([](Communicator& ranks) {
    for (const DType half : kHalves) {
      for (const auto& window : {KernelWindow{3, 1, 1}, {3, 2, 1}, {1, 1, 0}}) {
        ConvolutionGeometry g = convolution_geometry("conv2d", {6, 7, 2}, window);
        g.channels = 3;
        constexpr std::int64_t kSamples = 5;
        const std::int64_t inputs = kSamples * g.input_elements(), weights = g.patch_elements() * g.channels;
        const std::int64_t outputs = kSamples * g.output_positions() * g.channels;
        for (const AlgorithmChoice choice : {AlgorithmChoice::kFixed, AlgorithmChoice::kMeasured}) {
          HalfComparison(ranks, half, choice)
              .with_factor(inputs, 1)
              .with_factor(weights, 2)
              .with_factor(outputs, 3)
              .with_result(g.channels)
              .with_result(outputs)
              .with_result(weights)
              .with_result(inputs)
              .expect_equal(unit(half) + kSumError,
                            [&](const Kernels<float>& kernels, Workspace& workspace, const Vectors<float>& v) {
                              const auto convolution = kernels.convolution(g, {.library = ConvolutionLibrary::kEigen});
                              convolution->forward(workspace, kSamples, v[0], v[1], v[3], v[4]);
                              convolution->backward(workspace, kSamples, v[0], v[1], v[2], v[5], nullptr, v[6]);
                              convolution->forward(workspace, kSamples, v[0], v[1], nullptr, v[4]);
                            });
        }
      }
    }
  });
}

TEST(HalfKernels, MoveTheLossScale) {
  on_each_device([](Communicator& ranks) {
    constexpr double kHuge = std::numeric_limits<double>::infinity();
    LossScale scale{.scale = 8};
    std::vector<std::uint8_t> bytes(sizeof scale);
    std::memcpy(bytes.data(), &scale, sizeof scale);
    for (const bool is_dynamic : {false, true}) {
      Comparison<float>(ranks)
          .with(bytes)
          .with(std::vector<double>{4, kHuge, std::nan("")})
          .with(std::vector<double>(6))
          .with(fine_values<float>(10, 1))
          .with(fine_values<float>(10, 2))
          .expect_equal(0, [&](const Kernels<float>& kernels, Workspace&, const Vectors<float>& v) {
            auto* const moved = v.as<LossScale>(0);
            auto* const results = v.as<double>(2);
            int result = 0;
            for (const int squares : {0, 0, 1, 2, 0, 0, 0}) {
              const double limit = squares == 0 && result == 1 ? 0.125 : 0;
              kernels.set_gradient_scale(0.5, {limit, v.as<double>(1) + squares, moved}, results + result % 6);
              kernels.approach(10, 0.5F, v[3], v[4], moved);
              kernels.move_average(10, 0.5F, 0.5F, v[3], v[4], moved);
              kernels.move_loss_scale({is_dynamic, 2}, moved);
              kernels.scale_by(10, &moved->scale, v[3]);
              ++result;
            }
          });
    }
  });
}

TEST(HalfKernels, AnUpdateOfASkippedStepChangesNothing) {
  on_each_device([](Communicator& ranks) {
    const double skipped = std::nan("");
    Comparison<float> comparison(ranks);
    comparison.with(std::vector<double>{skipped});
    for (const std::uint64_t seed : {1, 2, 3, 4}) comparison.with(fine_values<float>(10, seed));
    comparison.expect_equal(0, [](const Kernels<float>& kernels, Workspace&, const Vectors<float>& v) {
      if (&kernels == &host_kernels<float>()) return;  // the values before
      const auto* const scale = v.as<double>(0);
      kernels.sgd({{.rate = 0.1}, 0.9, 0.1, false, scale}, 10, v[1], v[2], v[3]);
      kernels.adam({{.rate = 0.1}, 0.9, 0.99, 1e-8, 1, 1, 0, 0, scale}, 10, v[1], v[2], v[3], v[4]);
    });
  });
}

/// What a rank has seen of a training.
struct Course {
  std::vector<double> losses;
  EpochReport report;
  double test_loss = 0;
};

struct HalfTask {
  std::function<Model<float>()> make_model;
  std::shared_ptr<const Dataset> data;
};

HalfTask of_images(const Layers<float>& make_layers) {
  return {[make_layers] { return Model<float>(kImage, make_layers()); }, Data{}.training};
}

/// A text in which each symbol is a function of the one before. bf16 cannot hold most of its symbols.
HalfTask of_text() {
  constexpr std::int64_t kSamples = 250, kLength = 6, kSymbols = 300;
  Samples samples{.shape = {kLength}, .classes = kSymbols, .labels_per_sample = kLength};
  std::vector<float> inputs;
  for (std::int64_t i = 0, symbol = 0; i < kSamples * kLength; ++i) {
    inputs.push_back(static_cast<float>(symbol));
    symbol = (3 * symbol + 257) % kSymbols;
    samples.labels.push_back(static_cast<std::int32_t>(symbol));
  }
  samples.inputs = std::move(inputs);
  const ModelOptions sizes{
      .input = {kLength}, .vocabulary = kSymbols, .blocks = 1, .units = 16, .heads = 2, .dropout = 0.1};
  return {[sizes] { return Model<float>(sizes.input, layers_of<float>("gpt", sizes)); },
          memory_dataset(std::move(samples))};
}

Course run_task(Communicator& ranks, const HalfTask& task, TrainerOptions options) {
  Course seen;
  options.device = ComputeDevice::kCuda;
  options.on_step = [&](const StepReport& report) { seen.losses.push_back(report.loss); };
  Trainer<float> trainer(ranks, task.make_model(), task.data, nullptr, options);
  seen.report = trainer.fit();
  seen.test_loss = trainer.evaluate(*task.data).loss;
  return seen;
}

void expect_same_course(const Course& found, const Course& expected) {
  EXPECT_EQ(found.losses, expected.losses);
  EXPECT_EQ(found.report.parameters_checksum, expected.report.parameters_checksum);
  EXPECT_EQ(found.report.skipped_steps, expected.report.skipped_steps);
  EXPECT_EQ(found.report.loss_scale, expected.report.loss_scale);
  EXPECT_EQ(found.test_loss, expected.test_loss);
}

/// Losses of 24 training steps differ from those in f32 by some roundings of the type: the activations of a net with
/// four products in a row have the relative error sqrt(2 * 4) * unit, and updates add up over the steps. A factor of 4
/// allows for that.
TEST(HalfTraining, HasNearlyTheLossesOfFloats) {
  for_each_device_group({2}, [](Communicator& ranks) {
    for (const HalfTask& task :
         {of_images(mlp<float>), of_images(small_cnn<float>), of_images([] { return small_residual_net<float>(); }),
          of_images(small_transformer<float>), of_text()}) {
      TrainerOptions options = one_thread(24);
      options.deterministic = true;
      options.micro_batches = 2;
      const Course in_f32 = run_task(ranks, task, options);
      EXPECT_LT(in_f32.losses.back(), in_f32.losses.front());
      for (const DType half : kHalves) {
        options.compute = half;
        const Course found = run_task(ranks, task, options);
        ASSERT_EQ(found.losses.size(), in_f32.losses.size());
        EXPECT_NE(found.losses, in_f32.losses);
        const double bound = 4 * std::sqrt(8) * unit(half);
        for (std::size_t i = 0; i < found.losses.size(); ++i) {
          ASSERT_NEAR(found.losses[i], in_f32.losses[i], bound * in_f32.losses[i]) << name(half) << ", step " << i + 1;
        }
        EXPECT_NEAR(found.test_loss, in_f32.test_loss, bound * in_f32.test_loss);
        EXPECT_EQ(found.report.skipped_steps, 0);
        EXPECT_EQ(found.report.loss_scale, half == DType::kF16 ? std::optional(65536.0) : std::nullopt);
      }
    }
  });
}

/// Images one of which counts so much that its gradient, times the loss scale, is too large for f16.
std::shared_ptr<const Dataset> with_a_heavy_sample(const Dataset& images, std::uint32_t heavy) {
  std::vector<std::uint32_t> all(static_cast<std::size_t>(images.size()));
  std::iota(all.begin(), all.end(), 0U);
  Batch<float> batch;
  images.gather(all, batch);
  Samples samples{.shape = images.shape(),
                  .inputs = std::vector<float>(batch.inputs.host().begin(), batch.inputs.host().end()),
                  .labels = batch.labels,
                  .classes = images.classes()};
  samples.weights.assign(all.size(), 1);
  samples.weights[heavy] = 1000;
  return memory_dataset(std::move(samples));
}

HalfTask with_an_overflow(const Layers<float>& make_layers) {
  HalfTask task = of_images(make_layers);
  task.data = with_a_heavy_sample(*task.data, 100);
  return task;
}

TEST(HalfTraining, SkipsTheStepOfAnOverflowOnAllReplicas) {
  const HalfTask task = with_an_overflow([] { return small_residual_net<float>(); });
  for_each_device_group({1, 2, 4}, [&](Communicator& ranks) {
    TrainerOptions options = one_thread(8);  // an epoch, so the sample comes once
    options.device = ComputeDevice::kCuda;
    options.compute = DType::kF16;
    options.optimizer.ema_decay = 0.5;
    std::vector<std::vector<float>> values;
    std::vector<double> losses;
    Trainer<float>* running = nullptr;
    options.on_step = [&](const StepReport& report) {
      losses.push_back(report.loss);
      Model<float>& model = running->model();
      std::vector<float>& all = values.emplace_back(to_host<float>(model.execution(), model.parameters()));
      for (const auto& more : {to_host<float>(model.execution(), model.statistics()), running->averaged_parameters()}) {
        all.insert(all.end(), more.begin(), more.end());
      }
    };
    Trainer<float> trainer(ranks, task.make_model(), task.data, nullptr, options);
    running = &trainer;
    const EpochReport report = trainer.fit();  // compares the replicas
    EXPECT_EQ(report.skipped_steps, 1);
    EXPECT_EQ(report.loss_scale, 32768);
    const auto heavy = std::max_element(losses.begin(), losses.end()) - losses.begin();
    ASSERT_GT(heavy, 0) << "choose another sample";
    for (std::size_t i = 1; i < values.size(); ++i) {
      EXPECT_EQ(values[i] == values[i - 1], static_cast<std::ptrdiff_t>(i) == heavy) << i;
    }
  });
}

TEST(HalfTraining, TheScaleGrowsAndOthersStay) {
  for_each_device_group({1}, [](Communicator& ranks) {
    using Kind = LossScaleOptions::Kind;
    const auto scale_of = [&](DType half, const LossScaleOptions& scale) {
      TrainerOptions options = one_thread(9);
      options.compute = half;
      options.loss_scale = scale;
      return run_task(ranks, of_images(mlp<float>), options).report.loss_scale;
    };
    EXPECT_EQ(scale_of(DType::kF16, {.scale = 16, .growth_steps = 4}), 64);
    EXPECT_EQ(scale_of(DType::kBF16, {.kind = Kind::kDynamic, .scale = 16, .growth_steps = 4}), 64);
    EXPECT_EQ(scale_of(DType::kBF16, {.kind = Kind::kFixed, .scale = 16, .growth_steps = 4}), 16);
    EXPECT_EQ(scale_of(DType::kF16, {.kind = Kind::kNone}), std::nullopt);
  });
}

/// A power of two changes no bits where nothing is too small or too large.
TEST(HalfTraining, AScaleChangesNoBitsInBf16) {
  for_each_device_group({1}, [](Communicator& ranks) {
    TrainerOptions options = one_thread(10);
    options.compute = DType::kBF16;
    options.optimizer.kind = OptimizerKind::kAdam;
    options.clip_norm = 0.25;
    const Course without = run_task(ranks, of_images(mlp<float>), options);
    options.loss_scale = {.kind = LossScaleOptions::Kind::kFixed, .scale = 1024};
    const Course with = run_task(ranks, of_images(mlp<float>), options);
    EXPECT_EQ(with.losses, without.losses);
    EXPECT_EQ(with.report.parameters_checksum, without.report.parameters_checksum);
  });
}

/// Options under which the scale moves both ways.
TrainerOptions with_moving_scale(std::int64_t steps) {
  TrainerOptions options = one_thread(steps);
  options.compute = DType::kF16;
  options.loss_scale.growth_steps = 3;
  options.deterministic = true;
  options.micro_batches = 4;
  options.optimizer.kind = OptimizerKind::kAdam;
  options.optimizer.ema_decay = 0.5;
  options.learning_rate.base = 0.005;
  options.learning_rate.warmup_steps = 6;
  return options;
}

/// Trains on one replica, on all, and on all by graphs.
void expect_the_same_bits(const HalfTask& task, bool skips) {
  for_each_device_group({1, 2, 4}, [&](Communicator& ranks) {
    TrainerOptions options = with_moving_scale(20);
    Communicator alone = ranks.split(ranks.rank());
    const Course of_one = run_task(alone, task, options);
    EXPECT_EQ(of_one.report.skipped_steps > 0, skips);
    expect_same_course(run_task(ranks, task, options), of_one);
    options.graph = true;
    expect_same_course(run_task(ranks, task, options), of_one);
    ranks.barrier();
  });
}

TEST(HalfTraining, HasTheSameBitsByGraphsAndOnAnyNumberOfReplicas) {
  expect_the_same_bits(with_an_overflow(small_cnn<float>), true);
}

TEST(HalfTraining, AttentionHasTheSameBitsByGraphsAndOnAllReplicas) {
  expect_the_same_bits(of_text(), false);
}

TEST(HalfTraining, GoesOnFromACheckpointWithTheSameBits) {
  const HalfTask task = with_an_overflow(small_cnn<float>);
  for_each_device_group({1, 2}, [&](Communicator& ranks) {
    const TemporaryDirectory directory;
    const std::filesystem::path path = of_rank_zero(ranks, directory);
    Course whole = run_task(ranks, task, with_moving_scale(20));
    TrainerOptions options = with_moving_scale(11);
    options.checkpoints.directory = path;
    run_task(ranks, task, options);
    options.max_steps = 20;
    options.checkpoints.resume = true;
    const Course rest = run_task(ranks, task, options);
    whole.losses.erase(whole.losses.begin(), whole.losses.begin() + 11);
    expect_same_course(rest, whole);
    ranks.barrier();
  });
}

TEST(HalfTraining, GoesOnFromACheckpointOfFloatsAndBack) {
  for_each_device_group({1, 2}, [](Communicator& ranks) {
    const TemporaryDirectory directory;
    const std::filesystem::path path = of_rank_zero(ranks, directory);
    const HalfTask task = of_images(mlp<float>);
    TrainerOptions options = one_thread(15);
    const Course whole = run_task(ranks, task, options);
    options.checkpoints.directory = path;
    std::vector<double> losses;
    for (const std::int64_t last : {5, 10, 15}) {
      options.max_steps = last;
      options.compute = last == 10 ? std::optional(DType::kF16) : std::nullopt;
      const Course part = run_task(ranks, task, options);
      losses.insert(losses.end(), part.losses.begin(), part.losses.end());
      options.checkpoints.resume = true;
    }
    ASSERT_EQ(losses.size(), whole.losses.size());
    for (std::size_t i = 0; i < losses.size(); ++i) EXPECT_NEAR(losses[i], whole.losses[i], 0.01) << i;
    options.compute = DType::kBF16;
    options.device = ComputeDevice::kCuda;
    const Trainer<float> resumed(ranks, task.make_model(), task.data, nullptr, options);
    if (ranks.rank() == 0) {
      EXPECT_THAT(resumed.changed_options(), testing::Contains("compute: the model's type, now bf16"));
    }
    ranks.barrier();
  });
}

/// The text with which a training is refused.
template <class Error>
std::string refusal(Communicator& ranks, const TrainerOptions& options, LayerList<float> list = mlp<float>()) {
  return message_of<Error>(
      [&] { Trainer<float>(ranks, Model<float>(kImage, std::move(list)), Data{}.training, nullptr, options); });
}

TEST(HalfTraining, IsRefusedInHostMemory) {
  for_each_device_group({1}, [](Communicator& ranks) {
    TrainerOptions options = one_thread(2);
    for (const DType half : kHalves) {
      options.compute = half;
      options.device = ComputeDevice::kCpu;
      EXPECT_THAT(
          refusal<Unsupported>(ranks, options),
          HasSubstr(std::string(name(half)) + " is computed on devices only; train on a device (--device cuda"));
      options.device = ComputeDevice::kAuto;
      LayerList<float> list = mlp<float>();
      list.push_back(HostLayer::make());
      EXPECT_THAT(refusal<Unsupported>(ranks, options, std::move(list)), HasSubstr("computes in host memory only"));
    }
  });
}

TEST(HalfTraining, RefusesWhatDoesNotFit) {
  for_each_device_group({1}, [](Communicator& ranks) {
    using Kind = LossScaleOptions::Kind;
    TrainerOptions options = one_thread(2);
    options.device = ComputeDevice::kCuda;
    options.compute = DType::kF64;
    EXPECT_THAT(refusal<InvalidArgument>(ranks, options), HasSubstr("a model of f32 cannot compute in f64"));
    options.compute = DType::kF16;
    EXPECT_THAT(message_of<InvalidArgument>([&] {
                  Trainer<double>(ranks, Model<double>(kImage, mlp<double>()), Data{}.training, nullptr, options);
                }),
                HasSubstr("a model of f64 cannot compute in f16"));
    for (const double scale : {0.0, 1e9, std::nan("")}) {
      options.loss_scale = {.kind = Kind::kFixed, .scale = scale};
      EXPECT_THAT(refusal<InvalidArgument>(ranks, options), HasSubstr("the loss scale is"));
    }
    options.loss_scale = {.kind = Kind::kDynamic};
    options.optimizer.kind = OptimizerKind::kOwn;
    options.optimizer.own.f32 = [] { return make_update_rule<float>({}); };
    EXPECT_THAT(refusal<Unsupported>(ranks, options), HasSubstr("does not know of loss scales"));
    options.optimizer = {};
    options.compute.reset();
    EXPECT_THAT(refusal<InvalidArgument>(ranks, options), HasSubstr("a loss scale has an effect in f16 and bf16 only"));
  });
}

}  // namespace
}  // namespace farandole::trainer::test
