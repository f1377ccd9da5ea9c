// SPDX-License-Identifier: Apache-2.0
// Training steps that a loss scale skips: what counts them, and losses that are no numbers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "farandole/trainer/loss.h"
#include "farandole/trainer/optimizer.h"
#include "groups.h"
#include "kernels/device_execution.h"
#include "kernels/transfer.h"
#include "message_of.h"
#include "on_device.h"
#include "small_nets.h"

namespace farandole::trainer::test {
namespace {

using farandole::test::for_each_device_group;
using farandole::test::message_of;
using farandole::test::on_each_device;
using testing::HasSubstr;

constexpr std::int64_t kCount = 10;

/// An optimizer with its parameters and a loss scale, in host memory or on a device.
class ScaledUpdates {
 public:
  ScaledUpdates(const Execution& execution, OptimizerKind kind)
      : execution_(execution),
        optimizer_({.kind = kind, .weight_decay = 0.1, .ema_decay = 0.5}, {{"w", {kCount}, 0, kCount}}, kCount,
                   execution),
        parameters_(filled<float>(std::vector<float>(kCount, 0.5F))),
        gradients_(filled<float>(std::vector<float>(kCount))),
        scale_(filled<LossScale>({{.scale = 4}})),
        numbers_(filled<StepNumbers>({StepNumbers{}})) {}

  /// @param by_numbers  the training step is in the memory of the execution, as for graphs
  void update(std::int64_t training_step, float gradient, bool has_scale, bool by_numbers) {
    UpdateStep step{.learning_rate = 0.1, .training_step = training_step};
    if (has_scale) {
      step.loss_scale = static_cast<LossScale*>(scale_.view().data);
      gradient *= 4;
    }
    if (by_numbers) {
      fill<StepNumbers>(numbers_, {optimizer_.step_numbers(step)});
      step.step_numbers = static_cast<const StepNumbers*>(numbers_.view().data);
      step.training_step = 1000;  // not read
    }
    fill<float>(gradients_, std::vector<float>(kCount, gradient));
    optimizer_.update(execution_, view(parameters_), view(gradients_), step);
    if (has_scale) kernels_of<float>(execution_).move_loss_scale({}, step.loss_scale);
  }
  std::vector<float> values() {
    std::vector<float> all = to_host<float>(execution_, view(parameters_));
    for (OptimizerState& state : optimizer_.states()) {
      const std::vector<float> more = to_host<float>(execution_, view(state.values));
      all.insert(all.end(), more.begin(), more.end());
    }
    return all;
  }

 private:
  static VectorView<float> view(Buffer& buffer) { return {buffer.as<float>(), buffer.count(), buffer.space()}; }
  template <class T>
  void fill(Buffer& to, const std::vector<T>& values) {
    copy_now(execution_, BufferView(to.view().data, sizeof(T) * values.size(), DType::kU8, to.space()),
             ConstBufferView(values.data(), sizeof(T) * values.size(), DType::kU8));
  }
  template <class T>
  Buffer filled(const std::vector<T>& values) {
    constexpr bool kIsFloat = std::is_same_v<T, float>;
    Buffer buffer = allocate(execution_.memory(), kIsFloat ? values.size() : values.size() * sizeof(T),
                             kIsFloat ? DType::kF32 : DType::kU8);
    fill(buffer, values);
    return buffer;
  }

