// SPDX-License-Identifier: Apache-2.0
#include "gathered_batch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "altered_dataset.h"
#include "farandole/trainer/augmentation.h"
#include "farandole/trainer/outputs.h"
#include "message_of.h"

namespace farandole::trainer {
namespace {

using farandole::test::message_of;
using test::AlteredDataset;
using testing::HasSubstr;
using FloatBatch = Batch<float>;

const std::vector<std::uint32_t> kAsked{5, 0, 3};

/// 6 samples with 2 labels each, a target and a weight.
std::shared_ptr<const Dataset> complete() {
  return memory_dataset({.shape = {2, 2},
                         .inputs = std::vector<float>(24),
                         .labels = std::vector<std::int32_t>(12),
                         .classes = 4,
                         .labels_per_sample = 2,
                         .targets = std::vector<float>(18),
                         .target_shape = {3},
                         .weights = std::vector<float>(6, 1)});
}

/// 6 samples without labels, targets and weights.
std::shared_ptr<const Dataset> plain() {
  return memory_dataset({.shape = {2, 2}, .inputs = std::vector<float>(24)});
}

void check(const Dataset& data, const std::function<void(FloatBatch&)>& alter) {
  FloatBatch batch;
  data.gather(kAsked, batch);
  alter(batch);
  check_gathered(data, "the test data", kAsked, batch);
}

std::string refusal(const Dataset& data, const std::function<void(FloatBatch&)>& alter) {
  return message_of<InvalidArgument>([&] { check(data, alter); });
}

TEST(GatheredBatch, IsAcceptedIfItIsAsTheDataSetDeclares) {
  const auto keep = [](FloatBatch&) {};
  EXPECT_NO_THROW(check(*complete(), keep));
  EXPECT_NO_THROW(check(*plain(), keep));
  EXPECT_NO_THROW(check(*complete(), [](FloatBatch& batch) { batch.weights.clear(); }));
  EXPECT_NO_THROW(check(*complete(), [](FloatBatch& batch) { batch.weights = {0, 1e30F, 2}; }));
}

TEST(GatheredBatch, OfOtherInputsIsRefused) {
  const std::string asked = "the test data: gather was asked for 3 samples and gave ";
  const std::string expected = "; expected 3 of shape 2x2, as Dataset::shape says";
  const auto resized = [](std::int64_t samples, const Shape& shape) {
    return [=](FloatBatch& batch) { batch.inputs.resize(samples, shape); };
  };
  EXPECT_EQ(refusal(*plain(), resized(2, {2, 2})), asked + "2 inputs of shape 2x2" + expected);
  EXPECT_EQ(refusal(*plain(), resized(4, {2, 2})), asked + "4 inputs of shape 2x2" + expected);
  EXPECT_EQ(refusal(*plain(), resized(3, {4})), asked + "3 inputs of shape 4" + expected);
  EXPECT_EQ(refusal(*plain(), resized(0, {})), asked + "no inputs" + expected);
}

TEST(GatheredBatch, OfOtherLabelsIsRefused) {
  EXPECT_THAT(refusal(*complete(), [](FloatBatch& batch) { batch.labels.resize(5); }),
              HasSubstr("gave 5 labels; expected 6, because Dataset::labels_per_sample is 2"));
  EXPECT_THAT(refusal(*complete(), [](FloatBatch& batch) { batch.labels.clear(); }), HasSubstr("gave 0 labels"));
  EXPECT_THAT(refusal(*plain(), [](FloatBatch& batch) { batch.labels.resize(3); }),
              HasSubstr("gave 3 labels; expected none, because Dataset::classes is 0"));
}

TEST(GatheredBatch, OfOtherTargetsIsRefused) {
  const std::string expected = "; expected 3 of shape 3, as Dataset::target_shape says";
  EXPECT_THAT(refusal(*complete(), [](FloatBatch& batch) { batch.targets.resize(0, {}); }),
              HasSubstr("gave no targets" + expected));
  EXPECT_THAT(refusal(*complete(), [](FloatBatch& batch) { batch.targets.resize(3, {2}); }),
              HasSubstr("gave 3 targets of shape 2" + expected));
  EXPECT_THAT(refusal(*plain(), [](FloatBatch& batch) { batch.targets.resize(3, {1}); }),
              HasSubstr("gave 3 targets of shape 1; expected none, because Dataset::target_shape is empty"));
}

TEST(GatheredBatch, OfWrongWeightsIsRefused) {
  EXPECT_THAT(refusal(*plain(),
                      [](FloatBatch& batch) {
                        batch.weights = {1, 1};
                      }),
              HasSubstr("gave 2 weights; expected 3, or none if every sample counts once"));
  for (const float wrong : {-1.0F, std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    EXPECT_THAT(
        refusal(*plain(),
                [&](FloatBatch& batch) {
                  batch.weights = {1, 1, wrong};
                }),
        testing::MatchesRegex("sample 3 of the test data has weight .*; it must be a finite number, at least 0"));
  }
}

TEST(GatheredBatch, OfProbabilitiesMayLackLabels) {
  const auto data = memory_dataset({.shape = {1},
                                    .inputs = std::vector<float>(6),
                                    .labels = std::vector<std::int32_t>(6),
                                    .classes = 2,
                                    .targets = std::vector<float>(12, 0.5F),
                                    .target_shape = {2},
                                    .targets_are_probabilities = true});
  EXPECT_NO_THROW(check(*data, [](FloatBatch& batch) { batch.labels.clear(); }));
  EXPECT_THAT(refusal(*data, [](FloatBatch& batch) { batch.labels.pop_back(); }), HasSubstr("gave 2 labels"));
}

// Data sets that contain others would otherwise read or write out of bounds.
TEST(GatheredBatch, OfAnInnerDataSetIsChecked) {
  const auto short_of_a_sample = std::make_shared<const AlteredDataset>(plain(), [](auto samples, FloatBatch& batch) {
    batch.inputs.resize(static_cast<std::int64_t>(samples.size()) - 1, {2, 2});
  });
  const auto long_by_a_sample = std::make_shared<const AlteredDataset>(plain(), [](auto samples, FloatBatch& batch) {
    batch.inputs.resize(static_cast<std::int64_t>(samples.size()) + 1, {2, 2});
  });
  const auto refusal_of = [](const Dataset& data) {
    FloatBatch batch;
    return message_of<InvalidArgument>([&] { data.gather_for_training(kAsked, {1, 0}, batch); });
  };
  EXPECT_THAT(refusal_of(*augmented(short_of_a_sample, {.mixup = 0.5})),
              HasSubstr("the data set inside augmented: gather was asked for 3 samples and gave 2 inputs"));
  EXPECT_THAT(refusal_of(*joined_inputs({plain(), long_by_a_sample})),
              HasSubstr("data set 1 of joined_inputs: gather was asked for 3 samples and gave 4 inputs"));
}

TEST(GatheredBatch, MixupTakesWeightsThatOnlyTheOtherSamplesHave) {
  int calls = 0;
  const auto data = std::make_shared<const AlteredDataset>(
      plain(), [&](auto samples, FloatBatch& batch) { batch.weights.assign(++calls == 2 ? samples.size() : 0, 0.0F); });
  FloatBatch batch;
  augmented(data, {.mixup = 0.5})->gather_for_training(kAsked, {1, 0}, batch);
  ASSERT_EQ(batch.weights.size(), kAsked.size());
  for (const float weight : batch.weights) EXPECT_LT(weight, 1);
}

}  // namespace
}  // namespace farandole::trainer
