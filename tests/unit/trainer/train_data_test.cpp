// SPDX-License-Identifier: Apache-2.0
#include "train_data.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <set>
#include <span>
#include <string>
#include <vector>

namespace farandole::trainer {
namespace {

/// The inputs of all samples.
std::set<std::vector<float>> samples_of(const Dataset& data) {
  std::vector<std::uint32_t> all(static_cast<std::size_t>(data.size()));
  std::iota(all.begin(), all.end(), 0U);
  Batch<float> batch;
  data.gather(all, batch);
  const std::span<const float> inputs = batch.inputs.host();
  const std::size_t elements = inputs.size() / all.size();
  std::set<std::vector<float>> samples;
  for (std::size_t i = 0; i < inputs.size(); i += elements) {
    const auto sample = inputs.subspan(i, elements);
    samples.emplace(sample.begin(), sample.end());
  }
  return samples;
}

TEST(TrainData, SyntheticTestSetHasNoSampleOfTheTraining) {
  for (const std::string kind : {"fashion-mnist", "cifar10", "images", "text"}) {
    DataCommand command;
    command.kind = kind;
    command.synthetic = true;
    command.samples = 200;
    command.image_size = 8;
    command.text_length = 16;
    const TrainingData data = load_data(command);
    EXPECT_EQ(data.test->size(), 20);
    EXPECT_EQ(data.test->shape(), data.training->shape());
    const std::set<std::vector<float>> training = samples_of(*data.training), test = samples_of(*data.test);
    EXPECT_EQ(test.size(), 20);
    EXPECT_TRUE(std::ranges::none_of(test, [&](const auto& sample) { return training.contains(sample); })) << kind;
  }
}

}  // namespace
}  // namespace farandole::trainer
