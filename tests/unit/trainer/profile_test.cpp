// SPDX-License-Identifier: Apache-2.0
// What the layers of a model compute, the stopwatch of training steps, and the table of a profile.
#include "farandole/trainer/profile.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "farandole/trainer/graph.h"
#include "farandole/trainer/model.h"
#include "farandole/trainer/models.h"
#include "farandole/trainer/trainer.h"
#include "forwarding_layer.h"
#include "host_peak.h"
#include "layer_harness.h"
#include "step_profiler.h"

namespace farandole::trainer {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

std::vector<std::string> names_of(const std::vector<LayerWork>& work) {
  std::vector<std::string> names;
  for (const LayerWork& layer : work) names.push_back(layer.name);
  return names;
}

void expect_flops(const LayerWork& layer, double forward, double backward) {
  EXPECT_DOUBLE_EQ(layer.forward_flops, forward) << layer.name;
  EXPECT_DOUBLE_EQ(layer.backward_flops, backward) << layer.name;
}

/// A layer of the program's own, which contains a layer and names no operations.
class OwnLayer final : public ForwardingLayer {
 public:
  using ForwardingLayer::ForwardingLayer;
  std::string name() const override { return "own layer"; }
};

TEST(Work, ConvolutionsAndProductsCountTheirMultiplyAdds) {
  const Model<float> model({9, 7, 3},
                           layers<float>(conv2d<float>({.channels = 4, .stride = 2, .padding = 1}), relu<float>(),
                                         depthwise_conv2d<float>({.padding = 1}), dense<float>(10, {.bias = false})));
  const std::vector<LayerWork>& work = model.work();
  EXPECT_THAT(names_of(work), ElementsAre("0.conv2d", "1.relu", "2.depthwise_conv2d", "3.dense"));
  EXPECT_EQ(work[0].kind, "conv2d 3x3, 4 channels");
  EXPECT_EQ(work[0].output, Shape({5, 4, 4}));
  // Output positions * 2 * kernel * inputs * channels. The first layer has no gradient of its input.
  expect_flops(work[0], 5 * 4 * 2 * 9 * 3 * 4, 5 * 4 * 2 * 9 * 3 * 4);
  expect_flops(work[1], 0, 0);
  expect_flops(work[2], 5 * 4 * 2 * 9 * 4, 2 * 5 * 4 * 2 * 9 * 4);  // each channel by itself
  expect_flops(work[3], 2 * 80 * 10, 2 * 2 * 80 * 10);
}

TEST(Work, AttentionLeavesOutOneProductWithoutGradientOfTheInput) {
  const auto of_units = [](double units) { return 8 * 5 * units * units + 4 * 5 * 5 * units; };
  const Model<float> model({5, 6}, layers<float>(attention<float>({.heads = 2}), attention<float>({.heads = 3})));
  expect_flops(model.work()[0], of_units(6), 2 * of_units(6) - 6 * 5 * 6 * 6);
  expect_flops(model.work()[1], of_units(6), 2 * of_units(6));
}

TEST(Work, LayersInsideContainersHaveTheirPaths) {
  const Model<float> model({4, 4, 2},
                           layers<float>(residual<float>(layers<float>(conv2d<float>({.channels = 2, .padding = 1})),
                                                         layers<float>(conv2d<float>({.channels = 2, .kernel = 1}))),
                                         sequence<float>(layers<float>(relu<float>(), dense<float>(3)))));
  EXPECT_THAT(names_of(model.work()), ElementsAre("0.residual.body.0.conv2d", "0.residual.shortcut.0.conv2d",
                                                  "0.residual.sum", "1.sequence.0.relu", "1.sequence.1.dense"));
  for (const std::size_t first : {0, 1}) {  // layers of the model's input, inside the container as well
    EXPECT_GT(model.work()[first].forward_flops, 0);
    EXPECT_EQ(model.work()[first].backward_flops, model.work()[first].forward_flops);
  }
  expect_flops(model.work()[4], 2 * 32 * 3, 2 * 2 * 32 * 3);
}

TEST(Work, LayersBehindLayersInsideContainersHaveGradientsOfTheirInputs) {
  const auto block = [] { return residual<float>(layers<float>(dense<float>(4), dense<float>(4))); };
  const Model<float> model({4}, layers<float>(block(), block()));
  const double product = 2 * 4 * 4;
  expect_flops(model.work()[0], product, product);
  expect_flops(model.work()[1], product, 2 * product);
  expect_flops(model.work()[3], product, 2 * product);  // the second block's first layer
  EXPECT_EQ(block()->backward_flops(true), 0) << "before prepare";
  const auto prepared = block();
  prepared->prepare({4});
  EXPECT_EQ(prepared->backward_flops(true), 4 * product);
  EXPECT_EQ(prepared->backward_flops(false), 3 * product);
}

TEST(Work, SharedLayersHaveARowForEachUse) {
  GraphBuilder<float> graph;
  const Node input = graph.input("input", {4});
  const SharedLayer tower = graph.shared(dense<float>(4), "tower"), plain = graph.shared(dense<float>(4));
  const Node left = graph.add(tower, input, "left"), right = graph.add(tower, left, "right");
  const Node one = graph.add(plain, left), other = graph.add(plain, right);
  graph.output("output", graph.add(dense<float>(2), graph.sum({graph.multiply({one, other}), graph.sum({left, one})})));
  const Model<float> model(std::move(graph));
  EXPECT_THAT(names_of(model.work()), ElementsAre("tower at left", "tower at right", "1.dense (use 1)",
                                                  "1.dense (use 2)", "multiply", "6.sum", "7.sum", "2.dense"));
  expect_flops(model.work()[0], 32, 32);
  expect_flops(model.work()[1], 32, 64);
}

TEST(Work, SharedContainersHaveOneRowPerLayerForAllUses) {
  GraphBuilder<float> graph;
  const Node input = graph.input("input", {4});
  const SharedLayer block = graph.shared(sequence<float>(layers<float>(dense<float>(4), relu<float>())), "block");
  graph.output("output", graph.add(block, graph.add(block, input)));
  const Model<float> model(std::move(graph));
  EXPECT_THAT(names_of(model.work()), ElementsAre("block.0.dense", "block.1.relu"));
  expect_flops(model.work()[0], 2 * 32, 32 + 64);
}

TEST(Work, ForwardOperationsAreThoseOfTheModel) {
  for (const std::string name : {"mlp", "cnn", "cnn_bn", "resnet18", "resnet50"}) {
    const ModelOptions options{.input = {32, 32, 3}};
    const Model<float> model(options.input, layers_of<float>(name, options));
    double sum = 0;
    for (const LayerWork& layer : model.work()) sum += layer.forward_flops;
    EXPECT_DOUBLE_EQ(sum, model.flops()) << name;
  }
}

/// The clock of the stopwatch, in ms.
Clock::time_point fake_now{};
Clock::time_point now() {
  return fake_now;
}
void pass_time(int ms) {
  fake_now += std::chrono::milliseconds(ms);
}

void expect_ms(const LayerProfile& layer, double forward, double backward) {
  EXPECT_DOUBLE_EQ(1e3 * layer.forward, forward) << layer.layer.name;
  EXPECT_DOUBLE_EQ(1e3 * layer.backward, backward) << layer.layer.name;
}

const std::vector<LayerWork> kTwoLayers{{"0.dense", "dense, 3 units", {3}, 12, 24}, {"1.relu", "relu", {3}}};

/// A training step whose layers take `ms` and twice as long, and whose parts take fixed times.
void run_step(StepProfiler& profiler, int ms) {
  profiler.begin_step();
  pass_time(1);
  {
    const ProfiledPart input(&profiler, StepPart::kInput);
    pass_time(2);
  }
  {
    const ProfiledPart forward(&profiler, 0, Direction::kForward);
    pass_time(ms);
  }
  {
    const ProfiledPart loss(&profiler, StepPart::kLoss);
    pass_time(3);
  }
  {
    const ProfiledPart backward(&profiler, 0, Direction::kBackward);
    pass_time(ms);
    {
      const ProfiledPart averaging(&profiler, StepPart::kAveraging);  // inside: counts for averaging only
      pass_time(4);
    }
    pass_time(ms);
  }
  {
    const ProfiledPart update(&profiler, StepPart::kUpdate);
    pass_time(5);
  }
  pass_time(1);
  profiler.end_step(16);
}

TEST(StepProfiler, CountsEachMomentOnce) {
  StepProfiler profiler(2, now);
  for (int k = 0; k < StepProfiler::kWarmUp; ++k) run_step(profiler, 1000);
  EXPECT_EQ(profiler.steps(), 0);
  for (const int ms : {10, 30, 20}) run_step(profiler, ms);
  const TrainingProfile profile = profiler.report(kTwoLayers);
  EXPECT_EQ(profile.steps, 3);
  EXPECT_DOUBLE_EQ(profile.samples, 16);
  EXPECT_DOUBLE_EQ(profile.layers[0].forward, 0.020);
  EXPECT_DOUBLE_EQ(profile.layers[0].backward, 0.040);
  EXPECT_EQ(profile.layers[1].seconds(), 0);
  EXPECT_DOUBLE_EQ(profile.parts.loss, 0.003);
  EXPECT_DOUBLE_EQ(profile.parts.averaging, 0.004);
  EXPECT_DOUBLE_EQ(profile.parts.update, 0.005);
  EXPECT_DOUBLE_EQ(profile.parts.input, 0.002);
  EXPECT_DOUBLE_EQ(profile.parts.rest, 0.002);
  EXPECT_DOUBLE_EQ(profile.step, 0.076);
  EXPECT_DOUBLE_EQ(profile.seconds(), profile.step);
  EXPECT_DOUBLE_EQ(profile.busy_seconds, 0.072);
}

TEST(StepProfiler, OneSlowStepChangesNoTime) {
  StepProfiler profiler(2, now);
  for (int k = 0; k < StepProfiler::kWarmUp; ++k) run_step(profiler, 1);
  for (const int ms : {10, 500, 10, 10}) run_step(profiler, ms);
  const TrainingProfile profile = profiler.report(kTwoLayers);
  expect_ms(profile.layers[0], 10, 20);
  EXPECT_DOUBLE_EQ(1e3 * profile.step, 46);
}

TEST(StepProfiler, ForgetsStepsThatWereNotEndedOrCameBeforeARestart) {
  StepProfiler profiler(2, now);
  for (int k = 0; k <= StepProfiler::kWarmUp; ++k) run_step(profiler, 1);
  EXPECT_EQ(profiler.steps(), 1);
  profiler.begin_step();
  pass_time(500);
  run_step(profiler, 1);  // the step before was given up
  EXPECT_DOUBLE_EQ(profiler.report(kTwoLayers).parts.rest, 0.002);
  profiler.restart();
  for (int k = 0; k < StepProfiler::kWarmUp; ++k) run_step(profiler, 1);
  EXPECT_EQ(profiler.steps(), 0);
}

TEST(StepProfiler, KeepsTheNewestSteps) {
  StepProfiler profiler(2, now);
  for (int k = 0; k < 3000; ++k) run_step(profiler, k < 1900 ? 1 : 2);
  EXPECT_EQ(profiler.steps(), 1024);
  EXPECT_DOUBLE_EQ(profiler.report(kTwoLayers).layers[0].forward, 0.002);
}

TEST(StepProfiler, LayersOfAnOwnLayerCountForIt) {
  const Shape shape{6};
  auto inner = sequence<float>(layers<float>(hyperbolic_tangent<float>(), relu<float>()));
  Model<float> model(shape, layers<float>(std::make_unique<OwnLayer>(std::move(inner)), dense<float>(2)));
  EXPECT_THAT(names_of(model.work()), ElementsAre("0.own", "1.dense"));
  EXPECT_EQ(model.work()[0].forward_flops, 0);
  StepProfiler profiler(model.work().size());
  const auto input = normal_tensor<float>(3, shape, 90);
  for (int k = 0; k <= StepProfiler::kWarmUp; ++k) {
    profiler.begin_step();
    const Pass pass{.training = true, .profiler = &profiler};
    model.forward(pass, input);
    model.backward(pass, input, normal_tensor<float>(3, {2}, 91));
    profiler.end_step(3);
  }
  const TrainingProfile profile = profiler.report(model.work());
  for (const LayerProfile& layer : profile.layers) {
    EXPECT_GT(layer.forward, 0) << layer.layer.name;
    EXPECT_GT(layer.backward, 0) << layer.layer.name;
  }
  EXPECT_EQ(profile.flops(profile.layers[0]), std::nullopt);
}

/// A layer whose passes take fixed times by the clock of the stopwatch.
class TimedLayer final : public ForwardingLayer {
 public:
  TimedLayer(int forward_ms, int backward_ms)
      : ForwardingLayer(hyperbolic_tangent<float>()), forward_ms_(forward_ms), backward_ms_(backward_ms) {}
  std::string name() const override { return "timed"; }
  void forward(const Pass& pass, const Tensor<float>& input, Tensor<float>& output) override {
    pass_time(forward_ms_);
    ForwardingLayer::forward(pass, input, output);
  }
  void backward(const Pass& pass, const Tensor<float>& input, const Tensor<float>& output,
                const Tensor<float>& output_gradient, Tensor<float>* input_gradient) override {
    pass_time(backward_ms_);
    ForwardingLayer::backward(pass, input, output, output_gradient, input_gradient);
  }

