// SPDX-License-Identifier: Apache-2.0
// A layer and a model of your own in the trainer: a dense network with residual blocks, on two replicas.
//
//   custom_model [DIRECTORY]     directory with Fashion-MNIST's files; the default is a small synthetic data set
#include <atomic>
#include <cmath>
#include <cstdio>
#include <exception>
#include <memory>
#include <utility>
#include <vector>

#include "farandole/core/error.h"
#include "farandole/trainer/layers.h"
#include "farandole/trainer/strategy.h"
#include "farandole/trainer/trainer.h"

using namespace farandole;
using namespace farandole::trainer;

/// y = x + gain * tanh(x), with a learned gain per feature.
class GatedResidual final : public Layer<float> {
 public:
  std::string name() const override { return "gated_residual"; }

  Shape prepare(const Shape& input) override {
    features_ = elements(input);
    return input;
  }
  std::vector<ParameterSpec> parameters() const override {
    return {{"gain", {features_}, Initial::kOne, /*fan_in=*/1, /*decays=*/false}};
  }
  void bind(const LayerMemory<float>& memory) override {
    gain_ = memory.parameters[0].host();
    gain_gradient_ = memory.gradients[0].host();
  }

  void forward(const Pass&, const Tensor<float>& input, Tensor<float>& output) override {
    const auto features = static_cast<std::size_t>(features_);
    const std::span<const float> x = input.host();
    const std::span<float> y = output.host();
    for (std::size_t i = 0; i < x.size(); ++i) y[i] = x[i] + gain_[i % features] * std::tanh(x[i]);
  }

  void backward(const Pass&, const Tensor<float>& input, const Tensor<float>&, const Tensor<float>& output_gradient,
                Tensor<float>* input_gradient) override {
    const auto features = static_cast<std::size_t>(features_);
    const std::span<const float> x = input.host(), dy = output_gradient.host();
    const std::span<float> dx = input_gradient == nullptr ? std::span<float>() : input_gradient->host();
    for (float& gradient : gain_gradient_) gradient = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      const float bent = std::tanh(x[i]);
      gain_gradient_[i % features] += dy[i] * bent;
      if (!dx.empty()) dx[i] = dy[i] * (1 + gain_[i % features] * (1 - bent * bent));
    }
  }

 private:
  std::int64_t features_ = 0;
  std::span<float> gain_, gain_gradient_;
};

Model<float> residual_network(const Shape& input, std::int64_t classes) {
  LayerList<float> layers;
  layers.push_back(dense<float>(64));
  for (int block = 0; block < 2; ++block) {
    layers.push_back(std::make_unique<GatedResidual>());
    layers.push_back(dense<float>(64));
  }
  layers.push_back(relu<float>());
  layers.push_back(dense<float>(classes));
  return Model<float>(input, std::move(layers));
}

TrainingData find_data(const char* directory) {
  try {
    return load_fashion_mnist(directory);
  } catch (const DataError& error) {
    std::printf("%s\nA synthetic data set serves instead.\n", error.what());
    const auto data = synthetic_dataset(2000, {28, 28, 1}, 10, /*seed=*/1);
    return {.training = data, .test = data};
  }
}

int main(int argc, char** argv) try {
  const TrainingData data = find_data(argc > 1 ? argv[1] : "");
  WorldOptions job;
  job.replicas = 2;
  MirroredStrategy strategy(job);
  std::atomic<bool> learned = false;
  strategy.run([&](Communicator& replica) {
    TrainerOptions options;
    options.global_batch = 64;
    options.max_steps = 100;
    double first_loss = 0, last_loss = 0;
    options.on_step = [&](const StepReport& report) {
      if (report.training_step == 1) first_loss = report.loss;
      last_loss = report.loss;
    };
    Trainer<float> trainer(replica, residual_network(data.training->shape(), data.training->classes()), data.training,
                           data.test, options);
    const EpochReport report = trainer.fit();
    learned = last_loss < 0.8 * first_loss;  // the loss is the same on every replica
    if (replica.rank() != 0) return;
    std::printf("%s%lld training steps on %d replicas: loss %.3f -> %.3f, test accuracy %.1f %%\n",
                trainer.model().describe().c_str(), static_cast<long long>(report.training_steps),
                strategy.num_replicas_in_sync(), first_loss, last_loss, 100 * report.test->metric("accuracy"));
  });
  return learned ? 0 : 1;
} catch (const std::exception& error) {
  std::fprintf(stderr, "custom_model: %s\n", error.what());
  return 1;
}