  const Execution& execution_;
  Optimizer<float> optimizer_;
  Buffer parameters_, gradients_, scale_, numbers_;
};

/// Six training steps, of which two overflow, are four updates.
void expect_skipped_steps_do_not_count(const Execution& execution) {
  constexpr float kHuge = std::numeric_limits<float>::infinity();
  for (const OptimizerKind kind : {OptimizerKind::kAdam, OptimizerKind::kAdamW, OptimizerKind::kSgd}) {
    for (const bool by_numbers : {false, true}) {
      if (by_numbers && execution.space().is_host()) continue;  // graphs are on devices
      ScaledUpdates scaled(execution, kind), plain(execution, kind);
      std::int64_t training_step = 0, update = 0;
      for (const float gradient : {1.0F, kHuge, -0.5F, 0.25F, kHuge, 2.0F}) {
        scaled.update(training_step++, gradient, true, by_numbers);
        if (std::isfinite(gradient)) plain.update(update++, gradient, false, by_numbers);
        EXPECT_EQ(scaled.values(), plain.values()) << name(kind) << ", step " << training_step << ", " << by_numbers;
      }
    }
  }
}

TEST(SkippedSteps, DoNotCountForAdamInHostMemory) {
  expect_skipped_steps_do_not_count(Execution{});
}

TEST(SkippedSteps, DoNotCountForAdamOnADevice) {
  on_each_device([](Communicator& ranks) { expect_skipped_steps_do_not_count(device_execution(ranks, {})); });
}

TEST(SkippedSteps, OfAnEarlierTrainingDoNotCountWithoutALossScale) {
  const Execution execution;
  const NamedSpan span{"w", {kCount}, 0, kCount};
  const auto trained = [&](UpdateStep step) {
    Optimizer<float> optimizer({.kind = OptimizerKind::kAdam}, {span}, kCount, execution);
    std::vector<float> values(kCount, 0.5F);
    const std::vector<float> gradients(kCount, 0.25F);
    step.learning_rate = 0.1;
    EXPECT_EQ(optimizer.step_numbers(step).of_rule[0], 1 - std::pow(0.9, 3));
    optimizer.update(execution, std::span(values), std::span<const float>(gradients), step);
    return values;
  };
  EXPECT_EQ(trained({.training_step = 5, .skipped_steps = 3}), trained({.training_step = 2}));
}

/// Trains on a device in f16.
struct HalfRun {
  Layers<float> make_layers = mlp<float>;
  std::shared_ptr<const Dataset> data = Data{}.training;
  LossPointer<float> loss = {};

  EpochReport operator()(Communicator& ranks, const TrainerOptions& options) const {
    Trainer<float> trainer(ranks, Model<float>(kImage, make_layers()), data, nullptr, options, loss);
    return trainer.fit();
  }
};

TrainerOptions in_f16(std::int64_t steps) {
  TrainerOptions options = one_thread(steps);
  options.device = ComputeDevice::kCuda;
  options.compute = DType::kF16;
  return options;
}

/// Adam's first update changes a parameter by the learning rate, if its gradient is much larger than epsilon.
class FirstUpdate {
 public:
  FirstUpdate(Communicator& ranks, TrainerOptions options) {
    options.on_step = [&](const StepReport&) { see(); };
    Trainer<float> trainer(ranks, Model<float>(kImage, mlp<float>()), Data{}.training, nullptr, options);
    running_ = &trainer;
    see();
    report_ = trainer.fit();
  }
  double largest() const { return largest_; }
  const EpochReport& report() const { return report_; }

 private:
  void see() {
    const std::vector<float> now = to_host<float>(running_->model().execution(), running_->model().parameters());
    for (std::size_t i = 0; i < before_.size() && !has_changed_; ++i) {
      largest_ = std::max(largest_, std::fabs(static_cast<double>(now[i]) - static_cast<double>(before_[i])));
    }
    has_changed_ = largest_ > 0;
    before_ = now;
  }

