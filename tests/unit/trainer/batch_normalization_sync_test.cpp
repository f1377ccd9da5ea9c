// SPDX-License-Identifier: Apache-2.0
// Synchronised batch normalisation over replicas equals one replica with the whole batch.
#include <mutex>

#include "farandole/collectives/communicator.h"
#include "layer_harness.h"

namespace farandole::trainer {
namespace {

const Shape kImage{3, 2, 4};

/// Samples [first, first + count) of a tensor.
Tensor<double> part(const Tensor<double>& whole, std::int64_t first, std::int64_t count) {
  Tensor<double> result(count, whole.shape());
  std::copy_n(whole.data() + first * whole.sample_elements(), result.size(), result.data());
  return result;
}

/// Splits `samples` into parts, one per replica.
void check(const std::vector<std::int64_t>& parts) {
  std::int64_t samples = 0;
  for (const std::int64_t count : parts) samples += count;
  const auto input = normal_tensor<double>(samples, kImage, 50), gradient = normal_tensor<double>(samples, kImage, 51);
  const BatchNormalizationOptions options{.synchronized = true};
  LayerHarness<double> whole(batch_normalization<double>(options), kImage);
  whole.forward(input);
  whole.backward(input, gradient);

  std::mutex mutex;  // guards `sums`; EXPECT is thread-safe
  std::vector<std::vector<double>> sums(2, std::vector<double>(4, 0.0));
  run_replicas(static_cast<int>(parts.size()), [&](Communicator& replicas) {
    const auto rank = static_cast<std::size_t>(replicas.rank());
    std::int64_t first = 0;
    for (std::size_t r = 0; r < rank; ++r) first += parts[r];
    LayerHarness<double> mine(batch_normalization<double>(options), kImage);
    mine.pass.replicas = &replicas;
    const auto my_input = part(input, first, parts[rank]);
    mine.forward(my_input);
    mine.backward(my_input, part(gradient, first, parts[rank]));

    const auto output = part(whole.output, first, parts[rank]);
    const auto input_gradient = part(whole.input_gradient, first, parts[rank]);
    for (std::int64_t i = 0; i < output.size(); ++i) {
      EXPECT_NEAR(mine.output.data()[i], output.data()[i], 1e-12);
      EXPECT_NEAR(mine.input_gradient.data()[i], input_gradient.data()[i], 1e-12);
    }
    const std::scoped_lock lock(mutex);
    for (std::size_t p = 0; p < 2; ++p) {
      for (std::size_t c = 0; c < 4; ++c) {
        EXPECT_NEAR(mine.statistics[p][c], whole.statistics[p][c], 1e-12);
        sums[p][c] += mine.gradients[p][c];
      }
    }
  });
  for (std::size_t p = 0; p < 2; ++p) {
    for (std::size_t c = 0; c < 4; ++c) EXPECT_NEAR(sums[p][c], whole.gradients[p][c], 1e-12);
  }
}

TEST(BatchNormalizationSync, TwoReplicasEqualOne) {
  check({4, 4});
}
TEST(BatchNormalizationSync, UnevenParts) {
  check({5, 1, 3});
}
TEST(BatchNormalizationSync, AReplicaWithoutSamplesTakesPart) {
  check({0, 6});
}

TEST(BatchNormalizationSync, EvaluationDoesNotCommunicate) {
  run_replicas(2, [](Communicator& replicas) {
    if (replicas.rank() == 1) return;
    LayerHarness<double> harness(batch_normalization<double>({.synchronized = true}), kImage);
    harness.pass.replicas = &replicas;
    harness.pass.training = false;
    harness.forward(normal_tensor<double>(2, kImage, 52));
  });
}

}  // namespace
}  // namespace farandole::trainer
