// SPDX-License-Identifier: Apache-2.0
// Trainings on devices: the losses of a CPU, checkpoints that go from one to the other, and what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "broken_device.h"
#include "double_calls.h"
#include "farandole/trainer/augmentation.h"
#include "farandole/trainer/graph.h"
#include "farandole/trainer/outputs.h"
#include "farandole/trainer/parameters.h"
#include "forwarding_layer.h"
#include "groups.h"
#include "message_of.h"
#include "on_device.h"
#include "small_nets.h"
#include "trainer_files.h"

namespace farandole::trainer::test {
namespace {

using farandole::test::calls_of;
using farandole::test::for_each_device_group;
using farandole::test::message_of;
using farandole::test::on_each_device;
using testing::HasSubstr;

/// A loss and a metric of such a program.
class HostLoss final : public Loss<float> {
 public:
  std::string name() const override { return "of the host"; }
  void evaluate(const Execution&, const Tensor<float>&, const BatchView<float>&, double, Tensor<float>*,
                VectorView<double>) const override {}
};
class HostMetric final : public Metric<float> {
 public:
  std::string name() const override { return "of the host"; }
  std::size_t sums(const Shape&) const override { return 1; }
  bool counts() const override { return true; }
  void add(const Execution&, const Tensor<float>&, const BatchView<float>&, VectorView<double>) const override {}
  double value(std::span<const double>) const override { return 0; }
};

/// A training, except its options.
template <class Scalar>
struct Task {
  std::function<Model<Scalar>()> make_model;
  LossPointer<Scalar> loss = {};
  std::vector<MetricPointer<Scalar>> metrics = {};
  Data data = {};
};

/// What a rank has seen of a training.
struct Seen {
  std::vector<double> losses;
  std::vector<std::vector<MetricResult>> metrics;
  EpochReport report;
  Evaluation test;
  std::vector<double> outputs;  // of the first test samples
};

template <class Scalar>
Seen train(Communicator& ranks, const Task<Scalar>& task, TrainerOptions options) {
  Seen seen;
  options.on_step = [&](const StepReport& report) {
    seen.losses.push_back(report.loss);
    seen.metrics.push_back(report.metrics);
  };
  Trainer<Scalar> trainer(ranks, task.make_model(), task.data.training, task.data.test, options, task.loss,
                          task.metrics);
  const bool on_device = options.device == ComputeDevice::kCuda;
  EXPECT_EQ(trainer.model().execution().space().is_host(), !on_device);
  seen.report = trainer.fit();
  seen.test = trainer.evaluate(*task.data.test);
  const Tensor<Scalar> outputs = trainer.predict(*task.data.test);
  for (const Scalar value : outputs.host().first(40)) seen.outputs.push_back(value);
  return seen;
}

template <class Scalar>
Seen train(Communicator& ranks, const Layers<Scalar>& make_layers, const TrainerOptions& options,
           LossPointer<Scalar> loss = {}) {
  return train<Scalar>(ranks, {[&] { return Model<Scalar>(kImage, make_layers()); }, std::move(loss)}, options);
}

/// Expects the same metrics: counts may differ by 2 % of all samples, other sums by rounding.
void expect_near(const std::vector<MetricResult>& found, const std::vector<MetricResult>& expected, double error) {
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t k = 0; k < found.size(); ++k) {
    EXPECT_EQ(found[k].name, expected[k].name);
    EXPECT_NEAR(found[k].value, expected[k].value, std::max(0.02, 10 * error * std::abs(expected[k].value)));
    ASSERT_EQ(found[k].sums.size(), expected[k].sums.size());
    for (std::size_t i = 0; i < found[k].sums.size(); ++i) {
      EXPECT_NEAR(found[k].sums[i], expected[k].sums[i], std::max(5.0, 0.02 * expected[k].sums[i]))
          << found[k].name << ", sum " << i;
    }
  }
}

void expect_near(const Seen& found, const Seen& expected, double error) {
  ASSERT_EQ(found.losses.size(), expected.losses.size());
  for (std::size_t i = 0; i < found.losses.size(); ++i) {
    ASSERT_NEAR(found.losses[i], expected.losses[i], error * std::abs(expected.losses[i])) << "training step " << i + 1;
  }
  expect_near(found.metrics.back(), expected.metrics.back(), error);
  expect_near(found.test.metrics, expected.test.metrics, error);
  EXPECT_NEAR(found.test.loss, expected.test.loss, 10 * error * expected.test.loss);
  for (std::size_t i = 0; i < found.outputs.size(); ++i) {
    EXPECT_NEAR(found.outputs[i], expected.outputs[i], 100 * error * std::max(1.0, std::abs(expected.outputs[i])));
  }
}

/// Trains on the CPU and on devices with the same options.
template <class Scalar>
void expect_same_training(const Task<Scalar>& task, const TrainerOptions& options, double error) {
  for_each_device_group({1, 2}, [&](Communicator& ranks) {
    TrainerOptions mine = options;
    const Seen on_cpu = train<Scalar>(ranks, task, mine);
    mine.device = ComputeDevice::kCuda;
    expect_near(train<Scalar>(ranks, task, mine), on_cpu, error);
  });
}
template <class Scalar>
void expect_same_training(const Layers<Scalar>& make_layers, const TrainerOptions& options, double error) {
  expect_same_training<Scalar>({[&] { return Model<Scalar>(kImage, make_layers()); }}, options, error);
}

/// Images with `numbers` numbers to predict, between 0 and 1, and weights. The labels stay if `labelled`.
std::shared_ptr<const Dataset> with_targets(const Dataset& images, std::int64_t numbers, bool labelled) {
  std::vector<std::uint32_t> all(static_cast<std::size_t>(images.size()));
  std::iota(all.begin(), all.end(), 0U);
  Batch<float> batch;
  images.gather(all, batch);
  Samples samples{.shape = images.shape(),
                  .inputs = std::vector<float>(batch.inputs.host().begin(), batch.inputs.host().end())};
  if (labelled) {
    samples.labels = batch.labels;
    samples.classes = images.classes();
  }
  samples.target_shape = {numbers};
  for (std::size_t i = 0; i < all.size(); ++i) {
    samples.weights.push_back(0.5F + static_cast<float>(i % 3));
    for (std::int64_t k = 0; k < numbers; ++k) {
      const std::int64_t place = (batch.labels[i] + k) % numbers;
      samples.targets.push_back(static_cast<float>(place) / static_cast<float>(numbers - 1));
    }
  }
  return memory_dataset(std::move(samples));
}

TEST(DeviceTraining, OfFloatsHasTheLossesOfACpu) {
  expect_same_training<float>(mlp<float>, one_thread(10), 1e-4);
  expect_same_training<float>(small_cnn<float>, one_thread(10), 1e-4);
  expect_same_training<float>([] { return small_residual_net<float>(); }, one_thread(10), 1e-3);
}

TEST(DeviceTraining, OfDoublesHasTheLossesOfACpu) {
  expect_same_training<double>(mlp<double>, one_thread(100), 1e-9);
}

TEST(DeviceTraining, OfAResidualNetHasTheLossesOfACpu) {
  expect_same_training<double>([] { return small_residual_net<double>(); }, one_thread(10), 1e-9);
  TrainerOptions options = one_thread(10);
  options.synchronized_layers = true;
  options.data.drop_last = true;
  expect_same_training<double>([] { return small_residual_net<double>(true); }, options, 1e-9);
}

TEST(DeviceTraining, OfATransformerHasTheLossesOfACpu) {
  expect_same_training<double>(small_transformer<double>, one_thread(10), 1e-9);
}

TEST(DeviceTraining, OfANetForImagesHasTheLossesOfACpu) {
  expect_same_training<double>(small_image_net<double>, one_thread(10), 1e-9);
  expect_same_training<float>(small_image_net<float>, one_thread(10), 1e-4);
}

template <class Scalar>
void compare_losses_of_targets(double error) {
  Data data;
  data.training = with_targets(*data.training, kClasses, false);
  data.test = with_targets(*data.test, kClasses, false);
  for (const LossPointer<Scalar>& loss : {mean_squared_error<Scalar>(), mean_absolute_error<Scalar>(),
                                          huber_loss<Scalar>(0.3), binary_cross_entropy_loss<Scalar>()}) {
    SCOPED_TRACE(loss->name());
    const Task<Scalar> task{
        [] { return Model<Scalar>(kImage, mlp<Scalar>()); },
        loss,
        {mean_squared_error_metric<Scalar>(), mean_absolute_error_metric<Scalar>(), binary_accuracy<Scalar>(0.5)},
        data};
    expect_same_training<Scalar>(task, one_thread(10), error);
  }
}

TEST(DeviceTraining, ToTargetsHasTheLossesOfACpu) {
  compare_losses_of_targets<double>(1e-9);
  compare_losses_of_targets<float>(1e-4);
}

TEST(DeviceTraining, WithMixupHasTheLossesOfACpu) {
  Data data;
  data.training = augmented(data.training, {.mixup = 0.2});
  for (const std::vector<double>& weights : {std::vector<double>{}, {1, 2, 0.5, 3}}) {
    const auto make = [] { return Model<double>(kImage, small_cnn<double>()); };
    expect_same_training<double>(
        {make, cross_entropy_loss<double>({.label_smoothing = 0.1, .class_weights = weights}), {}, data},
        one_thread(10), 1e-9);
  }
  const auto make = [] { return Model<float>(kImage, small_cnn<float>()); };
  expect_same_training<float>({make, {}, {}, data}, one_thread(10), 1e-4);
}

template <class Scalar>
void compare_class_weights(double error) {
  const Task<Scalar> task{[] { return Model<Scalar>(kImage, mlp<Scalar>()); },
                          cross_entropy_loss<Scalar>({.class_weights = {1, 2, 0.5, 3}}),
                          {confusion_matrix<Scalar>(), top_k_accuracy<Scalar>(2)}};
  expect_same_training<Scalar>(task, one_thread(10), error);
}

TEST(DeviceTraining, WithClassWeightsAndConfusionsHasTheLossesOfACpu) {
  compare_class_weights<double>(1e-9);
  compare_class_weights<float>(1e-4);
}

/// A model with an output of classes and an output of numbers.
template <class Scalar>
Model<Scalar> model_with_two_outputs() {
  GraphBuilder<Scalar> graph;
  const Node image = graph.input("image", kImage);
  const Node seen = graph.add(layers<Scalar>({flatten<Scalar>, [] { return dense<Scalar>(16); }, relu<Scalar>}), image);
  graph.output("class", graph.add(dense<Scalar>(kClasses), seen));
  graph.output("numbers", graph.add(dense<Scalar>(3), seen));
  return Model<Scalar>(std::move(graph));
}

template <class Scalar>
void compare_two_outputs(double error) {
  Data data;
  data.training = with_targets(*data.training, 3, true);
  data.test = with_targets(*data.test, 3, true);
  const OutputParts parts{model_with_two_outputs<Scalar>().outputs(), {"class"}};
  const Task<Scalar> task{
      model_with_two_outputs<Scalar>,
      combined_loss<Scalar>(parts, {{"class", cross_entropy_loss<Scalar>()}, {"numbers", huber_loss<Scalar>(), 0.3}}),
      {metric_of_output<Scalar>(parts, "class", accuracy<Scalar>()),
       metric_of_output<Scalar>(parts, "numbers", mean_absolute_error_metric<Scalar>())},
      data};
  expect_same_training<Scalar>(task, one_thread(10), error);
}

TEST(DeviceTraining, OfTwoOutputsHasTheLossesOfACpu) {
  compare_two_outputs<double>(1e-9);
  compare_two_outputs<float>(1e-4);
}

TEST(DeviceTraining, InDeterministicModeHasTheSameBitsOnAnyNumberOfReplicas) {
  TrainerOptions options = one_thread(12);
  options.device = ComputeDevice::kCuda;
  options.deterministic = true;
  options.micro_batches = 4;
  options.optimizer.kind = OptimizerKind::kAdam;
  options.clip_norm = 1;
  for_each_device_group({1, 2, 4}, [&](Communicator& ranks) {
    const auto make_layers = [] { return small_residual_net<float>(); };
    Communicator alone = ranks.split(ranks.rank());
    const Seen of_one = train<float>(alone, make_layers, options);
    const Seen of_all = train<float>(ranks, make_layers, options);
    EXPECT_EQ(of_all.losses, of_one.losses);
    EXPECT_EQ(of_all.report.metric("accuracy"), of_one.report.metric("accuracy"));
    EXPECT_EQ(of_all.report.parameters_checksum, of_one.report.parameters_checksum);
    EXPECT_EQ(of_all.test.loss, of_one.test.loss);
    TrainerOptions on_cpu = options;
    on_cpu.device = ComputeDevice::kCpu;
    expect_near(of_one, train<float>(alone, make_layers, on_cpu), 1e-4);
  });
}

TEST(DeviceTraining, HasTheOptionsOfACpu) {
  TrainerOptions options = one_thread(20);
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

/// Trains with and without graphs on `sizes` replicas, and expects the same bits, and that graphs were launched.
template <class Scalar>
void expect_same_bits_with_graphs(const std::vector<int>& sizes, const Task<Scalar>& task,
                                  const TrainerOptions& wanted) {
  for_each_device_group(sizes, [&](Communicator& ranks) {
    if (wanted.synchronized_layers && ranks.placement().host_count > 1) return;  // refused: see below
    TrainerOptions options = wanted;
    options.device = ComputeDevice::kCuda;
    const Seen without = train<Scalar>(ranks, task, options);
    ranks.barrier();
    const unsigned long before = calls_of("cuGraphLaunch");
    options.graph = true;
    const Seen with = train<Scalar>(ranks, task, options);
    EXPECT_EQ(with.losses, without.losses);
    ASSERT_EQ(with.metrics.size(), without.metrics.size());
    for (std::size_t i = 0; i < with.metrics.size(); ++i) {
      EXPECT_EQ(with.metrics[i].front().value, without.metrics[i].front().value);
    }
    EXPECT_EQ(with.report.parameters_checksum, without.report.parameters_checksum);
    EXPECT_EQ(with.test.loss, without.test.loss);
    EXPECT_EQ(with.outputs, without.outputs);
    if (calls_of("cuInit") > 0) {  // the double counts
      EXPECT_GE(calls_of("cuGraphLaunch") - before, with.losses.size());
    }
    ranks.barrier();
  });
}

template <class Scalar>
void expect_same_bits_with_graphs(const std::vector<int>& sizes, const Layers<Scalar>& make_layers,
                                  const TrainerOptions& options) {
  expect_same_bits_with_graphs<Scalar>(sizes, {[&] { return Model<Scalar>(kImage, make_layers()); }}, options);
}

// In f64, because outside deterministic mode cuDNN's algorithms may differ from run to run.
TEST(DeviceTraining, ByGraphsHasTheSameBits) {
  TrainerOptions options = one_thread(20);
  options.learning_rate.warmup_steps = 6;
  options.evaluate_every = 1;
  options.evaluation_batch = 130;  // more than a training step has: tensors grow, and graphs are captured again
  expect_same_bits_with_graphs<double>({1, 2}, small_cnn<double>, options);
  expect_same_bits_with_graphs<double>({2}, small_transformer<double>, options);
  // The update needs more scratch memory than the gradients: the workspace grows at the end of the first step.
  options.clip_norm = 0.5;
  options.evaluate_every = 0;
  expect_same_bits_with_graphs<double>(
      {1}, [] { return layers<double>({[] { return dense<double>(300); }}); }, options);
  options.optimizer.kind = OptimizerKind::kAdamW;
  options.optimizer.weight_decay = 0.01;
  options.optimizer.ema_decay = 0.9;
  options.optimizer.groups = {{.pattern = "0.*", .rate_factor = 0.5}};
  options.clip_norm = 0.5;
  options.accumulate = 3;
  options.check_every = 7;
  expect_same_bits_with_graphs<double>({1, 2}, small_cnn<double>, options);
}

TEST(DeviceTraining, ByGraphsHasTheSameBitsInDeterministicMode) {
  TrainerOptions options = one_thread(12);
  options.deterministic = true;
  options.micro_batches = 4;
  options.optimizer.kind = OptimizerKind::kAdam;
  expect_same_bits_with_graphs<float>({1, 2, 4}, small_cnn<float>, options);
}

// An evaluation with larger batches makes tensors grow, and gives memory back that graphs use.
TEST(DeviceTraining, ByGraphsLeavesMemoryThatWasReleased) {
  for_each_device_group({2}, [](Communicator& ranks) {
    const Data data;
    TrainerOptions options = one_thread(24);
    options.device = ComputeDevice::kCuda;
    options.graph = true;
    options.evaluate_every = 1;
    options.evaluation_batch = 130;
    Device& device = farandole::test::device_of(ranks);
    const StreamView stream = device.make_stream();
    std::vector<Buffer> taken;
    options.on_epoch = [&](const EpochReport&) {
      if (!taken.empty()) return;
      for (std::size_t bytes = 256; bytes <= std::size_t{1} << 18; bytes *= 2) {
        for (int i = 0; i < 16; ++i) {
          const BufferView memory = taken.emplace_back(ranks.allocate(bytes, DType::kU8, ranks.device())).view();
          device.fill_zero(memory.data, bytes, stream);
        }
      }
      device.synchronize(stream);
    };
    Trainer<double> trainer(ranks, Model<double>(kImage, small_cnn<double>()), data.training, data.test, options);
    trainer.fit();
    ASSERT_FALSE(taken.empty());
    for (const Buffer& memory : taken) {
      std::vector<char> values(memory.count());
      device.copy(values.data(), memory.view().data, values.size(), stream);
      device.synchronize(stream);
      EXPECT_THAT(values, testing::Each(0)) << values.size() << " bytes";
    }
    ranks.barrier();
  });
}

TEST(DeviceTraining, ByGraphsSynchronizesLayers) {
  TrainerOptions options = one_thread(10);
  options.synchronized_layers = true;
  options.data.drop_last = true;
  const auto make_layers = [] { return small_residual_net<double>(true); };
  expect_same_bits_with_graphs<double>({2}, make_layers, options);
}

/// Data that have weights in some batches only, or that fail once.
class UnsteadyData final : public Dataset {
 public:
  /// @param fails_at  number of the call of `gather` that throws; 0: none
  explicit UnsteadyData(std::shared_ptr<const Dataset> data, int fails_at = 0)
      : data_(std::move(data)), fails_at_(fails_at) {}
  std::int64_t size() const override { return data_->size(); }
  const Shape& shape() const override { return data_->shape(); }
  std::int32_t classes() const override { return data_->classes(); }
  void gather(std::span<const std::uint32_t> samples, Batch<float>& batch) const override { fill(samples, batch); }
  void gather(std::span<const std::uint32_t> samples, Batch<double>& batch) const override { fill(samples, batch); }

 private:
  template <class Scalar>
  void fill(std::span<const std::uint32_t> samples, Batch<Scalar>& batch) const {
    if (++calls_ == fails_at_) throw DataError("a file cannot be read");
    data_->gather(samples, batch);
    batch.weights.clear();
    if (samples.front() % 3 == 0) batch.weights.assign(samples.size(), 0.5F);
  }

  const std::shared_ptr<const Dataset> data_;
  const int fails_at_;
  mutable int calls_ = 0;
};

TEST(DeviceTraining, ByGraphsTakesBatchesWithAndWithoutWeights) {
  TrainerOptions options = one_thread(12);
  Task<double> task{[] { return Model<double>(kImage, mlp<double>()); }};
  task.data.training = std::make_shared<UnsteadyData>(task.data.training);
  expect_same_bits_with_graphs<double>({1}, task, options);
  options.deterministic = true;
  options.micro_batches = 4;
  expect_same_bits_with_graphs<double>({1}, task, options);
}

// The exception comes in the middle of the second training step, which is captured.
TEST(DeviceTraining, ByGraphsGoesOnAfterAnException) {
  if (farandole::test::is_launched()) GTEST_SKIP() << "an exception on one of several ranks ends the job";
  for_each_device_group({1}, [](Communicator& ranks) {
    TrainerOptions options = one_thread(12);
    options.device = ComputeDevice::kCuda;
    options.deterministic = true;
    options.micro_batches = 4;
    options.graph = true;
    const auto losses = [&](int fails_at) {
      std::vector<double> seen;
      TrainerOptions mine = options;
      mine.on_step = [&](const StepReport& report) { seen.push_back(report.loss); };
      const Data data;
      Trainer<double> trainer(ranks, Model<double>(kImage, mlp<double>()),
                              std::make_shared<UnsteadyData>(data.training, fails_at), nullptr, mine);
      if (fails_at > 0) {
        EXPECT_THROW(trainer.fit(), DataError);
      }
      trainer.fit();
      return seen;
    };
    const std::vector<double> whole = losses(0);
    for (const int fails_at : {3, 6, 7, 11}) EXPECT_EQ(losses(fails_at), whole) << fails_at;
  });
}

/// A layer that computes on devices, and does not say that it can be captured.
class StreamLayer final : public ForwardingLayer {
 public:
  StreamLayer() : ForwardingLayer(relu<float>()) {}
  std::string name() const override { return "of a stream"; }
  DeviceForm device_form() const override { return DeviceForm::kStreams; }
};

TEST(DeviceTraining, ByGraphsRefusesWhatCannotBeCaptured) {
  for_each_device_group({1}, [](Communicator& ranks) {
    const Data data;
    TrainerOptions options = one_thread(2);
    options.device = ComputeDevice::kCuda;
    options.graph = true;
    const auto make = [&](LayerList<float> list) {
      Trainer<float>(ranks, Model<float>(kImage, std::move(list)), data.training, nullptr, options);
    };
    if (ranks.placement().host_count > 1) {
      options.synchronized_layers = true;
      EXPECT_THAT(message_of<Unsupported>([&] { make(mlp<float>()); }),
                  testing::AllOf(HasSubstr("between hosts"), HasSubstr("synchronized_layers, or on one host")));
      options.synchronized_layers = false;
    }
    LayerList<float> list = mlp<float>();
    list.insert(list.begin() + 1, std::make_unique<StreamLayer>());
    EXPECT_THAT(
        message_of<Unsupported>([&] { make(std::move(list)); }),
        HasSubstr("layer 1 (of a stream) cannot be captured into a graph. Train without TrainerOptions::graph"));
    options.data.own_shards = true;
    EXPECT_THAT(message_of<InvalidArgument>([&] { make(mlp<float>()); }), HasSubstr("shards"));
    options.data.own_shards = false;
    options.device = ComputeDevice::kCpu;
    EXPECT_THAT(message_of<InvalidArgument>([&] { make(mlp<float>()); }), HasSubstr("TrainerOptions::device"));
  });
}

TEST(DeviceTraining, HasWeightsAndSmoothing) {
  TrainerOptions options = one_thread(10);
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
    const std::filesystem::path path = of_rank_zero(ranks, directory);
    TrainerOptions options = one_thread(15);
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

TEST(DeviceTraining, ACheckpointHoldsTheBitsOfItsStep) {
  for_each_device_group({1, 2}, [](Communicator& ranks) {
    const TemporaryDirectory directory;
    const std::filesystem::path path = of_rank_zero(ranks, directory);
    const Data data;
    const auto train_to = [&](std::int64_t step, const CheckpointOptions& checkpoints) {
      TrainerOptions options = one_thread(step);
      options.device = ComputeDevice::kCuda;
      options.deterministic = true;
      options.optimizer.kind = OptimizerKind::kAdam;
      options.check_every = 10;
      options.checkpoints = checkpoints;
      Trainer<double> trainer(ranks, Model<double>(kImage, small_residual_net<double>()), data.training, nullptr,
                              options);
      trainer.fit();
      if (ranks.rank() == 0) save_parameters(trainer.model(), path / "file");
      ranks.barrier();
    };
    const auto values_in = [](const std::filesystem::path& from) {
      Model<double> model(kImage, small_residual_net<double>());
      load_parameters(from, model);
      std::vector<double> values(model.parameters().host().begin(), model.parameters().host().end());
      values.insert(values.end(), model.statistics().host().begin(), model.statistics().host().end());
      return values;
    };
    train_to(7, {.directory = path / "run", .every_epochs = 0, .every_steps = 2, .keep = 10});
    for (const std::int64_t step : {2, 4, 6}) {
      train_to(step, {});
      EXPECT_EQ(values_in(path / "run" / ("step-00000" + std::to_string(step))), values_in(path / "file")) << step;
      ranks.barrier();
    }
  });
}

TEST(DeviceTraining, FilesHoldTheParametersOfADevice) {
  for_each_device_group({1}, [](Communicator& ranks) {
    const TemporaryDirectory directory;
    const std::filesystem::path path = of_rank_zero(ranks, directory);
    const Data data;
    TrainerOptions options = one_thread(3);
    options.device = ComputeDevice::kCuda;
    options.optimizer.ema_decay = 0.5;
    options.checkpoints.directory = path / "run";
    Trainer<double> trainer(ranks, Model<double>(kImage, small_residual_net<double>()), data.training, nullptr,
                            options);
    trainer.fit();
    if (ranks.rank() == 0) save_parameters(trainer.model(), path / "file");
    ranks.barrier();
    const auto outputs_of = [&](Trainer<double>& of) {
      const Tensor<double> outputs = of.predict(*data.test);
      return std::vector<double>(outputs.host().begin(), outputs.host().end());
    };
    const std::vector<double> before = outputs_of(trainer);
    load_parameters(path / "run", trainer.model(), {.average = true});
    EXPECT_NE(outputs_of(trainer), before);
    load_parameters(path / "file", trainer.model());
    EXPECT_EQ(outputs_of(trainer), before);
    ranks.barrier();  // rank 0's directory goes
  });
}

TEST(DeviceTraining, AModelMovesToAnotherTrainer) {
  if (farandole::test::is_launched()) GTEST_SKIP() << "with several ranks two trainers cannot average one model";
  for_each_device_group({1}, [](Communicator& ranks) {
    const Data data;
    TrainerOptions options = one_thread(6);
    options.device = ComputeDevice::kCuda;
    options.max_steps = 3;
    Trainer<double> first(ranks, Model<double>(kImage, small_cnn<double>()), data.training, nullptr, options);
    first.fit();
    options.initialize = false;
    Trainer<double> second(ranks, std::move(first.model()), data.training, nullptr, options);
    EXPECT_LT(second.fit().loss, 10);
    Tensor<double> outputs = second.predict(*data.test);
    EXPECT_TRUE(std::ranges::all_of(outputs.host(), [](double value) { return std::isfinite(value); }));
  });
}

TEST(DeviceTraining, ADeviceThatFailsEndsTheJobOnAllRanks) {
  auto* const restore = farandole::test::find_in_driver<decltype(fake_device_restore)>("fake_device_restore");
  if (restore == nullptr) GTEST_SKIP() << "a GPU does not fail when it is told to";
  if (farandole::test::is_launched()) GTEST_SKIP() << "it ends the job, which other tests need";
  for_each_device_group({1, 2}, [](Communicator& ranks) {
    const Data data;
    TrainerOptions options = one_thread(50);
    options.device = ComputeDevice::kCuda;
    options.check_every = 10;
    Trainer<float> trainer(ranks, Model<float>(kImage, mlp<float>()), data.training, nullptr, options);
    ranks.barrier();
    if (ranks.rank() == 0) farandole::test::inject_into_double("cublasSgemm_v2", 40, 13);
    ranks.barrier();
    EXPECT_THAT(message_of<DeviceError>([&] { trainer.fit(); }), HasSubstr("cublasSgemm failed on CUDA device"));
  });
  restore();
}

TEST(DeviceTraining, ChoosesADeviceWhereThereIsOne) {
  for_each_device_group({1, 2}, [](Communicator& ranks) {
    TrainerOptions options = one_thread(2);
    options.device = ComputeDevice::kAuto;
    const Data data;
    Trainer<float> on_device(ranks, Model<float>(kImage, mlp<float>()), data.training, nullptr, options);
    EXPECT_EQ(on_device.model().execution().space(), ranks.device());
    on_device.fit();
    // What is computed on processors only: master values, a layer.
    options.optimizer.master = DType::kF64;
    Trainer<float> with_masters(ranks, Model<float>(kImage, mlp<float>()), data.training, nullptr, options);
    EXPECT_TRUE(with_masters.model().execution().space().is_host());
    options.optimizer.master.reset();
    LayerList<float> list = mlp<float>();
    list.insert(list.begin() + 1, HostLayer::make());
    Trainer<float> on_cpu(ranks, Model<float>(kImage, std::move(list)), data.training, nullptr, options);
    EXPECT_TRUE(on_cpu.model().execution().space().is_host());
    on_cpu.fit();
  });
}

TEST(DeviceTraining, RefusesWhatHasNoFormForDevices) {
  for_each_device_group({1}, [](Communicator& ranks) {
    const Data data;
    TrainerOptions options = one_thread(2);
    options.device = ComputeDevice::kCuda;
    const auto message = [&](LayerList<float> list, const TrainerOptions& wanted, LossPointer<float> loss = {},
                             std::vector<MetricPointer<float>> metrics = {}) {
      return message_of<Unsupported>([&] {
        Trainer<float>(ranks, Model<float>(kImage, std::move(list)), data.training, nullptr, wanted, std::move(loss),
                       std::move(metrics));
      });
    };
    LayerList<float> list = mlp<float>();
    list.push_back(HostLayer::make());
    EXPECT_THAT(message(std::move(list), options), HasSubstr("layer 3 (of the host) computes in host memory only"));
    EXPECT_THAT(message(mlp<float>(), options, std::make_shared<HostLoss>()),
                HasSubstr("the loss 'of the host' computes in host memory only"));
    EXPECT_THAT(message(mlp<float>(), options, {}, {std::make_shared<HostMetric>()}),
                HasSubstr("the metric 'of the host' computes in host memory only"));
    const OutputParts parts{{{"class", {kClasses}}}, {"class"}};
    EXPECT_THAT(message(mlp<float>(), options, combined_loss<float>(parts, {{"class", std::make_shared<HostLoss>()}}),
                        {metric_of_output<float>(parts, "class", accuracy<float>())}),
                HasSubstr("the loss 'combined 1 * of the host of 'class'' computes in host memory only"));
    EXPECT_THAT(
        message(mlp<float>(), options, {}, {metric_of_output<float>(parts, "class", std::make_shared<HostMetric>())}),
        HasSubstr("the metric 'class.of the host' computes in host memory only"));
    TrainerOptions with_masters = options;
    with_masters.optimizer.master = DType::kF64;
    EXPECT_THAT(message(mlp<float>(), with_masters), HasSubstr("master values of f64 computes in host memory only"));
  });
}

TEST(DeviceTraining, RefusesRanksThatComputeElsewhere) {
  for_each_device_group({2}, [](Communicator& ranks) {
    const Data data;
    TrainerOptions options = one_thread(2);
    options.device = ranks.rank() == 0 ? ComputeDevice::kCuda : ComputeDevice::kCpu;
    EXPECT_THAT(message_of<Mismatch>([&] {
                  Trainer<float>(ranks, Model<float>(kImage, mlp<float>()), data.training, nullptr, options);
                }),
                testing::AllOf(HasSubstr("TrainerOptions::device"), HasSubstr("cuda"), HasSubstr("cpu")));
  });
}

TEST(DeviceTraining, FindsALossThatIsNoNumber) {
  for_each_device_group({1, 2}, [](Communicator& ranks) {
    TrainerOptions options = one_thread(20);
    options.device = ComputeDevice::kCuda;
    options.learning_rate.base = 1e30;
    EXPECT_THAT(message_of<DataError>([&] { train<float>(ranks, mlp<float>, options); }),
                HasSubstr("the loss is not a number"));
    ranks.barrier();  // the communicator is still usable
  });
}

}  // namespace
}  // namespace farandole::trainer::test
