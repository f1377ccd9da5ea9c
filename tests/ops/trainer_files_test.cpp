// SPDX-License-Identifier: Apache-2.0
// Trainings with data of files.
#include <gtest/gtest.h>

#include <numeric>

#include "farandole/trainer/data_files.h"
#include "npy_files.h"
#include "small_training.h"
#include "trainer_files.h"

namespace farandole::trainer {
namespace {

using test::layers;
using test::options_for;

/// Parameters and losses after a training.
struct Trained {
  double training_loss = 0, test_loss = 0;
  std::vector<double> parameters;

  bool operator==(const Trained&) const = default;
};

/// A model of text that looks at each symbol alone: {length} to {length, symbols}.
Model<double> bigrams(const TextData& data, std::int64_t length) {
  const std::int64_t symbols = data.alphabet.size();
  return Model<double>({length}, layers<double>({[=] { return embedding<double>(symbols, 8); },
                                                 [=] {
                                                   return reshape<double>({length, 1, 8});
                                                 },
                                                 [=] { return conv2d<double>({.channels = symbols, .kernel = 1}); },
                                                 [=] {
                                                   return reshape<double>({length, symbols});
                                                 }}));
}

Trained train(int replicas, const TextData& data, std::int64_t length, const TrainerOptions& options) {
  Trained trained;
  run_replicas(replicas, [&](Communicator& replica) {
    Trainer<double> trainer(replica, bigrams(data, length), data.training, data.test, options);
    trainer.fit();
    const double training_loss = trainer.evaluate(*data.training).loss, test_loss = trainer.evaluate(*data.test).loss;
    const auto parameters = trainer.model().parameters().host();
    if (replica.rank() == 0) trained = {training_loss, test_loss, {parameters.begin(), parameters.end()}};
  });
  return trained;
}

/// "abcdabcd…", in which each symbol tells the next one.
TextData periodic(std::int64_t length) {
  std::string text;
  for (int i = 0; i < 400; ++i) text += static_cast<char>('a' + i % 4);
  return text_dataset(text, {.length = length, .stride = 3});
}

TEST(TrainingOnText, LearnsTheNextSymbolOfEachPosition) {
  TrainerOptions options = options_for(60);
  options.learning_rate.base = 0.05;
  options.optimizer.kind = OptimizerKind::kAdam;
  const Trained trained = train(2, periodic(5), 5, options);
  EXPECT_LT(trained.training_loss, 0.05);
  EXPECT_LT(trained.test_loss, 0.05);
}

TEST(TrainingOnText, ReplicasGiveTheSameBitsInDeterministicMode) {
  TrainerOptions options = options_for(5);
  options.deterministic = true;
  const Trained expected = train(1, periodic(4), 4, options);
  EXPECT_EQ(train(2, periodic(4), 4, options), expected);
}

TEST(TrainingOnFiles, MappedArraysTrainAsMemoryDoes) {
  const test::TemporaryDirectory directory;
  const auto write = [&](const std::string& name, const std::string& bytes) {
    test::write_bytes(directory.path() / name, bytes);
    return directory.path() / name;
  };
  Samples samples{.shape = {2, 2}, .normalization = {{.mean = 0.5, .deviation = 0.25}}, .classes = 3};
  std::vector<std::uint8_t> bytes(150 * 4);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::uint8_t>(i * i % 251);
  for (std::int32_t i = 0; i < 150; ++i) samples.labels.push_back(i * i % 3);
  samples.inputs = bytes;
  const auto mapped = memory_mapped_dataset({.inputs = write("x.npy", test::npy_array("|u1", "(150, 2, 2)", bytes)),
                                             .normalization = samples.normalization,
                                             .labels = write("y.npy", test::npy_array("<i4", "(150,)", samples.labels)),
                                             .classes = 3});
  const auto train_on = [&](const std::shared_ptr<const Dataset>& data) {
    std::vector<double> parameters;
    run_replicas(2, [&](Communicator& replica) {
      Trainer<double> trainer(replica, Model<double>({2, 2}, layers<double>({[] { return dense<double>(3); }})), data,
                              nullptr, options_for(4));
      trainer.fit();
      const auto values = trainer.model().parameters().host();
      if (replica.rank() == 0) parameters.assign(values.begin(), values.end());
    });
    return parameters;
  };
  EXPECT_EQ(train_on(mapped), train_on(memory_dataset(samples)));
}

}  // namespace
}  // namespace farandole::trainer
