// SPDX-License-Identifier: Apache-2.0
// Profiles of trainings: the sum of the times, the same bits as without, and what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "farandole/trainer/models.h"
#include "followed_training.h"

namespace farandole::trainer {
namespace {

using test::contains;
using test::errors_of;
using test::follow;
using test::options_for;

struct Measured {
  EpochReport report;
  std::vector<double> losses, seconds;  ///< of each training step
};

/// Trains a model of layers_of on 2 replicas. Returns what each has seen.
std::vector<Measured> train(const std::string& model, const Shape& image, TrainerOptions options) {
  constexpr int kReplicas = 2;
  options.kernel_threads = 1;
  options.data.drop_last = true;
  std::vector<Measured> all(kReplicas);
  run_replicas(kReplicas, [&](Communicator& replica) {
    Measured& mine = all[static_cast<std::size_t>(replica.rank())];
    const auto data = synthetic_dataset(8 * options.global_batch, image, 10, test::kSeed);
    TrainerOptions own = options;
    own.on_step = [&](const StepReport& report) {
      mine.losses.push_back(report.loss);
      mine.seconds.push_back(report.seconds);
    };
    const ModelOptions sizes{.input = image};
    Trainer<float> trainer(replica, Model<float>(image, layers_of<float>(model, sizes)), data, nullptr, own);
    mine.report = trainer.fit();
  });
  return all;
}

TrainerOptions profiled(std::int64_t steps, std::int64_t batch) {
  TrainerOptions options = options_for(steps);
  options.global_batch = batch;
  options.profile = true;
  return options;
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values.at(values.size() / 2);
}

/// How often another thread has taken a core from this process.
std::int64_t preemptions() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_nivcsw;
}

/// Trains, and compares the profile with the times of the reports. The sum of the medians must be the median time
/// within 10 % in one of several trainings, unless the machine is busy: then each training step is interrupted at other
/// layers.
Measured train_and_compare_sums(const std::string& model, const Shape& image, const TrainerOptions& options) {
  constexpr int kAttempts = 8;
  Measured measured;
  double sum_share = 0;
  const std::int64_t before = preemptions();
  for (int attempt = 0; attempt < kAttempts && std::abs(sum_share - 1) > 0.1; ++attempt) {
    measured = train(model, image, options)[0];
    EXPECT_TRUE(measured.report.profile);
    if (!measured.report.profile) return measured;
    const TrainingProfile& profile = *measured.report.profile;
    const double reported = median({measured.seconds.begin() + 3, measured.seconds.end()});
    EXPECT_NEAR(profile.step, reported, 0.1 * reported);
    EXPECT_LT(profile.parts.rest, 0.1 * profile.step);
    sum_share = profile.seconds() / reported;
  }
  const bool is_busy = preemptions() - before > kAttempts * options.max_steps;
  if (!is_busy) {
    EXPECT_NEAR(sum_share, 1, 0.1) << describe(*measured.report.profile);
  }
  return measured;
}

TEST(Profiles, TimesOfASmallNetAddUpToTheTrainingStep) {
  const Measured measured = train_and_compare_sums("cnn", {28, 28, 1}, profiled(12, 32));
  ASSERT_TRUE(measured.report.profile);
  const TrainingProfile& profile = *measured.report.profile;
  EXPECT_EQ(profile.steps, 9);  // without the first three
  EXPECT_EQ(profile.samples, 16);
  EXPECT_EQ(profile.local_replicas, 2);
  EXPECT_EQ(profile.kernel_threads, 1);
  EXPECT_GT(profile.peak, 1e8);
  EXPECT_GT(profile.parts.loss, 0);
  EXPECT_GT(profile.parts.averaging, 0);
  EXPECT_GT(profile.parts.update, 0);
  EXPECT_GT(profile.parts.input, 0);
  ASSERT_EQ(profile.layers.size(), 8U);
  const LayerProfile &conv = profile.layers[2], &dense = profile.layers[7];
  EXPECT_EQ(conv.layer.name, "2.conv2d");
  EXPECT_DOUBLE_EQ(profile.flops(conv).value_or(0), 16 * 3 * 2.0 * 24 * 24 * 9 * 32 * 64);
  EXPECT_EQ(dense.layer.name, "7.dense");
  EXPECT_DOUBLE_EQ(profile.flops(dense).value_or(0), 16 * 3 * 2.0 * 128 * 10);
  // The first layer computes no gradient of its input.
  EXPECT_DOUBLE_EQ(profile.flops(profile.layers[0]).value_or(0), 16 * 2 * 2.0 * 26 * 26 * 9 * 32);
  for (const LayerProfile& layer : profile.layers) {
    if (layer.layer.kind == "relu") continue;  // the layer before may compute it
    EXPECT_GT(layer.forward, 0) << layer.layer.name;
    EXPECT_GT(layer.backward, 0) << layer.layer.name;
  }
}

TEST(Profiles, TimesOfAResidualNetAddUpToTheTrainingStep) {
  const Measured measured = train_and_compare_sums("resnet18", {16, 16, 3}, profiled(7, 4));
  ASSERT_TRUE(measured.report.profile);
  const TrainingProfile& profile = *measured.report.profile;
  const auto find = [&](const std::string& name) {
    return std::ranges::find_if(profile.layers, [&](const LayerProfile& layer) { return layer.layer.name == name; });
  };
  const auto strided = find("7.residual.shortcut.0.conv2d");
  ASSERT_NE(strided, profile.layers.end()) << describe(profile);
  EXPECT_DOUBLE_EQ(profile.flops(*strided).value_or(0), 2 * 3 * 2.0 * 8 * 8 * 64 * 128);  // 1x1 with stride 2
  EXPECT_NE(find("7.residual.sum"), profile.layers.end());
}

void sleep_ms(int ms) {
  std::this_thread::sleep_for(std::chrono::milliseconds(ms));
}

// Code of the program that takes at least so many ms per training step, a different number each.
constexpr int kInputMs = 2, kForwardMs = 4, kLossMs = 6, kMetricMs = 8, kBackwardMs = 11, kUpdateMs = 14,
              kLateMs = 30;  // of the last replica's backward pass, for which the others wait

class SlowData final : public Dataset {
 public:
  std::int64_t size() const override { return data_->size(); }
  const Shape& shape() const override { return data_->shape(); }
  std::int32_t classes() const override { return data_->classes(); }
  void gather(std::span<const std::uint32_t> samples, Batch<float>& batch) const override {
    sleep_ms(kInputMs);
    data_->gather(samples, batch);
  }

