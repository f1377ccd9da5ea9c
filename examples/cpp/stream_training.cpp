// SPDX-License-Identifier: Apache-2.0
// A stream of samples, an update rule and a metric of your own in the trainer, on two replicas. The stream is a noisy
// oscillation, and the network learns to predict its next value from the last eight.
#include <atomic>
#include <cmath>
#include <cstdio>
#include <exception>
#include <memory>
#include <vector>

#include "farandole/trainer/metric.h"
#include "farandole/trainer/random.h"
#include "farandole/trainer/strategy.h"
#include "farandole/trainer/stream.h"
#include "farandole/trainer/trainer.h"

using namespace farandole;
using namespace farandole::trainer;

constexpr std::size_t kPast = 8;

/// A generator of samples: the last values of the oscillation, and the next one. Every replica gets one of its own, and
/// all give the same samples.
SampleGenerator oscillation() {
  return [random = CounterRandom(/*seed=*/1, /*stream=*/0), time = std::uint64_t{0}](StreamSample& sample) mutable {
    const std::uint64_t now = time++;
    if (sample.is_skipped) return;  // another replica computes it
    const auto value = [&](std::uint64_t at) {
      return static_cast<float>(std::sin(0.3 * static_cast<double>(at)) + 0.05 * random.normal(at));
    };
    for (std::size_t i = 0; i < kPast; ++i) sample.input[i] = value(now + i);
    sample.target[0] = value(now + kPast);
  };
}

/// Lion (Chen et al., 2023): each parameter moves by the rate, in the direction of a mixed gradient's sign.
class Lion final : public UpdateRule<float> {
 public:
  std::string name() const override { return "lion"; }
  std::vector<std::string> states() const override { return {"momentum"}; }
  void update(VectorView<float> parameters, VectorView<const float> gradients,
              std::span<const VectorView<float>> states, const UpdateFacts& facts) override {
    const std::span<float> values = parameters.host(), momentum = states[0].host();
    const std::span<const float> slopes = gradients.host();
    const auto rate = static_cast<float>(facts.learning_rate), decay = static_cast<float>(facts.weight_decay);
    const auto scale = static_cast<float>(facts.scale());
    for (std::size_t i = 0; i < values.size(); ++i) {
      const float gradient = scale * slopes[i];
      const float direction = 0.9F * momentum[i] + 0.1F * gradient;
      const float sign = static_cast<float>(direction > 0) - static_cast<float>(direction < 0);
      values[i] -= rate * (sign + decay * values[i]);
      momentum[i] = 0.99F * momentum[i] + 0.01F * gradient;
    }
  }
};

/// The fraction of predictions that are at most 0.2 away from the target.
class Close final : public Metric<float> {
 public:
  std::string name() const override { return "close"; }
  std::size_t sums(const Shape&) const override { return 2; }  // close predictions, all predictions
  bool counts() const override { return true; }
  void add(const Execution&, const Tensor<float>& outputs, const BatchView<float>& batch,
           VectorView<double> sums) const override {
    const std::span<const float> found = outputs.host(), right = batch.targets.host();
    int close = 0;
    for (std::size_t i = 0; i < found.size(); ++i) close += std::abs(found[i] - right[i]) <= 0.2F;
    sums.host()[0] += close;
    sums.host()[1] += static_cast<double>(found.size());
  }
  double value(std::span<const double> sums) const override { return sums[0] / sums[1]; }
};

int main() try {
  const auto stream = stream_dataset(
      {.shape = {static_cast<std::int64_t>(kPast)}, .samples_per_epoch = 4096, .target_shape = {1}}, oscillation);
  WorldOptions job;
  job.replicas = 2;
  MirroredStrategy strategy(job);
  std::atomic<bool> learned = false;
  strategy.run([&](Communicator& replica) {
    TrainerOptions options;
    options.global_batch = 64;
    options.epochs = 6;
    options.optimizer.kind = OptimizerKind::kOwn;
    options.optimizer.own.f32 = [] { return std::make_unique<Lion>(); };
    options.learning_rate = {.base = 0.002, .schedule = LearningRateSchedule::kCosine};
    Model<float> model({static_cast<std::int64_t>(kPast)},
                       layers<float>(dense<float>(32), hyperbolic_tangent<float>(), dense<float>(1)));
    Trainer<float> trainer(replica, std::move(model), stream, /*test=*/nullptr, options, mean_squared_error<float>(),
                           {std::make_shared<const Close>()});
    const EpochReport report = trainer.fit();
    learned = report.metric("close") > 0.9;
    if (replica.rank() != 0) return;
    std::printf("after %lld training steps %.0f %% of the predictions are close to the next value\n",
                static_cast<long long>(report.training_steps), 100 * report.metric("close"));
  });
  return learned ? 0 : 1;
} catch (const std::exception& error) {
  std::fprintf(stderr, "stream_training: %s\n", error.what());
  return 1;
}