 private:
  const int forward_ms_, backward_ms_;
};

std::unique_ptr<Layer<float>> timed(int forward_ms, int backward_ms) {
  return std::make_unique<TimedLayer>(forward_ms, backward_ms);
}

/// The profile of a training step of a model of inputs {4}.
TrainingProfile profile_of(Model<float>& model) {
  StepProfiler profiler(model.work().size(), now);
  const auto input = normal_tensor<float>(3, {4}, 92);
  for (int k = 0; k <= StepProfiler::kWarmUp; ++k) {
    profiler.begin_step();
    const Pass pass{.training = true, .profiler = &profiler};
    model.forward(pass, input);
    model.backward(pass, input, normal_tensor<float>(3, model.output_shape(), 93));
    profiler.end_step(3);
  }
  return profiler.report(model.work());
}

TEST(StepProfiler, EachPassOfEachLayerCountsInItsOwnTime) {
  Model<float> model(
      {4}, layers<float>(timed(1, 10), residual<float>(layers<float>(timed(2, 20)), layers<float>(timed(3, 30))),
                         timed(4, 40)));
  const TrainingProfile profile = profile_of(model);
  ASSERT_EQ(profile.layers.size(), 5U);
  expect_ms(profile.layers[0], 1, 10);
  expect_ms(profile.layers[1], 2, 20);
  expect_ms(profile.layers[2], 3, 30);
  expect_ms(profile.layers[3], 0, 0);  // the sum
  expect_ms(profile.layers[4], 4, 40);
  EXPECT_EQ(profile.parts.rest, 0);
  EXPECT_DOUBLE_EQ(1e3 * profile.step, 110);
}

TEST(StepProfiler, ARepeatedForwardPassCountsForBackward) {
  GraphBuilder<float> graph;
  const SharedLayer tower = graph.shared(timed(1, 10), "tower");
  const Node left = graph.add(tower, graph.input("input", {4}), "left");
  graph.output("output", graph.add(tower, left, "right"));
  Model<float> model(std::move(graph));
  const TrainingProfile profile = profile_of(model);
  ASSERT_EQ(profile.layers.size(), 2U);
  expect_ms(profile.layers[0], 1, 11);
  expect_ms(profile.layers[1], 1, 10);
}

/// A product of 1 GFLOP/s, and in each second call slower.
template <class Scalar>
void square_slowly(const Factor<Scalar>& square, Scalar* result) {
  static bool is_slow = false;
  is_slow = !is_slow;
  const auto extent = static_cast<double>(square.rows);
  fake_now += std::chrono::duration_cast<Clock::duration>(Seconds((is_slow ? 3 : 1) * 2e-9 * extent * extent * extent));
  *result = 0;
}

TEST(HostPeak, IsTheSpeedOfTheFastestProduct) {
  run_replicas(1, [](Communicator& replica) {
    EXPECT_NEAR(measured_host_peak<float>(replica, {square_slowly<float>, now}), 1e9, 1);
    EXPECT_NEAR(measured_host_peak<double>(replica, {square_slowly<double>, now}), 1e9, 1);
  });
}

/// As if a product took no time below 4096 rows, and 1 s then.
void square_at_once(const Factor<float>& square, float* result) {
  fake_now += std::chrono::microseconds(square.rows == 4096 ? 1'000'000 : 1);
  *result = 0;
}

TEST(HostPeak, IsMeasuredWithTheLargestProductThatFitsTheBudget) {
  run_replicas(1, [](Communicator& replica) {
    const double extent = 4096;
    EXPECT_NEAR(measured_host_peak<float>(replica, {square_at_once, now}), 2 * extent * extent * extent, 1);
  });
}

TEST(HostPeak, IsThatOfTheProductsOfLayers) {
  constexpr std::int64_t kExtent = 512;
  std::vector<float> values(kExtent * kExtent, 1), result(values.size());
  const Factor<float> square{values.data(), kExtent, kExtent};
  double ratio = 0;
  for (int attempt = 0; attempt < 10 && !(ratio > 0.7 && ratio < 1.4); ++attempt) {  // the machine may be busy
    Seconds fastest{1e9};
    for (int run = 0; run < 10; ++run) {
      const auto start = Clock::now();
      multiply(square, square, false, result.data());
      fastest = std::min(fastest, Seconds(Clock::now() - start));
    }
    run_replicas(1, [&](Communicator& replica) {
      ratio = measured_host_peak<float>(replica) * fastest.count() / (2.0 * kExtent * kExtent * kExtent);
    });
  }
  EXPECT_GT(ratio, 0.7);
  EXPECT_LT(ratio, 1.4);
}

TrainingProfile profile_of_two_layers() {
  TrainingProfile profile;
  profile.steps = 40;
  profile.samples = 1e6;
  profile.layers = {{kTwoLayers[0], 0.001, 0.002}, {kTwoLayers[1], 0.0005, 0.00025}};
  profile.parts = {.loss = 0.0001, .averaging = 0.0002, .update = 0.0003, .input = 0.0004, .rest = 0.00025};
  profile.step = 0.0051;
  profile.peak = 48e9;
  profile.busy_seconds = 0.0049;
  profile.slowest_seconds = 0.0049;
  return profile;
}

TEST(Profile, TableHasTimesSpeedsAndTheirSum) {
  const TrainingProfile profile = profile_of_two_layers();
  EXPECT_DOUBLE_EQ(profile.flops(), 36e6);
  EXPECT_DOUBLE_EQ(profile.seconds(), 0.005);
  EXPECT_EQ(describe(profile),
            "profile of replica 0, per training step of 1e+06 samples (medians of 40; the median training step takes "
            "5.100 ms):\n"
            "layer                kind            output  forward ms  backward ms     ms   GFLOP  GFLOP/s  of peak\n"
            "0.dense              dense, 3 units  3            1.000        2.000  3.000  0.0360     12.0     25 %\n"
            "1.relu               relu            3            0.500        0.250  0.750       -        -        -\n"
            "loss and metrics                                                      0.100       -        -        -\n"
            "averaging (exposed)                                                   0.200       -        -        -\n"
            "update                                                                0.300       -        -        -\n"
            "input                                                                 0.400       -        -        -\n"
            "rest                                                                  0.250       -        -        -\n"
            "total                                             1.500        2.250  5.000  0.0360      7.2     15 %\n"
            "peak: a large matrix product in f32 reaches 48.0 GFLOP/s on 1 kernel thread\n");
}

TEST(Profile, NamesAMuchSlowerReplica) {
  TrainingProfile profile = profile_of_two_layers();
  profile.local_replicas = 4;
  profile.kernel_threads = 2;
  profile.slowest_replica = 3;
  profile.slowest_seconds = 0.0053;
  EXPECT_THAT(describe(profile), HasSubstr(" on 2 kernel threads, while 4 replicas of this host compute the same\n"));
  EXPECT_THAT(describe(profile), Not(HasSubstr("slowest")));
  profile.slowest_seconds = 0.0055;
  EXPECT_THAT(describe(profile), HasSubstr("\nthe slowest replica is 3: 5.500 ms per training step without averaging, "
                                           "replica 0 4.900 ms\n"));
}

TEST(Profile, LayersWithoutTimeHaveNoSpeed) {
  TrainingProfile profile = profile_of_two_layers();
  profile.layers[0].forward = profile.layers[0].backward = 0;
  EXPECT_THAT(describe(profile), HasSubstr("0.000  0.0360        -        -\n"));
}

}  // namespace
}  // namespace farandole::trainer
