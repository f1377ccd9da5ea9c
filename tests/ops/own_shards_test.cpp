// SPDX-License-Identifier: Apache-2.0
// Ranks with data of their own train as one process that has all data.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <utility>

#include "farandole/core/error.h"
#include "message_of.h"
#include "small_training.h"
#include "trainer_files.h"

namespace farandole::trainer {
namespace {

using farandole::test::message_of;
using test::kClasses;
using test::kImage;
using test::kSeed;
using test::mlp;
using test::options_for;
using testing::Each;
using testing::HasSubstr;

using Indices = std::vector<std::uint32_t>;

/// A data set that remembers which samples were used in training.
class Remembered final : public Dataset {
 public:
  explicit Remembered(std::shared_ptr<const Dataset> data) : data_(std::move(data)) {}
  std::int64_t size() const override { return data_->size(); }
  const Shape& shape() const override { return data_->shape(); }
  std::int32_t classes() const override { return data_->classes(); }
  void gather(std::span<const std::uint32_t> samples, Batch<float>& batch) const override {
    data_->gather(samples, batch);
  }
  void gather_for_training(std::span<const std::uint32_t> samples, const TrainingDraw&,
                           Batch<double>& batch) const override {
    steps_.emplace_back(samples.begin(), samples.end());
    data_->gather(samples, batch);
  }
  using Dataset::gather_for_training;

  mutable std::vector<Indices> steps_;  // with one thread: in the order of the training steps

