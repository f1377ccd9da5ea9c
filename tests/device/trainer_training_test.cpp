// SPDX-License-Identifier: Apache-2.0
// Trainings on devices: the losses of a CPU, checkpoints that go from one to the other, and what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <string>
#include <vector>

#include "message_of.h"
#include "on_device.h"
#include "small_training.h"
#include "trainer_files.h"

namespace farandole::trainer::test {
namespace {

using farandole::test::for_each_device_group;
using farandole::test::message_of;
using farandole::test::on_each_device;
using testing::HasSubstr;

template <class Scalar>
LayerList<Scalar> small_cnn() {
  return layers<Scalar>({[] { return conv2d<Scalar>({.channels = 4, .padding = 1}); }, relu<Scalar>,
                         [] { return max_pool2d<Scalar>(2); }, [] { return conv2d<Scalar>({.channels = 3}); },
                         gelu<Scalar>, [] { return dropout<Scalar>(0.2); }, flatten<Scalar>,
                         [] { return dense<Scalar>(kClasses); }});
}

/// A small residual net with batch normalisation.
template <class Scalar>
LayerList<Scalar> small_residual_net(bool synchronized = false) {
  const auto normalization = [=] { return batch_normalization<Scalar>({.synchronized = synchronized}); };
  const auto convolution = [] { return conv2d<Scalar>({.channels = 4, .padding = 1, .bias = false}); };
  LayerList<Scalar> list = layers<Scalar>({convolution, normalization, relu<Scalar>});
  list.push_back(
      residual<Scalar>(layers<Scalar>({convolution, normalization, relu<Scalar>, convolution, normalization}), {}));
  for (auto& layer :
       layers<Scalar>({relu<Scalar>, global_average_pool<Scalar>, [] { return dense<Scalar>(kClasses); }})) {
    list.push_back(std::move(layer));
  }
  return list;
}

/// What a rank has seen of a training.
struct Seen {
  std::vector<double> losses, accuracies;
  EpochReport report;
  double test_loss = 0;
  std::vector<double> outputs;  // of the first test samples
};

template <class Scalar>
Seen train(Communicator& ranks, const Layers<Scalar>& make_layers, TrainerOptions options,
           LossPointer<Scalar> loss = {}) {
  Seen seen;
  const Data data;
  options.on_step = [&](const StepReport& report) {
    seen.losses.push_back(report.loss);
    seen.accuracies.push_back(report.metric("accuracy"));
  };
  Trainer<Scalar> trainer(ranks, Model<Scalar>(kImage, make_layers()), data.training, data.test, options,
                          std::move(loss));
  const bool on_device = options.device == ComputeDevice::kCuda;
  EXPECT_EQ(trainer.model().execution().space().is_host(), !on_device);
  seen.report = trainer.fit();
  seen.test_loss = trainer.evaluate(*data.test).loss;
  const Tensor<Scalar> outputs = trainer.predict(*data.test);
  for (const Scalar value : outputs.host().first(40)) seen.outputs.push_back(value);
  return seen;
}

void expect_near(const Seen& found, const Seen& expected, double error) {
  ASSERT_EQ(found.losses.size(), expected.losses.size());
  for (std::size_t i = 0; i < found.losses.size(); ++i) {
    ASSERT_NEAR(found.losses[i], expected.losses[i], error * std::abs(expected.losses[i])) << "training step " << i + 1;
  }
  EXPECT_NEAR(found.accuracies.back(), expected.accuracies.back(), 0.02);
  EXPECT_NEAR(found.test_loss, expected.test_loss, 10 * error * expected.test_loss);
  for (std::size_t i = 0; i < found.outputs.size(); ++i) {
    EXPECT_NEAR(found.outputs[i], expected.outputs[i], 100 * error * std::max(1.0, std::abs(expected.outputs[i])));
  }
}

/// Trains on the CPU and on devices with the same options.
template <class Scalar>
void expect_same_training(const Layers<Scalar>& make_layers, TrainerOptions options, double error) {
  for_each_device_group({1, 2}, [&](Communicator& ranks) {
    TrainerOptions mine = options;
    const Seen on_cpu = train<Scalar>(ranks, make_layers, mine);
    mine.device = ComputeDevice::kCuda;
    expect_near(train<Scalar>(ranks, make_layers, mine), on_cpu, error);
  });
}

TEST(DeviceTraining, OfFloatsHasTheLossesOfACpu) {
  expect_same_training<float>(mlp<float>, options_for(10), 1e-4);
  expect_same_training<float>(small_cnn<float>, options_for(10), 1e-4);
}

TEST(DeviceTraining, OfDoublesHasTheLossesOfACpu) {
  expect_same_training<double>(mlp<double>, options_for(100), 1e-9);
}

TEST(DeviceTraining, OfAResidualNetHasTheLossesOfACpu) {
  expect_same_training<double>([] { return small_residual_net<double>(); }, options_for(10), 1e-9);
  TrainerOptions options = options_for(10);
  options.synchronized_layers = true;
  options.data.drop_last = true;
  expect_same_training<double>([] { return small_residual_net<double>(true); }, options, 1e-9);
}

TEST(DeviceTraining, InDeterministicModeHasTheSameBitsOnAnyNumberOfReplicas) {
  TrainerOptions options = options_for(12);
  options.device = ComputeDevice::kCuda;
  options.deterministic = true;
  options.micro_batches = 4;
  options.optimizer.kind = OptimizerKind::kAdam;
  options.clip_norm = 1;
  static Seen of_one;  // of the group of one rank
  static std::atomic<bool> is_there{false};
  for_each_device_group({1, 2, 4}, [&](Communicator& ranks) {
    const Seen seen = train<float>(
        ranks, [] { return small_residual_net<float>(); }, options);
    if (ranks.size() == 1) {
      of_one = seen;
      is_there = true;
      TrainerOptions on_cpu = options;
      on_cpu.device = ComputeDevice::kCpu;
      expect_near(seen,
                  train<float>(
                      ranks, [] { return small_residual_net<float>(); }, on_cpu),
                  1e-4);
    }
    if (!is_there) return;  // a job of processes has one number of ranks
    EXPECT_EQ(seen.losses, of_one.losses) << ranks.size();
    EXPECT_EQ(seen.accuracies, of_one.accuracies);
    EXPECT_EQ(seen.report.parameters_checksum, of_one.report.parameters_checksum);
    EXPECT_EQ(seen.test_loss, of_one.test_loss);
  });
}

TEST(DeviceTraining, HasTheOptionsOfACpu) {
  TrainerOptions options = options_for(20);
  options.optimizer.kind = OptimizerKind::kAdamW;
  options.optimizer.weight_decay = 0.01;
  options.optimizer.ema_decay = 0.9;
  options.optimizer.groups = {{.pattern = "0.*", .rate_factor = 0.5}, {.pattern = "2.dense.bias", .trainable = false}};
  options.evaluate_with_ema = true;
  options.learning_rate.base = 0.005;
  options.clip_norm = 0.5;
  options.accumulate = 3;
  options.check_every = 7;
  options.evaluate_every = 1;
  options.data.threads = 1;
  expect_same_training<double>(mlp<double>, options, 1e-9);
}

TEST(DeviceTraining, HasWeightsAndSmoothing) {
  TrainerOptions options = options_for(10);
  options.optimizer.nesterov = true;
  for_each_device_group({1}, [&](Communicator& ranks) {
    const auto loss = cross_entropy_loss<double>({.label_smoothing = 0.1});
    TrainerOptions mine = options;
    const Seen on_cpu = train<double>(ranks, mlp<double>, mine, loss);
    mine.device = ComputeDevice::kCuda;
    expect_near(train<double>(ranks, mlp<double>, mine, loss), on_cpu, 1e-9);
  });
}

TEST(DeviceTraining, GoesOnFromACheckpointOfACpuAndBack) {
  for_each_device_group({1, 2}, [](Communicator& ranks) {
    const TemporaryDirectory directory;
    std::string path = directory.path().string();
    path.resize(1000);  // rank 0's, for all
    ranks.broadcast(BufferView(path.data(), path.size(), DType::kU8), 0);
    path.resize(std::char_traits<char>::length(path.c_str()));
    TrainerOptions options = options_for(15);
    const Seen whole = train<double>(ranks, mlp<double>, options);
    options.checkpoints.directory = path;
    std::vector<double> losses;
    for (const std::int64_t last : {5, 10, 15}) {
      options.max_steps = last;
      options.device = last == 10 ? ComputeDevice::kCuda : ComputeDevice::kCpu;
      const Seen part = train<double>(ranks, mlp<double>, options);
      losses.insert(losses.end(), part.losses.begin(), part.losses.end());
      options.checkpoints.resume = true;
    }
    ASSERT_EQ(losses.size(), whole.losses.size());
    for (std::size_t i = 0; i < losses.size(); ++i) EXPECT_NEAR(losses[i], whole.losses[i], 1e-9) << i;
    ranks.barrier();
  });
}

TEST(DeviceTraining, ChoosesADeviceWhereThereIsOne) {
  for_each_device_group({1, 2}, [](Communicator& ranks) {
    TrainerOptions options = options_for(2);
    options.device = ComputeDevice::kAuto;
    const Data data;
    Trainer<float> on_device(ranks, Model<float>(kImage, mlp<float>()), data.training, nullptr, options);
    EXPECT_EQ(on_device.model().execution().space(), ranks.device());
    on_device.fit();
    // A layer without a form for devices.
    LayerList<float> list = mlp<float>();
    list.insert(list.begin() + 1, layer_normalization<float>());
    Trainer<float> on_cpu(ranks, Model<float>(kImage, std::move(list)), data.training, nullptr, options);
    EXPECT_TRUE(on_cpu.model().execution().space().is_host());
    on_cpu.fit();
  });
}

TEST(DeviceTraining, RefusesWhatHasNoFormForDevices) {
  for_each_device_group({1}, [](Communicator& ranks) {
    const Data data;
    TrainerOptions options = options_for(2);
    options.device = ComputeDevice::kCuda;
    const auto message = [&](LayerList<float> list, const TrainerOptions& wanted, LossPointer<float> loss = {},
                             std::vector<MetricPointer<float>> metrics = {}) {
      return message_of<Unsupported>([&] {
        Trainer<float>(ranks, Model<float>(kImage, std::move(list)), data.training, nullptr, wanted, std::move(loss),
                       std::move(metrics));
      });
    };
    LayerList<float> list = mlp<float>();
    list.push_back(layer_normalization<float>());
    EXPECT_THAT(message(std::move(list), options), HasSubstr("layer 3 (layer_normalization"));
    EXPECT_THAT(message(mlp<float>(), options, cross_entropy_loss<float>({.class_weights = {1, 2, 3, 4}})),
                HasSubstr("the loss 'cross_entropy, class weights 1 2 3 4' computes in host memory only"));
    EXPECT_THAT(message(mlp<float>(), options, {}, {confusion_matrix<float>()}),
                HasSubstr("the metric 'confusion_matrix' computes in host memory only"));
    TrainerOptions with_masters = options;
    with_masters.optimizer.master = DType::kF64;
    EXPECT_THAT(message(mlp<float>(), with_masters), HasSubstr("master values of f64 for a model of f32"));
  });
}

TEST(DeviceTraining, RefusesRanksThatComputeElsewhere) {
  for_each_device_group({2}, [](Communicator& ranks) {
    const Data data;
    TrainerOptions options = options_for(2);
    options.device = ranks.rank() == 0 ? ComputeDevice::kCuda : ComputeDevice::kCpu;
    EXPECT_THAT(message_of<Mismatch>([&] {
                  Trainer<float>(ranks, Model<float>(kImage, mlp<float>()), data.training, nullptr, options);
                }),
                testing::AllOf(HasSubstr("TrainerOptions::device"), HasSubstr("cuda"), HasSubstr("cpu")));
  });
}

TEST(DeviceTraining, FindsALossThatIsNoNumber) {
  for_each_device_group({1, 2}, [](Communicator& ranks) {
    TrainerOptions options = options_for(20);
    options.device = ComputeDevice::kCuda;
    options.learning_rate.base = 1e30;
    EXPECT_THAT(message_of<DataError>([&] { train<float>(ranks, mlp<float>, options); }),
                HasSubstr("the loss is not a number"));
  });
}

}  // namespace
}  // namespace farandole::trainer::test