  Trainer<float>* running_ = nullptr;
  std::vector<float> before_;
  bool has_changed_ = false;
  double largest_ = 0;
  EpochReport report_;
};

/// The loss scale is so large that the first training steps overflow.
TrainerOptions with_early_overflows(std::int64_t steps) {
  TrainerOptions options = in_f16(steps);
  options.loss_scale.scale = 16777216;
  options.optimizer.kind = OptimizerKind::kAdam;
  options.learning_rate.base = 0.0078125;
  return options;
}

TEST(SkippedSteps, LeaveAdamsFirstUpdateTheFirst) {
  for_each_device_group({1, 2, 4}, [](Communicator& ranks) {
    for (const bool graph : {false, true}) {
      TrainerOptions options = with_early_overflows(20);
      options.graph = graph;
      const FirstUpdate seen(ranks, options);
      EXPECT_GT(seen.report().skipped_steps, 1);
      EXPECT_NEAR(seen.largest(), 0.0078125, 1e-5) << "by graphs: " << graph;
      ranks.barrier();
    }
  });
}

TEST(SkippedSteps, AreKeptInCheckpointsAlsoThroughATrainingOfFloats) {
  for_each_device_group({1, 2}, [](Communicator& ranks) {
    for (const bool goes_on_in_f16 : {true, false}) {
      const TemporaryDirectory directory;
      TrainerOptions options = with_early_overflows(3);
      options.checkpoints.directory = of_rank_zero(ranks, directory);
      const EpochReport before = HalfRun{}(ranks, options);
      EXPECT_EQ(before.skipped_steps, 3);
      options.max_steps = 20;
      options.checkpoints.resume = true;
      if (!goes_on_in_f16) options.compute.reset();
      EXPECT_NEAR(FirstUpdate(ranks, options).largest(), 0.0078125, 1e-5) << goes_on_in_f16;
      options.max_steps = 21;
      options.compute = DType::kF16;
      const EpochReport after = HalfRun{}(ranks, options);
      EXPECT_GE(after.skipped_steps, before.skipped_steps);
      EXPECT_LE(after.loss_scale, before.loss_scale);
      ranks.barrier();
    }
  });
}

/// The images, some of which are too large for f16.
std::shared_ptr<const Dataset> with_large_samples(const std::vector<std::uint32_t>& large) {
  const std::shared_ptr<const Dataset> images = Data{}.training;
  std::vector<std::uint32_t> all(static_cast<std::size_t>(images->size()));
  std::iota(all.begin(), all.end(), 0U);
  Batch<float> batch;
  images->gather(all, batch);
  std::vector<float> inputs(batch.inputs.host().begin(), batch.inputs.host().end());
  const std::size_t elements = inputs.size() / all.size();
  for (const std::uint32_t sample : large) {
    for (std::size_t i = 0; i < elements; ++i) inputs[sample * elements + i] = 1e6F;
  }
  return memory_dataset(
      {.shape = images->shape(), .inputs = std::move(inputs), .labels = batch.labels, .classes = images->classes()});
}

/// A layer whose outputs overflow with its inputs.
LayerList<float> linear() {
  return layers<float>({[] { return dense<float>(kClasses); }});
}

TEST(SkippedSteps, ALossThatIsNoNumberDoesNotEndTheTraining) {
  const HalfRun run{linear, with_large_samples({100})};
  for_each_device_group({1, 2}, [&](Communicator& ranks) {
    for (const bool graph : {false, true}) {
      for (const std::int64_t check_every : {1, 5}) {
        std::vector<double> losses;
        TrainerOptions options = in_f16(8);  // an epoch, so the sample comes once
        options.graph = graph;
        options.check_every = check_every;
        options.on_step = [&](const StepReport& report) { losses.push_back(report.loss); };
        const EpochReport report = run(ranks, options);
        EXPECT_EQ(report.skipped_steps, 1);
        EXPECT_EQ(report.loss_scale, 32768);
        ASSERT_EQ(losses.size(), 8);
        EXPECT_EQ(std::ranges::count_if(losses, [](double loss) { return !std::isfinite(loss); }), 1);
        EXPECT_TRUE(std::isfinite(report.loss));  // of the other samples
        const auto [least, most] = std::ranges::minmax(losses, {}, [](double loss) { return loss == loss ? loss : 1; });
        EXPECT_THAT(report.loss, testing::AllOf(testing::Gt(0.5 * least), testing::Lt(2 * most)));
      }
    }
    ranks.barrier();
  });
}

TEST(SkippedSteps, ACheckpointKnowsWhichSamplesDoNotCount) {
  const HalfRun run{linear, with_large_samples({100, 7, 30})};
  for_each_device_group({1, 2}, [&](Communicator& ranks) {
    const EpochReport whole = run(ranks, in_f16(8));
    for (const std::int64_t until : {2, 4, 6, 7}) {
      const TemporaryDirectory directory;
      TrainerOptions options = in_f16(until);
      options.checkpoints.directory = of_rank_zero(ranks, directory);
      run(ranks, options);
      options.max_steps = 8;
      options.checkpoints.resume = true;
      const EpochReport resumed = run(ranks, options);
      EXPECT_EQ(resumed.loss, whole.loss) << until;
      EXPECT_EQ(resumed.skipped_steps, whole.skipped_steps);
      EXPECT_EQ(resumed.metric("accuracy"), whole.metric("accuracy"));
      ranks.barrier();
    }
  });
}

TEST(SkippedSteps, ALossThatStaysNoNumberEndsTheTraining) {
  std::vector<std::uint32_t> all(250);
  std::iota(all.begin(), all.end(), 0U);
  const HalfRun run{linear, with_large_samples(all)};
  for_each_device_group({1, 2}, [&](Communicator& ranks) {
    using Kind = LossScaleOptions::Kind;
    for (const std::int64_t check_every : {1, 7}) {
      TrainerOptions options = in_f16(100);
      options.check_every = check_every;
      options.loss_scale = {.kind = Kind::kDynamic, .scale = 8};
      // 8, 4, 2, 1, and then once more with 1
      EXPECT_THAT(message_of<DataError>([&] { run(ranks, options); }),
                  testing::AllOf(HasSubstr("training step 4, epoch 1: the loss is not a number"),
                                 HasSubstr("the losses of the 3 training steps before it"),
                                 HasSubstr("the loss scale is 1, the smallest"), HasSubstr("--precision bf16")));
      options.loss_scale = {.kind = Kind::kFixed, .scale = 8};
      EXPECT_THAT(message_of<DataError>([&] { run(ranks, options); }),
                  testing::AllOf(HasSubstr("training step 20, epoch 3: the loss is not a number"),
                                 HasSubstr("the losses of the 19 training steps before it"),
                                 HasSubstr("the loss scale is 8,")));
    }
    ranks.barrier();
  });
}

/// Infinite, with the gradients of the cross-entropy.
class InfiniteLoss final : public Loss<float> {
 public:
  std::string name() const override { return "infinite"; }
  DeviceForm device_form() const override { return DeviceForm::kGraphs; }
  void check(const Shape& output, const Dataset& data, const std::string& what) const override {
    loss_->check(output, data, what);
  }
  void evaluate(const Execution& execution, const Tensor<float>& outputs, const BatchView<float>& batch, double scale,
                Tensor<float>* output_gradient, VectorView<double> sum) const override {
    loss_->evaluate(execution, outputs, batch, scale, output_gradient, sum);
    for (int i = 0; i < 3; ++i) kernels_of<float>(execution).add_scaled(1e200, sum.data(), sum.data());
  }

 private:
  const LossPointer<float> loss_ = cross_entropy_loss<float>();
};

TEST(SkippedSteps, ALossThatIsNoNumberWithFiniteGradientsEndsTheTraining) {
  const HalfRun run{.loss = std::make_shared<InfiniteLoss>()};
  for_each_device_group({1, 2}, [&](Communicator& ranks) {
    EXPECT_THAT(message_of<DataError>([&] { run(ranks, in_f16(10)); }),
                testing::AllOf(HasSubstr("training step 1, epoch 1: the loss is not a number (infinite)"),
                               HasSubstr("the parameters were updated with it")));
    ranks.barrier();
  });
}

}  // namespace
}  // namespace farandole::trainer::test
