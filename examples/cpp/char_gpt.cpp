// SPDX-License-Identifier: Apache-2.0
// A causal transformer learns to continue a text, character by character, on two replicas, and writes some text itself.
//
//   char_gpt [FILE]     a text in UTF-8; the default is the GPL, which Debian's package base-files ships
#include <atomic>
#include <cmath>
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "farandole/trainer/data_files.h"
#include "farandole/trainer/models.h"
#include "farandole/trainer/random.h"
#include "farandole/trainer/strategy.h"
#include "farandole/trainer/trainer.h"

using namespace farandole;
using namespace farandole::trainer;

constexpr std::int64_t kLength = 32;

/// Draws a symbol from the model's outputs (logits) at a position.
std::int32_t draw(std::span<const float> logits, double uniform) {
  constexpr float kTemperature = 0.7F;  // below 1: likely symbols become likelier
  std::vector<double> shares;
  double sum = 0;
  for (const float logit : logits) sum += shares.emplace_back(std::exp(logit / kTemperature));
  std::int32_t symbol = 0;
  for (double left = uniform * sum; symbol + 1 < static_cast<std::int32_t>(shares.size()); ++symbol) {
    left -= shares[static_cast<std::size_t>(symbol)];
    if (left < 0) break;
  }
  return symbol;
}

/// Continues `text` by `count` symbols: the model sees the last kLength ones, and the output at the last position tells
/// the next.
std::string continued(Model<float>& model, const Alphabet& alphabet, const std::string& text, int count) {
  const CounterRandom random(/*seed=*/1, /*stream=*/0);
  std::vector<std::int32_t> symbols = alphabet.encode(text);
  Tensor<float> window(1, {kLength});
  for (int i = 0; i < count; ++i) {
    std::copy(symbols.end() - kLength, symbols.end(), window.data());
    const std::span<const float> logits = model.forward({}, window).host().last(alphabet.size());
    symbols.push_back(draw(logits, random.uniform(static_cast<std::uint64_t>(i))));
  }
  return alphabet.decode(symbols);
}

int main(int argc, char** argv) try {
  const TextData text = text_file_dataset(argc > 1 ? argv[1] : "/usr/share/common-licenses/GPL-3",
                                          {.length = kLength, .stride = 8, .test_fraction = 0.1});
  WorldOptions job;
  job.replicas = 2;
  MirroredStrategy strategy(job);
  std::atomic<bool> learned = false;
  strategy.run([&](Communicator& replica) {
    TrainerOptions options;
    options.global_batch = 64;
    options.epochs = 6;
    options.optimizer.kind = OptimizerKind::kAdamW;
    options.optimizer.weight_decay = 0.01;
    options.learning_rate = {.base = 0.004, .schedule = LearningRateSchedule::kCosine, .warmup_steps = 20};
    options.clip_norm = 1;
    options.on_epoch = [&](const EpochReport& report) {
      if (replica.rank() != 0) return;
      std::printf("epoch %lld: test loss %.3f, right %.0f %%\n", static_cast<long long>(report.epoch),
                  report.test->loss, 100 * report.test->metric("accuracy"));
    };
    const std::int64_t symbols = text.alphabet.size();
    Model<float> model(
        {kLength},
        layers_of<float>("gpt", {.input = {kLength}, .vocabulary = symbols, .blocks = 2, .units = 48, .heads = 4}));
    Trainer<float> trainer(replica, std::move(model), text.training, text.test, options);
    const EpochReport report = trainer.fit();
    // Without knowledge of the text, the loss is the logarithm of the number of symbols.
    learned = report.test->loss < 0.6 * std::log(static_cast<double>(symbols));
    if (replica.rank() != 0) return;
    const std::string beginning = "The licenses for most software a";
    std::printf("%s\n", continued(trainer.model(), text.alphabet, beginning, 160).c_str());
  });
  return learned ? 0 : 1;
} catch (const std::exception& error) {
  std::fprintf(stderr, "char_gpt: %s\n", error.what());
  return 1;
}
