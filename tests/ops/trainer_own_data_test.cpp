// SPDX-License-Identifier: Apache-2.0
// Data sets of the program that break the rules of Dataset.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <utility>

#include "altered_dataset.h"
#include "farandole/core/error.h"
#include "small_training.h"

namespace farandole::trainer {
namespace {

using test::AlteredDataset;
using test::Data;
using test::kClasses;
using test::kImage;
using test::mlp;
using test::options_for;
using testing::AllOf;
using testing::Each;
using testing::HasSubstr;
using testing::Not;

using FloatBatch = Batch<float>;
using Sample = std::uint32_t;

/// Changes batches that have the sample.
AlteredDataset::Alter where(Sample sample, std::function<void(std::size_t place, FloatBatch&)> alter) {
  return [=](std::span<const Sample> samples, FloatBatch& batch) {
    const auto found = std::find(samples.begin(), samples.end(), sample);
    if (found != samples.end()) alter(static_cast<std::size_t>(found - samples.begin()), batch);
  };
}

const AlteredDataset::Alter kDropSample = where(100, [](std::size_t, FloatBatch& batch) {
  const std::int64_t count = batch.inputs.samples() - 1;
  batch.inputs.resize(count, kImage);
  batch.labels.resize(static_cast<std::size_t>(count));
});

struct Task {
  AlteredDataset::Alter training = [](auto, FloatBatch&) {}, test = training;
  TrainerOptions options = options_for(8);  // an epoch
  LossPointer<double> loss = nullptr;
};

/// Trains, evaluates after an epoch, evaluates the test data and predicts them.
void run(Communicator& replica, const Task& task) {
  const Data data;
  const auto test = std::make_shared<const AlteredDataset>(data.test, task.test);
  Trainer<double> trainer(replica, Model<double>(kImage, mlp<double>()),
                          std::make_shared<const AlteredDataset>(data.training, task.training), test, task.options,
                          task.loss);
  trainer.fit();
  trainer.predict(*test);
}

TEST(OwnDataset, ThatKeepsTheRulesTrains) {
  EXPECT_THAT(test::errors_of(2, [](Communicator& replica) { run(replica, {}); }), Each(""));
}

TEST(OwnDataset, ThatGivesTooFewSamplesIsNamedInTraining) {
  for (const int threads : {0, 2}) {
    Task task{.training = kDropSample};
    task.options.data.threads = threads;
    EXPECT_THAT(test::errors_of(2, [&](Communicator& replica) { run(replica, task); }),
                Each(AllOf(HasSubstr("the training data: gather was asked for 16 samples and gave 15 inputs of shape "
                                     "8x8x1; expected 16 of shape 8x8x1, as Dataset::shape says"))));
  }
}

TEST(OwnDataset, ThatGivesTooFewSamplesIsNamedInAnEvaluationAndAPrediction) {
  EXPECT_THAT(test::errors_of(2, [](Communicator& replica) { run(replica, {.test = kDropSample}); }),
              Each(HasSubstr("the test data: gather was asked for 20 samples and gave 19 inputs")));
  const auto with_trainer = [](const std::function<void(Trainer<double>&, const Dataset&)>& use) {
    return test::errors_of(2, [&](Communicator& replica) {
      Trainer<double> trainer(replica, Model<double>(kImage, mlp<double>()), Data().training, nullptr, options_for(1));
      use(trainer, AlteredDataset(Data().test, kDropSample));
    });
  };
  EXPECT_THAT(with_trainer([](auto& trainer, const Dataset& data) { trainer.evaluate(data); }),
              Each(HasSubstr("the data to evaluate: gather was asked for 20 samples and gave 19 inputs")));
  EXPECT_THAT(with_trainer([](auto& trainer, const Dataset& data) { trainer.predict(data); }),
              Each(HasSubstr("the data to predict: gather was asked for")));
}

TEST(OwnDataset, OfARanksOwnShardIsNamedWithTheRank) {
  Task task{.training = kDropSample};
  task.options.data.own_shards = true;
  EXPECT_THAT(test::errors_of(1, [&](Communicator& replica) { run(replica, task); }),
              Each(HasSubstr("rank 0's own shard: gather was asked for")));
  task = {.test = kDropSample};
  task.options.data.own_shards = true;
  EXPECT_THAT(test::errors_of(1, [&](Communicator& replica) { run(replica, task); }),
              Each(HasSubstr("rank 0's own shard of the test data: gather was asked for")));
}

TEST(OwnDataset, MayLeaveOutLabelsInAPrediction) {
  const AlteredDataset unlabelled(Data().test, [](auto, FloatBatch& batch) { batch.labels.clear(); });
  EXPECT_THAT(test::errors_of(2,
                              [&](Communicator& replica) {
                                Trainer<double> trainer(replica, Model<double>(kImage, mlp<double>()), Data().training,
                                                        nullptr, options_for(1));
                                EXPECT_EQ(trainer.predict(unlabelled).samples(), unlabelled.size());
                              }),
              Each(""));
}

TEST(OwnDataset, WithFewerWeightsOrWrongOnesIsNamed) {
  Task task;
  task.training = [](std::span<const Sample> samples, FloatBatch& batch) {
    batch.weights.assign(samples.size() / 2, 1.0F);
  };
  EXPECT_THAT(test::errors_of(2, [&](Communicator& replica) { run(replica, task); }),
              Each(HasSubstr("the training data: gather was asked for 16 samples and gave 8 weights; expected 16")));
  task = {.test = where(77, [](std::size_t place, FloatBatch& batch) {
            batch.weights.assign(batch.labels.size(), 1.0F);
            batch.weights[place] = -1;
          })};
  EXPECT_THAT(test::errors_of(2, [&](Communicator& replica) { run(replica, task); }),
              Each(HasSubstr("sample 77 of the test data has weight -1; it must be a finite number, at least 0")));
}

/// A loss of the program, which reads the targets without a check.
class Reading final : public Loss<double> {
 public:
  std::string name() const override { return "reading"; }
  void evaluate(const Execution&, const Tensor<double>& outputs, const BatchView<double>& batch, double,
                Tensor<double>* gradient, VectorView<double> sum) const override {
    if (gradient != nullptr) gradient->resize(outputs.samples(), outputs.shape());
    for (std::int64_t i = 0; i < outputs.size(); ++i) {
      if (gradient != nullptr) gradient->data()[i] = 0;
      sum.host()[0] += batch.targets.data()[i];
    }
  }
};

TEST(OwnDataset, WithoutItsTargetsIsNamedBeforeAnOwnLossReadsThem) {
  const auto with_targets = memory_dataset(
      {.shape = {3}, .inputs = std::vector<float>(3 * 40), .targets = std::vector<float>(2 * 40), .target_shape = {2}});
  const auto data = std::make_shared<const AlteredDataset>(
      with_targets, [](auto, FloatBatch& batch) { batch.targets = Tensor<float>(); });
  EXPECT_THAT(test::errors_of(2,
                              [&](Communicator& replica) {
                                Model<double> model({3}, test::layers<double>({[] { return dense<double>(2); }}));
                                Trainer<double>(replica, std::move(model), data, nullptr, options_for(3),
                                                std::make_shared<Reading>())
                                    .fit();
                              }),
              Each(HasSubstr("the training data: gather was asked for 16 samples and gave no targets; expected 16 of "
                             "shape 2, as Dataset::target_shape says")));
}

TEST(OwnDataset, WithALabelThatIsNoClassIsNamedByTheIndexOfTheSample) {
  const auto alter = where(77, [](std::size_t place, FloatBatch& batch) { batch.labels[place] = 9; });
  const std::string problem = " has label 9, expected 0 to 3";
  EXPECT_THAT(test::errors_of(2, [&](Communicator& replica) { run(replica, {.training = alter}); }),
              Each(AllOf(HasSubstr("the loss cross_entropy: sample 77 of the training data" + problem),
                         Not(HasSubstr("of the batch")))));
  EXPECT_THAT(test::errors_of(2, [&](Communicator& replica) { run(replica, {.test = alter}); }),
              Each(HasSubstr("the loss cross_entropy: sample 77 of the test data" + problem)));
}

/// A loss of the program, for which every output is right, whatever the label.
class Content final : public Loss<double> {
 public:
  std::string name() const override { return "content"; }
  void evaluate(const Execution&, const Tensor<double>& outputs, const BatchView<double>&, double,
                Tensor<double>* gradient, VectorView<double>) const override {
    if (gradient == nullptr) return;
    gradient->resize(outputs.samples(), outputs.shape());
    std::fill(gradient->host().begin(), gradient->host().end(), 0.0);
  }
};

TEST(OwnDataset, WithALabelThatIsNoClassIsNamedByAMetricToo) {
  const auto alter = where(77, [](std::size_t place, FloatBatch& batch) { batch.labels[place] = -1; });
  const Task task{.training = alter, .loss = std::make_shared<Content>()};
  EXPECT_THAT(test::errors_of(2, [&](Communicator& replica) { run(replica, task); }),
              Each(HasSubstr("the metric accuracy: sample 77 of the training data has label -1, expected 0 to 3")));
}

}  // namespace
}  // namespace farandole::trainer
