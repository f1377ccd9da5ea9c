// SPDX-License-Identifier: Apache-2.0
#include "farandole/trainer/parameters.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <thread>
#include <utility>

#include "farandole/core/error.h"
#include "farandole/trainer/checkpoint.h"
#include "model_tensors.h"
#include "trainer_files.h"

namespace farandole::trainer {
namespace {

using farandole::test::message_of;
using test::contains;
using test::TemporaryDirectory;
using testing::ElementsAreArray;

template <class Scalar>
Model<Scalar> model_with(std::int64_t units) {
  LayerList<Scalar> layers;
  layers.push_back(dense<Scalar>(units));
  layers.push_back(batch_normalization<Scalar>());
  layers.push_back(dense<Scalar>(2));
  return Model<Scalar>({3}, std::move(layers));
}

/// A model whose parameters and statistics are not the initial ones.
Model<float> trained() {
  Model<float> model = model_with<float>(4);
  model.initialize(7);
  for (float& statistic : model.statistics().host()) statistic += 0.25F;
  return model;
}

template <class Scalar>
std::vector<Scalar> values_of(Model<Scalar>& model) {
  std::vector<Scalar> values(model.parameters().host().begin(), model.parameters().host().end());
  values.insert(values.end(), model.statistics().host().begin(), model.statistics().host().end());
  return values;
}

class Parameters : public testing::Test {
 protected:
  std::filesystem::path file() const { return directory_.path() / "model.safetensors"; }
  /// The error of loading `from` into a model, which stays as it was.
  template <class Kind>
  static std::string refusal(const std::filesystem::path& from, Model<float> model) {
    const std::vector<float> before = values_of(model);
    std::string message = message_of<Kind>([&] { load_parameters(from, model); });
    EXPECT_EQ(values_of(model), before);
    return message;
  }