 private:
  const std::shared_ptr<const Dataset> data_;
};

const std::vector<std::int64_t> kSizes{23, 9, 40};

std::shared_ptr<const Dataset> shard(int rank) {
  return synthetic_dataset(kSizes[static_cast<std::size_t>(rank)], kImage, kClasses,
                           kSeed + static_cast<std::uint64_t>(rank));
}

TrainerOptions with_shards(std::int64_t steps) {
  TrainerOptions options = options_for(steps);
  options.global_batch = 10;  // 72 samples: 8 training steps in an epoch
  options.data.own_shards = true;
  return options;
}

using Parameters = std::vector<double>;

Parameters copy(std::span<const double> values) {
  return {values.begin(), values.end()};
}

/// Trains one model in a loop, with all ranks' samples of each training step in one batch.
Parameters train_alone(const std::vector<std::vector<Indices>>& steps_of_ranks, const TrainerOptions& options) {
  Model<double> model(kImage, mlp<double>());
  model.initialize(options.seed);
  Optimizer<double> optimizer(options.optimizer, model.parameter_layout(), model.parameters().size());
  const auto loss = cross_entropy_loss<double>();
  const Pass pass{.training = true, .seed = options.seed};
  for (std::size_t step = 0; step < steps_of_ranks[0].size(); ++step) {
    Batch<double> all;
    std::vector<double> inputs;
    for (int rank = 0; rank < 3; ++rank) {
      Batch<double> part;
      shard(rank)->gather(steps_of_ranks[static_cast<std::size_t>(rank)][step], part);
      inputs.insert(inputs.end(), part.inputs.host().begin(), part.inputs.host().end());
      all.labels.insert(all.labels.end(), part.labels.begin(), part.labels.end());
    }
    all.inputs.resize(static_cast<std::int64_t>(all.labels.size()), kImage);
    std::copy(inputs.begin(), inputs.end(), all.inputs.data());
    Tensor<double> gradient;
    loss_sum(*loss, model.execution(), model.forward(pass, all.inputs), all,
             1.0 / static_cast<double>(all.labels.size()), &gradient);
    model.backward(pass, all.inputs, gradient);
    optimizer.update(model.execution(), model.parameters(), model.gradients(),
                     {.learning_rate = options.learning_rate.base, .training_step = static_cast<std::int64_t>(step)});
  }
  return copy(model.parameters().host());
}

TEST(OwnShards, OfDifferentSizesTrainAsOneProcessWithTheSameBatches) {
  std::vector<std::vector<Indices>> steps(3);
  std::vector<Parameters> parameters(3);
  std::vector<double> last_losses(3);
  const TrainerOptions options = with_shards(24);
  run_replicas(3, [&](Communicator& replica) {
    const auto rank = static_cast<std::size_t>(replica.rank());
    const auto data = std::make_shared<const Remembered>(shard(replica.rank()));
    TrainerOptions mine = options;
    mine.on_step = [&](const StepReport& report) {
      EXPECT_EQ(report.steps_per_epoch, 8);
      last_losses[rank] = report.loss;
    };
    Trainer<double> trainer(replica, Model<double>(kImage, mlp<double>()), data, nullptr, mine);
    trainer.fit();
    parameters[rank] = copy(trainer.model().parameters().host());
    steps[rank] = data->steps_;
  });
  for (const auto& of_rank : steps) ASSERT_EQ(of_rank.size(), 24U);
  EXPECT_EQ(steps[0][0].size() + steps[1][0].size() + steps[2][0].size(), 8U) << "uneven: 2, 1 and 5";
  EXPECT_THAT(parameters, Each(parameters[0]));
  EXPECT_THAT(last_losses, Each(last_losses[0]));
  EXPECT_THAT(parameters[0], testing::Pointwise(testing::DoubleNear(1e-11), train_alone(steps, options)));
}

TEST(OwnShards, AreEvaluatedTogetherAndPredictedApart) {
  std::vector<double> together(3), alone(3);
  run_replicas(3, [&](Communicator& replica) {
    const auto rank = static_cast<std::size_t>(replica.rank());
    TrainerOptions options = with_shards(8);
    options.evaluation_batch = 7;
    const auto mine = shard(replica.rank());
    Trainer<double> trainer(replica, Model<double>(kImage, mlp<double>()), mine, mine, options);
    EXPECT_TRUE(trainer.fit().test) << "the test data are shards, too";
    together[rank] = trainer.evaluate(*mine).loss;
    const Parameters predicted = copy(trainer.predict(*mine).host());
    double sum = 0;
    for (int other = 0; other < 3; ++other) {
      Indices all(static_cast<std::size_t>(kSizes[static_cast<std::size_t>(other)]));
      for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::uint32_t>(i);
      Batch<double> batch;
      shard(other)->gather(all, batch);
      const Tensor<double>& outputs = trainer.model().forward({}, batch.inputs);
      for (std::size_t i = 0; i < all.size(); ++i) {
        const double* const row = outputs.data() + static_cast<std::int64_t>(i) * kClasses;
        double exponentials = 0;
        for (std::int32_t c = 0; c < kClasses; ++c) exponentials += std::exp(row[c]);
        sum += std::log(exponentials) - row[batch.labels[i]];
      }
      if (other != replica.rank()) continue;
      EXPECT_THAT(predicted, testing::Pointwise(testing::DoubleNear(1e-12), copy(outputs.host())));
    }
    alone[rank] = sum / 72;
  });
  EXPECT_THAT(together, Each(together[0]));
  EXPECT_NEAR(together[0], alone[0], 1e-12);
}

/// Errors of class `Kind` of the ranks' trainers.
template <class Kind>
std::vector<std::string> errors_of(int replicas, const std::function<void(TrainerOptions&)>& alter,
                                   const std::function<std::shared_ptr<const Dataset>(int)>& data = shard) {
  std::vector<std::string> messages(static_cast<std::size_t>(replicas));
  run_replicas(replicas, [&](Communicator& replica) {
    TrainerOptions options = with_shards(3);
    alter(options);
    messages[static_cast<std::size_t>(replica.rank())] = message_of<Kind>([&] {
      Trainer<double>(replica, Model<double>(kImage, mlp<double>()), data(replica.rank()), nullptr, options).fit();
    });
    replica.barrier();  // the communicator is still usable
  });
  return messages;
}

TEST(OwnShards, AreRefusedWhereTheyCannotWork) {
  EXPECT_THAT(errors_of<Unsupported>(2, [](TrainerOptions& options) { options.deterministic = true; }),
              Each(HasSubstr("own shards are not available in deterministic mode, because")));
  EXPECT_THAT(errors_of<InvalidArgument>(2, [](TrainerOptions& options) { options.data.drop_last = true; }),
              Each(HasSubstr("data.drop_last has no effect with data.own_shards")));
  EXPECT_THAT(errors_of<InvalidArgument>(3,
                                         [](TrainerOptions& options) {
                                           options.synchronized_layers = true;
                                           options.accumulate = 2;
                                         }),
              Each(HasSubstr("the smallest shard has 9 samples for 8 training steps")));
  const auto wide = [](int rank) { return synthetic_dataset(20, kImage, kClasses + rank, kSeed); };
  EXPECT_THAT(errors_of<Mismatch>(
                  2, [](TrainerOptions&) {}, wide),
              Each(HasSubstr("the number of classes of the training data is 4 on rank 0")));
}

TEST(OwnShards, OfOtherSizesAreNoResume) {
  const test::TemporaryDirectory directory;
  const auto keep = [&](TrainerOptions& options) {
    options.checkpoints.directory = directory.path();
    options.checkpoints.resume = true;
  };
  run_replicas(3, [&](Communicator& replica) {
    TrainerOptions options = with_shards(5);
    options.checkpoints.directory = directory.path();
    Trainer<double>(replica, Model<double>(kImage, mlp<double>()), shard(replica.rank()), nullptr, options).fit();
  });
  // The same number of samples on two ranks, and in other shards.
  const auto moved = [](std::vector<std::int64_t> sizes) {
    return [sizes = std::move(sizes)](int rank) {
      return synthetic_dataset(sizes[static_cast<std::size_t>(rank)], kImage, kClasses, kSeed);
    };
  };
  EXPECT_THAT(errors_of<InvalidArgument>(2, keep, moved({32, 40})), Each(HasSubstr("own shards")));
  EXPECT_THAT(errors_of<InvalidArgument>(3, keep, moved({9, 23, 40})), Each(HasSubstr("own shards")));
}

/// Samples whose classes have these names.
std::shared_ptr<const Dataset> named(const std::vector<std::string>& names) {
  return memory_dataset({.shape = kImage,
                         .inputs = std::vector<float>(64 * 64, 1.0F),
                         .labels = std::vector<std::int32_t>(64, 1),
                         .classes = kClasses,
                         .class_names = names});
}

TEST(ClassNames, AreComparedAcrossShards) {
  run_replicas(2, [&](Communicator& replica) {
    const auto mine = named({"ant", "bee", replica.rank() == 0 ? "cat" : "cow", "dog"});
    EXPECT_THAT(message_of<Mismatch>([&] {
                  Trainer<double>(replica, Model<double>(kImage, mlp<double>()), mine, nullptr, with_shards(3));
                }),
                HasSubstr("the names of the classes of the training data"));
  });
}

TEST(ClassNames, AreComparedBetweenTrainingAndTest) {
  const auto training = named({"ant", "bee", "cat", "dog"}), test = named({"bee", "ant", "cat", "dog"});
  run_replicas(2, [&](Communicator& replica) {
    const auto model = [] { return Model<double>(kImage, mlp<double>()); };
    EXPECT_THAT(message_of<InvalidArgument>([&] { Trainer<double>(replica, model(), training, test, options_for(3)); }),
                HasSubstr("class 0 is 'bee' in the test data, but 'ant' in the training data"));
    Trainer<double> trainer(replica, model(), training, training, options_for(3));
    EXPECT_THAT(message_of<InvalidArgument>([&] { trainer.evaluate(*test); }),
                HasSubstr("class 0 is 'bee' in the data to evaluate"));
    EXPECT_NO_THROW(trainer.evaluate(*synthetic_dataset(20, kImage, kClasses, kSeed))) << "classes without names";
  });
}

}  // namespace
}  // namespace farandole::trainer
