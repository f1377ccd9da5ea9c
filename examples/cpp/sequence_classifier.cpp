// SPDX-License-Identifier: Apache-2.0
// A transformer tells sequences apart, on two replicas: which of two symbols comes first? The blocks are put together
// from layers; the classes are compared by a confusion matrix.
#include <atomic>
#include <cstdio>
#include <exception>
#include <memory>
#include <vector>

#include "farandole/trainer/metric.h"
#include "farandole/trainer/random.h"
#include "farandole/trainer/strategy.h"
#include "farandole/trainer/trainer.h"

using namespace farandole;
using namespace farandole::trainer;

constexpr std::int64_t kLength = 12, kSymbols = 8;

/// Random sequences of the symbols 2 to 7, in which the symbols 0 and 1 each stand at a place of their own. The class
/// of a sequence is the symbol that comes first.
std::shared_ptr<const Dataset> sequences(std::int64_t count, std::uint64_t seed) {
  const CounterRandom random(seed, /*stream=*/0);
  std::uint64_t draws = 0;
  const auto below = [&](std::uint64_t limit) { return random.below(draws++, limit); };
  std::vector<float> inputs;
  std::vector<std::int32_t> labels;
  for (std::int64_t i = 0; i < count; ++i) {
    std::vector<float> sequence(kLength);
    for (float& symbol : sequence) symbol = static_cast<float>(2 + below(kSymbols - 2));
    const std::size_t zero = below(kLength), one = (zero + 1 + below(kLength - 1)) % kLength;
    sequence[zero] = 0;
    sequence[one] = 1;
    inputs.insert(inputs.end(), sequence.begin(), sequence.end());
    labels.push_back(zero < one ? 0 : 1);
  }
  return memory_dataset({.shape = {kLength}, .inputs = inputs, .labels = labels, .classes = 2});
}

Model<float> transformer() {
  constexpr std::int64_t kUnits = 32;
  LayerList<float> layers = trainer::layers<float>(embedding<float>(kSymbols, kUnits),
                                                   positional_encoding<float>(PositionalEncoding::kLearned));
  for (int block = 0; block < 2; ++block) {
    layers.push_back(
        residual<float>(trainer::layers<float>(layer_normalization<float>(), attention<float>({.heads = 4}))));
  }
  layers.push_back(layer_normalization<float>());
  layers.push_back(global_average_pool<float>());
  layers.push_back(dense<float>(2));
  return {{kLength}, std::move(layers)};
}

int main() try {
  const auto training = sequences(4000, /*seed=*/1), test = sequences(1000, /*seed=*/2);
  WorldOptions job;
  job.replicas = 2;
  MirroredStrategy strategy(job);
  std::atomic<bool> learned = false;
  strategy.run([&](Communicator& replica) {
    TrainerOptions options;
    options.global_batch = 64;
    options.epochs = 8;
    options.optimizer.kind = OptimizerKind::kAdam;
    options.learning_rate.base = 0.003;
    options.monitor = {.value = "accuracy", .higher_is_better = true, .patience = 3};
    Trainer<float> trainer(replica, transformer(), training, test, options, cross_entropy_loss<float>(),
                           {accuracy<float>(), confusion_matrix<float>()});
    const EpochReport report = trainer.fit();
    learned = report.test->metric("accuracy") > 0.9;
    if (replica.rank() != 0) return;
    std::printf("after %lld epochs %.1f %% are right\n", static_cast<long long>(report.epoch),
                100 * report.test->metric("accuracy"));
    const std::vector<double>& matrix = find_metric(report.test->metrics, "confusion_matrix")->sums;
    for (std::size_t row = 0; row < 2; ++row) {
      std::printf("%zu comes first: %3.0f taken for 0, %3.0f for 1\n", row, matrix[2 * row], matrix[2 * row + 1]);
    }
  });
  return learned ? 0 : 1;
} catch (const std::exception& error) {
  std::fprintf(stderr, "sequence_classifier: %s\n", error.what());
  return 1;
}