  TemporaryDirectory directory_;
};

TEST_F(Parameters, AreReadBackAlsoInAnotherPrecision) {
  Model<float> model = trained(), same = model_with<float>(4);
  save_parameters(model, file());
  load_parameters(file(), same);
  EXPECT_EQ(values_of(same), values_of(model));
  Model<double> wide = model_with<double>(4);
  load_parameters(file(), wide);
  EXPECT_THAT(values_of(wide), ElementsAreArray(values_of(model)));
  save_parameters(wide, file());
  same.initialize(1);
  load_parameters(file(), same);
  EXPECT_EQ(values_of(same), values_of(model));
}

TEST_F(Parameters, OfAnotherModelAreRefused) {
  Model<float> model = trained();
  save_parameters(model, file());
  EXPECT_TRUE(contains(refusal<InvalidArgument>(file(), model_with<float>(5)),
                       "this model has '0.dense.weight' of shape 3x5, and the file '0.dense.weight' of shape 3x4"));
  LayerList<float> layers;
  layers.push_back(dense<float>(4));
  EXPECT_TRUE(contains(refusal<InvalidArgument>(file(), Model<float>({3}, std::move(layers))), "this model has no '"));
  LayerList<float> more;
  more.push_back(dense<float>(4));
  more.push_back(batch_normalization<float>());
  more.push_back(dense<float>(2));
  more.push_back(dense<float>(2));
  EXPECT_TRUE(contains(refusal<InvalidArgument>(file(), Model<float>({3}, std::move(more))),
                       "this model has '3.dense.weight' of shape 2x2, and the file has no such tensor"));
}

TEST_F(Parameters, OfACheckpointNeedNoOptimizer) {
  Model<float> model = trained(), same = model_with<float>(4);
  std::vector<float> momentum(3, 1);
  const auto checkpoints = directory_.path() / "checkpoints";
  {
    CheckpointStore store(checkpoints, 3);
    store.prepare();
    const std::vector<CheckpointTensor> optimizer{{"momentum", {3}, std::span(momentum)}};
    store.save({.training_step = 5}, ModelOnHost(model).tensors(), optimizer);
  }
  load_parameters(checkpoints, same);
  EXPECT_EQ(values_of(same), values_of(model));
  same.initialize(1);
  load_parameters(checkpoints / "step-000005", same);
  EXPECT_EQ(values_of(same), values_of(model));

  const auto altered = checkpoints / "step-000005" / "model.safetensors";
  std::string bytes = test::read_bytes(altered);
  bytes.back() ^= 1;
  test::write_bytes(altered, bytes);
  EXPECT_TRUE(contains(refusal<DataError>(checkpoints, model_with<float>(4)), "is altered: its checksum is"));
}

TEST_F(Parameters, OfTheMovingAverage) {
  Model<float> model = trained(), same = model_with<float>(4), average = model_with<float>(4);
  average.initialize(8);
  const auto checkpoints = directory_.path() / "checkpoints";
  CheckpointStore store(checkpoints, 3);
  store.prepare();
  std::vector<CheckpointTensor> optimizer;
  append_tensors(optimizer, model.parameter_layout(), average.parameters(), ".momentum");
  store.save({.training_step = 1}, ModelOnHost(model).tensors(), optimizer);
  const auto load_average = [&] { load_parameters(checkpoints, same, {.average = true}); };
  same.initialize(1);
  const std::vector<float> before = values_of(same);
  EXPECT_TRUE(contains(message_of<InvalidArgument>(load_average), "has no moving average"));
  EXPECT_EQ(values_of(same), before);

  append_tensors(optimizer, model.parameter_layout(), average.parameters(), ".ema");
  store.save({.training_step = 2}, ModelOnHost(model).tensors(), optimizer);
  load_average();
  EXPECT_TRUE(std::ranges::equal(same.parameters().host(), average.parameters().host()));
  EXPECT_TRUE(std::ranges::equal(same.statistics().host(), model.statistics().host()));
  Model<double> wide = model_with<double>(4);
  load_parameters(checkpoints / "step-000002", wide, {.average = true});
  EXPECT_TRUE(std::ranges::equal(wide.parameters().host(), average.parameters().host()));

  const auto altered = checkpoints / "step-000002" / "optimizer.safetensors";
  std::string bytes = test::read_bytes(altered);
  bytes.back() ^= 1;
  test::write_bytes(altered, bytes);
  EXPECT_TRUE(contains(message_of<DataError>(load_average), "is altered: its checksum is"));
  save_parameters(model, file());
  EXPECT_TRUE(contains(message_of<InvalidArgument>([&] { load_parameters(file(), same, {.average = true}); }),
                       "only a checkpoint has the moving average"));
}

TEST_F(Parameters, MissingAndCutFilesAreNamed) {
  EXPECT_TRUE(contains(refusal<DataError>(file(), model_with<float>(4)), file().string()));
  EXPECT_TRUE(
      contains(refusal<InvalidArgument>(directory_.path(), model_with<float>(4)), "holds no complete checkpoint"));
  Model<float> model = trained();
  save_parameters(model, file());
  const std::string bytes = test::read_bytes(file());
  for (std::size_t length = 0; length < bytes.size(); length += 7) {
    test::write_bytes(file(), bytes.substr(0, length));
    EXPECT_TRUE(contains(refusal<DataError>(file(), model_with<float>(4)), "model.safetensors"));
  }
}

TEST_F(Parameters, AFailedSaveKeepsTheOldFile) {
  Model<float> model = trained();
  save_parameters(model, file());
  const std::string before = test::read_bytes(file());
  EXPECT_THROW(save_parameters(model, directory_.path() / "nowhere" / "model.safetensors"), DataError);
  EXPECT_THROW(save_parameters(model, directory_.path()), DataError) << "a directory is no file";
  EXPECT_EQ(test::read_bytes(file()), before);
  const auto entries = std::filesystem::directory_iterator(directory_.path());
  EXPECT_EQ(std::distance(begin(entries), end(entries)), 1) << "nothing is left behind";
}

TEST_F(Parameters, MayBeSavedByThreadsToTheSameFile) {
  constexpr int kThreads = 4, kSaves = 10;
  std::vector<Model<float>> models;
  for (int i = 0; i < kThreads; ++i) models.push_back(trained());
  std::barrier together(kThreads);
  std::atomic<int> saved{0};
  std::vector<std::jthread> threads;
  for (Model<float>& model : models) {
    threads.emplace_back([&] {
      for (int i = 0; i < kSaves; ++i) {
        together.arrive_and_wait();
        EXPECT_NO_THROW(save_parameters(model, file()));
        ++saved;
      }
    });
  }
  threads.clear();
  EXPECT_EQ(saved, kThreads * kSaves);
  Model<float> same = model_with<float>(4);
  load_parameters(file(), same);
  EXPECT_EQ(values_of(same), values_of(models[0]));
  const auto entries = std::filesystem::directory_iterator(directory_.path());
  EXPECT_EQ(std::distance(begin(entries), end(entries)), 1) << "nothing is left behind";
}

}  // namespace
}  // namespace farandole::trainer
