// SPDX-License-Identifier: Apache-2.0
// Data and a loss of your own in the trainer: a network learns the sine of noisy samples, on two replicas. The program
// makes each sample when the trainer asks for it.
//
//   regression [FILE]     writes the parameters to FILE, which predict.cpp reads
#include <atomic>
#include <cmath>
#include <cstdio>
#include <exception>
#include <memory>

#include "farandole/trainer/loss.h"
#include "farandole/trainer/parameters.h"
#include "farandole/trainer/random.h"
#include "farandole/trainer/strategy.h"
#include "farandole/trainer/trainer.h"
#include "sine_network.h"

using namespace farandole;
using namespace farandole::trainer;

/// Sample i is a position x in [-3, 3) and sin(x) plus noise. Both depend on i and the seed only, so all replicas see
/// the same data.
class NoisySine final : public Dataset {
 public:
  NoisySine(std::int64_t size, std::uint64_t seed, double noise) : size_(size), random_(seed, 0), noise_(noise) {}

  std::int64_t size() const override { return size_; }
  const Shape& shape() const override { return shape_; }
  const Shape& target_shape() const override { return shape_; }
  void gather(std::span<const std::uint32_t> samples, Batch<float>& batch) const override {
    batch.inputs.resize(static_cast<std::int64_t>(samples.size()), shape_);
    batch.targets.resize(static_cast<std::int64_t>(samples.size()), shape_);
    for (std::size_t i = 0; i < samples.size(); ++i) {
      const double x = 6 * random_.uniform(2 * samples[i]) - 3;
      batch.inputs.data()[i] = static_cast<float>(x);
      batch.targets.data()[i] = static_cast<float>(std::sin(x) + noise_ * random_.normal(2 * samples[i] + 1));
    }
  }

 private:
  const std::int64_t size_;
  const CounterRandom random_;
  const double noise_;
  const Shape shape_{1};
};

/// log(cosh(output - target)): squared for small differences, linear for large ones. The model has one output.
class LogCosh final : public Loss<float> {
 public:
  std::string name() const override { return "log_cosh"; }
  void evaluate(const Execution&, const Tensor<float>& outputs, const BatchView<float>& batch, double scale,
                Tensor<float>* gradient, VectorView<double> sum) const override {
    if (gradient != nullptr) gradient->resize(outputs.samples(), outputs.shape());
    const std::span<const float> found = outputs.host(), right = batch.targets.host();
    const std::span<float> slopes = gradient == nullptr ? std::span<float>() : gradient->host();
    double losses = 0;
    for (std::size_t i = 0; i < found.size(); ++i) {
      const double difference = found[i] - right[i];
      losses += std::log(std::cosh(difference));
      if (gradient != nullptr) slopes[i] = static_cast<float>(scale * std::tanh(difference));
    }
    sum.host()[0] += losses;
  }
};

int main(int argc, char** argv) try {
  const auto training = std::make_shared<const NoisySine>(4096, /*seed=*/1, /*noise=*/0.1);
  const auto test = std::make_shared<const NoisySine>(512, /*seed=*/2, /*noise=*/0.0);
  WorldOptions job;
  job.replicas = 2;
  MirroredStrategy strategy(job);
  std::atomic<bool> learned = false;
  strategy.run([&](Communicator& replica) {
    TrainerOptions options;
    options.global_batch = 64;
    options.epochs = 10;
    options.optimizer.kind = OptimizerKind::kAdam;
    options.learning_rate.base = 0.005;
    Trainer<float> trainer(replica, sine_network(), training, test, options, std::make_shared<const LogCosh>());
    const EpochReport report = trainer.fit();
    learned = report.test->loss < 0.005;  // the same on every replica
    if (replica.rank() != 0) return;
    std::printf("%lld training steps on %d replicas: mean log(cosh(error)) %.4f on data without noise\n",
                static_cast<long long>(report.training_steps), strategy.num_replicas_in_sync(), report.test->loss);
    if (argc > 1) save_parameters(trainer.model(), argv[1]);
  });
  return learned ? 0 : 1;
} catch (const std::exception& error) {
  std::fprintf(stderr, "regression: %s\n", error.what());
  return 1;
}