 private:
  const std::shared_ptr<const Dataset> data_ = test::Data().training;
};

class SlowLayer final : public Layer<double> {
 public:
  explicit SlowLayer(int late_ms) : late_ms_(late_ms) {}
  std::string name() const override { return "slow"; }
  Shape prepare(const Shape& input) override { return input; }
  void forward(const Pass&, const Tensor<double>& input, Tensor<double>& output) override {
    sleep_ms(kForwardMs);
    std::ranges::copy(input.host(), output.host().begin());
  }
  void backward(const Pass&, const Tensor<double>&, const Tensor<double>&, const Tensor<double>& output_gradient,
                Tensor<double>* input_gradient) override {
    sleep_ms(kBackwardMs + late_ms_);
    if (input_gradient != nullptr) std::ranges::copy(output_gradient.host(), input_gradient->host().begin());
  }

 private:
  const int late_ms_;
};

class SlowLoss final : public Loss<double> {
 public:
  std::string name() const override { return "slow loss"; }
  void evaluate(const Execution& execution, const Tensor<double>& outputs, const BatchView<double>& batch, double scale,
                Tensor<double>* gradient, VectorView<double> sum) const override {
    sleep_ms(kLossMs);
    loss_->evaluate(execution, outputs, batch, scale, gradient, sum);
  }

