// SPDX-License-Identifier: Apache-2.0
// A training loop written by hand with Eigen. The six numbered lines make the loop parallel; without them one process
// trains.
//
//   own_loop                  one rank
//   mpirun -np 2 own_loop     each rank takes its part of every batch; the loss is the same
#include <Eigen/Dense>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <random>
#include <span>
#include <vector>

#include "farandole/gradients/gradient_averager.h"

using namespace farandole;

namespace {

using Matrix = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

constexpr int kSamples = 512, kBatch = 64, kInputs = 4, kHidden = 32, kEpochs = 60;
constexpr double kLearningRate = 0.2;
// The loss that the program prints without the six lines.
constexpr double kLossOfOneRank = 0.0050171724;

/// Rows are samples. The last input is always 1, so that the first matrix of weights includes a bias.
struct Samples {
  Matrix inputs, targets;
};

/// Returns the rows of `batch` for rank `rank` of `size`. The parts may differ by a row.
Samples part_of(const Samples& batch, int rank, int size) {
  const Eigen::Index rows = batch.inputs.rows(), first = rows * rank / size;
  const Eigen::Index count = rows * (rank + 1) / size - first;
  return {batch.inputs.middleRows(first, count), batch.targets.middleRows(first, count)};
}

/// Numbers between -scale and scale; std::mt19937 gives the same numbers on every system.
Matrix random_matrix(int rows, int columns, double scale, std::mt19937& generator) {
  return Matrix::NullaryExpr(rows, columns, [&] { return scale * (2.0 * generator() / 4294967296.0 - 1.0); });
}

/// A smooth function of the inputs, to be learned.
Samples make_samples(std::mt19937& generator) {
  Samples all{random_matrix(kSamples, kInputs, 1.0, generator), Matrix(kSamples, 1)};
  all.inputs.col(kInputs - 1).setOnes();
  all.targets = (2.0 * all.inputs.col(0)).array().sin() * all.inputs.col(1).array() + 0.5 * all.inputs.col(2).array();
  return all;
}

/// Views of the gradients' memory, the argument of GradientAverager. The matrices must outlive the averager.
std::vector<GradientSpan> spans_of(Matrix& first, Matrix& second) {
  return {{std::span(first.data(), static_cast<std::size_t>(first.size())), "first"},
          {std::span(second.data(), static_cast<std::size_t>(second.size())), "second"}};
}

double train() {
  std::mt19937 generator(1);
  const Samples all = make_samples(generator);
  // targets ≈ tanh(inputs · first) · second; the gradients of the loss are d_first and d_second.
  Matrix first = random_matrix(kInputs, kHidden, 1.0, generator), second = random_matrix(kHidden, 1, 0.3, generator);
  Matrix d_first(kInputs, kHidden), d_second(kHidden, 1);

  World world;                                                                                              // 1
  GradientAverager averager(Communicator::of_world(world), spans_of(d_first, d_second), {ReduceOp::kSum});  // 2
  for (int epoch = 0; epoch < kEpochs; ++epoch) {
    for (int start = 0; start < kSamples; start += kBatch) {
      Samples batch{all.inputs.middleRows(start, kBatch), all.targets.middleRows(start, kBatch)};
      batch = part_of(batch, world.rank(), world.size());  // 3

      // The loss is the mean over the whole batch: every rank divides by the size of that batch, and gradients are
      // summed.
      const Matrix hidden = (batch.inputs * first).array().tanh();
      const Matrix error = (hidden * second - batch.targets) * (2.0 / kBatch);
      d_second.noalias() = hidden.transpose() * error;
      averager.ready(1);  // 4: the second gradient is reduced while the first is computed
      const Matrix hidden_error = (error * second.transpose()).array() * (1.0 - hidden.array().square());
      d_first.noalias() = batch.inputs.transpose() * hidden_error;
      averager.ready(0);  // 5
      averager.wait();    // 6

      first -= kLearningRate * d_first;
      second -= kLearningRate * d_second;
    }
  }
  const Matrix hidden = (all.inputs * first).array().tanh();
  return (hidden * second - all.targets).squaredNorm() / kSamples;
}

}  // namespace

int main() try {
  const double loss = train();
  std::printf("loss %.10f\n", loss);
  // The order of additions depends on the number of ranks, so the last digits may differ.
  if (std::abs(loss - kLossOfOneRank) <= 1e-6 * kLossOfOneRank) return 0;
  std::fprintf(stderr, "own_loop: the loss of one rank is %.10f\n", kLossOfOneRank);
  return 1;
} catch (const std::exception& error) {
  std::fprintf(stderr, "own_loop: %s\n", error.what());
  return 1;
}
