// SPDX-License-Identifier: Apache-2.0
// The training loop of own_loop.cpp on GPUs: weights, gradients and all arithmetic are on the device, in kernels of the
// program's own (own_loop_gpu_kernels.cu). The numbered lines make the loop parallel; without them one process trains.
//
//   own_loop_gpu                  one rank
//   mpirun -np 2 own_loop_gpu     each rank takes its part of every batch, on a GPU of its own; the loss is the same
//
// To build: a CUDA toolkit with nvcc, and an installed Farandole.
//
//   project(my_program LANGUAGES CXX CUDA)
//   find_package(farandole REQUIRED)
//   find_package(CUDAToolkit REQUIRED)
//   add_executable(own_loop_gpu own_loop_gpu.cpp own_loop_gpu_kernels.cu)
//   target_compile_features(own_loop_gpu PRIVATE cuda_std_17)
//   target_link_libraries(own_loop_gpu PRIVATE farandole::farandole CUDA::cudart_static)
//
// To run: NVIDIA's driver, and NCCL for more than one rank (docs/gpu.md). A rank without a usable device prints the
// reason, and all ranks end with status 77.
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <exception>
#include <optional>
#include <random>
#include <vector>

#include "farandole/gradients/gradient_averager.h"
#include "gpu_example.h"
#include "own_loop_gpu_kernels.h"

using namespace farandole;

namespace {

constexpr int kSamples = 512, kBatch = 64, kEpochs = 60;
constexpr double kLearningRate = 0.2;
// The loss that own_loop prints for the same computation on a processor.
constexpr double kLossOfOneRank = 0.0050171724;

/// Matrices in row-major order; rows are samples. The last input is always 1, so that the first matrix of weights
/// includes a bias.
struct Samples {
  std::vector<double> inputs, targets;
};

/// Numbers between -scale and scale; std::mt19937 gives the same numbers on every system.
std::vector<double> random_numbers(int count, double scale, std::mt19937& generator) {
  std::vector<double> numbers(static_cast<std::size_t>(count));
  for (double& number : numbers) number = scale * (2.0 * generator() / 4294967296.0 - 1.0);
  return numbers;
}

/// A smooth function of the inputs, to be learned.
Samples make_samples(std::mt19937& generator) {
  Samples all{random_numbers(kSamples * kInputs, 1.0, generator), {}};
  for (std::size_t first = 0; first < all.inputs.size(); first += kInputs) {
    double* const inputs = &all.inputs[first];
    inputs[kInputs - 1] = 1.0;
    all.targets.push_back(std::sin(2.0 * inputs[0]) * inputs[1] + 0.5 * inputs[2]);
  }
  return all;
}

/// The model's weights, its gradients, and intermediate results, on the device.
struct Model {
  CudaArray<double> first, second, d_first, d_second, hidden, error;

  explicit Model(const CudaStream& stream)
      : first(kInputs * kHidden, stream),
        second(kHidden, stream),
        d_first(kInputs * kHidden, stream),
        d_second(kHidden, stream),
        hidden(kSamples * kHidden, stream),
        error(kSamples, stream) {}

  /// Computes `hidden`, and `error` times `factor`, for `rows` samples.
  void forward(const double* inputs, const double* targets, double factor, int rows, const CudaStream& stream) {
    compute_hidden(inputs, first.data(), hidden.data(), rows, stream.get());
    compute_error(hidden.data(), second.data(), targets, factor, error.data(), rows, stream.get());
  }
};

/// Trains the model and returns the loss after the last training step.
double train(Communicator& ranks, MemorySpace device) {
  std::mt19937 generator(1);
  const Samples all = make_samples(generator);
  const std::vector<double> first = random_numbers(kInputs * kHidden, 1.0, generator);
  const std::vector<double> second = random_numbers(kHidden, 0.3, generator);
  const CudaStream stream;
  CudaArray<double> inputs(all.inputs.size(), stream), targets(all.targets.size(), stream);
  Model model(stream);
  inputs.write(all.inputs);
  targets.write(all.targets);
  model.first.write(first);
  model.second.write(second);

  GradientOptions options;
  options.op = ReduceOp::kSum;
  options.stream = StreamView(stream.get(), device);
  GradientAverager averager(ranks,  // 1
                            {{model.d_first.view(device), "first"}, {model.d_second.view(device), "second"}}, options);
  const int skipped = kBatch * ranks.rank() / ranks.size();  // 2: this rank's part of every batch
  const int rows = kBatch * (ranks.rank() + 1) / ranks.size() - skipped;
  for (int epoch = 0; epoch < kEpochs; ++epoch) {
    for (int start = skipped; start < kSamples; start += kBatch) {
      const double* const batch = inputs.data() + start * kInputs;
      // The loss is the mean over the whole batch: every rank divides by the size of that batch, and gradients are
      // summed.
      model.forward(batch, targets.data() + start, 2.0 / kBatch, rows, stream);
      compute_d_second(model.hidden.data(), model.error.data(), model.d_second.data(), rows, stream.get());
      averager.ready(1);  // 3: the second gradient is reduced while the first is computed
      compute_d_first(batch, model.hidden.data(), model.error.data(), model.second.data(), model.d_first.data(), rows,
                      stream.get());
      averager.ready(0);  // 4
      averager.wait();    // 5: non-blocking on the host; later work of the stream waits for the sums

      descend(model.first.data(), model.d_first.data(), kLearningRate, kInputs * kHidden, stream.get());
      descend(model.second.data(), model.d_second.data(), kLearningRate, kHidden, stream.get());
    }
  }
  model.forward(inputs.data(), targets.data(), 1.0, kSamples, stream);
  double sum = 0;
  for (const double error : model.error.read()) sum += error * error;
  return sum / kSamples;
}

int run() {
  World world;
  Communicator ranks = Communicator::of_world(world);
  const std::optional<MemorySpace> device = use_device(ranks);
  if (!device) return kNoDeviceStatus;
  const double loss = train(ranks, *device);
  std::printf("loss %.10f\n", loss);
  // The order of additions depends on the number of ranks, so the last digits may differ.
  if (std::abs(loss - kLossOfOneRank) <= 1e-6 * kLossOfOneRank) return 0;
  std::fprintf(stderr, "own_loop_gpu: the loss of one rank is %.10f\n", kLossOfOneRank);
  return 1;
}

}  // namespace

int main() try { return run(); } catch (const std::exception& error) {
  std::fprintf(stderr, "own_loop_gpu: %s\n", error.what());
  return 1;
}