 private:
  const LossPointer<double> loss_ = cross_entropy_loss<double>();
};

class SlowMetric final : public Metric<double> {
 public:
  std::string name() const override { return "slow metric"; }
  std::size_t sums(const Shape&) const override { return 1; }
  void add(const Execution&, const Tensor<double>&, const BatchView<double>&, VectorView<double> sums) const override {
    sleep_ms(kMetricMs);
    sums.host()[0] += 1;
  }
  double value(std::span<const double> sums) const override { return sums[0]; }
};

/// Sleeps at the weights of the only dense layer, not at its bias.
class SlowRule final : public UpdateRule<double> {
 public:
  std::string name() const override { return "slow rule"; }
  std::vector<std::string> states() const override { return {}; }
  void update(VectorView<double>, VectorView<const double>, std::span<const VectorView<double>>,
              const UpdateFacts& facts) override {
    if (facts.parameter.decays) sleep_ms(kUpdateMs);
  }
};

/// Trains on 2 replicas whose code sleeps, the second one's for longer. Returns the profile of the first.
TrainingProfile profile_of_slow_code(TrainerOptions options) {
  options.profile = true;
  options.kernel_threads = 1;
  options.optimizer.kind = OptimizerKind::kOwn;
  options.optimizer.own.f64 = [] { return std::make_unique<SlowRule>(); };
  std::vector<TrainingProfile> profiles(2);
  run_replicas(2, [&](Communicator& replica) {
    LayerList<double> list;
    list.push_back(std::make_unique<SlowLayer>(replica.rank() == 1 ? kLateMs : 0));
    list.push_back(dense<double>(test::kClasses));
    Trainer<double> trainer(replica, Model<double>(test::kImage, std::move(list)), std::make_shared<SlowData>(),
                            nullptr, options, std::make_shared<SlowLoss>(), {std::make_shared<SlowMetric>()});
    profiles[static_cast<std::size_t>(replica.rank())] = trainer.fit().profile.value();
  });
  return profiles[0];
}

// A sleep is at least as long as asked, so each bound fails if its time counts elsewhere.
TEST(Profiles, TimesOfTheProgramsCodeCountWhereItRuns) {
  for (const bool deterministic : {false, true}) {
    TrainerOptions options = options_for(6);
    options.deterministic = deterministic;
    options.micro_batches = 2;
    const TrainingProfile profile = profile_of_slow_code(options);
    SCOPED_TRACE(describe(profile));
    constexpr double kMs = 1e-3, kWait = 0.5 * kLateMs * kMs;  // both do not begin at the same moment
    EXPECT_GE(profile.parts.input, kInputMs * kMs);
    EXPECT_GE(profile.layers.at(0).forward, kForwardMs * kMs);
    EXPECT_GE(profile.layers.at(0).backward, kBackwardMs * kMs);
    EXPECT_GE(profile.parts.loss, (kLossMs + kMetricMs) * kMs);
    EXPECT_GE(profile.parts.update, kUpdateMs * kMs);
    EXPECT_GE(profile.parts.averaging, kWait);
    EXPECT_LE(profile.busy_seconds + kWait, profile.step);
    EXPECT_EQ(profile.slowest_replica, 1);
    EXPECT_GE(profile.slowest_seconds, profile.busy_seconds + kWait);
  }
}

// oneDNN computes several times as many products in f32 as Eigen in f64.
TEST(Profiles, PeakIsThatOfTheModelsType) {
  TrainerOptions options = options_for(6);
  options.profile = true;
  const TrainingProfile wide = follow(1, options)[0].report.profile.value();
  const TrainingProfile narrow = train("mlp", {8, 8, 1}, profiled(6, 32))[0].report.profile.value();
  EXPECT_EQ(wide.type, DType::kF64);
  EXPECT_EQ(narrow.type, DType::kF32);
  EXPECT_GT(narrow.peak, 1.5 * wide.peak);
}

TEST(Profiles, ChangeNoBitOfTheTraining) {
  TrainerOptions options = profiled(6, 32);
  options.accumulate = 2;
  for (const bool deterministic : {false, true}) {
    options.deterministic = deterministic;
    if (deterministic) options.accumulate = 1;
    options.profile = true;
    const std::vector<Measured> with = train("cnn_bn", {8, 8, 1}, options);
    options.profile = false;
    const std::vector<Measured> without = train("cnn_bn", {8, 8, 1}, options);
    EXPECT_EQ(with[0].losses, without[0].losses);
    EXPECT_EQ(with[0].report.parameters_checksum, without[0].report.parameters_checksum);
    EXPECT_TRUE(with[0].report.profile);
    EXPECT_FALSE(without[0].report.profile);
  }
}

TEST(Profiles, EachReplicaReportsItsOwnTimesAndTheSlowestReplica) {
  const std::vector<Measured> all = train("mlp", {8, 8, 1}, profiled(6, 32));
  ASSERT_TRUE(all[0].report.profile && all[1].report.profile);
  const TrainingProfile &first = *all[0].report.profile, &second = *all[1].report.profile;
  EXPECT_EQ(first.replica, 0);
  EXPECT_EQ(second.replica, 1);
  EXPECT_EQ(first.slowest_seconds, std::max(first.busy_seconds, second.busy_seconds));
  EXPECT_EQ(first.slowest_seconds, second.slowest_seconds);
  EXPECT_EQ(first.slowest_replica, first.busy_seconds >= second.busy_seconds ? 0 : 1);
}

TEST(Profiles, LeaveOutWarmUpAndIncompleteBatches) {
  TrainerOptions options = options_for(3);
  options.profile = true;
  EXPECT_FALSE(follow(1, options)[0].report.profile);
  options.max_steps = 16;  // the eighth and the last batch of 8 have 26 samples instead of 32
  const EpochReport report = follow(1, options)[0].report;
  ASSERT_TRUE(report.profile);
  EXPECT_EQ(report.profile->steps, 16 - 3 - 2);
  EXPECT_EQ(report.profile->samples, 32);
  EXPECT_EQ(report.profile->type, DType::kF64);
}

TEST(Profiles, AreRefusedOnDevicesAndWithGraphs) {
  TrainerOptions options = options_for(4);
  options.profile = true;
  options.device = ComputeDevice::kCuda;
  for (const std::string& message : errors_of<Unsupported>(2, options)) {
    EXPECT_TRUE(contains(message, "layers are timed on the CPU only; train on it (--device cpu")) << message;
  }
  options.graph = true;
  for (const std::string& message : errors_of<InvalidArgument>(2, options)) {
    EXPECT_TRUE(contains(message, "so its layers have no times; train without TrainerOptions::profile")) << message;
  }
}

TEST(Profiles, AreAskedForByAllReplicasOrNone) {
  const auto messages =
      errors_of<Mismatch>(2, options_for(4), [](TrainerOptions& options, int rank) { options.profile = rank == 1; });
  for (const std::string& message : messages) EXPECT_TRUE(contains(message, "TrainerOptions::profile")) << message;
}

}  // namespace
}  // namespace farandole::trainer
