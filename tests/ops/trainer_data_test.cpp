// SPDX-License-Identifier: Apache-2.0
// Trainings with augmented data, streams, threads that gather ahead, and incomplete batches left out.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <optional>
#include <utility>

#include "farandole/core/error.h"
#include "farandole/trainer/augmentation.h"
#include "farandole/trainer/stream.h"
#include "message_of.h"
#include "process_threads.h"
#include "small_training.h"
#include "trainer_files.h"

namespace farandole::trainer {
namespace {

using farandole::test::message_of;
using test::Data;
using test::kClasses;
using test::kImage;
using test::kSeed;
using test::Layers;
using test::layers;
using test::mlp;
using test::options_for;
using testing::Each;
using testing::HasSubstr;

/// What a rank has seen of a training.
template <class Scalar>
struct Outcome {
  std::vector<double> losses;  // of each training step
  std::vector<Scalar> parameters;
  EpochReport report;
};

template <class Scalar = double>
Outcome<Scalar> train(int replicas, const std::shared_ptr<const Dataset>& data, const TrainerOptions& options,
                      const Layers<Scalar>& make = mlp<Scalar>) {
  Outcome<Scalar> outcome;
  run_replicas(replicas, [&](Communicator& replica) {
    TrainerOptions mine = options;
    const bool first = replica.rank() == 0;
    if (first) mine.on_step = [&](const StepReport& report) { outcome.losses.push_back(report.loss); };
    Trainer<Scalar> trainer(replica, Model<Scalar>(kImage, make()), data, nullptr, mine);
    const EpochReport report = trainer.fit();
    if (!first) return;
    outcome.report = report;
    outcome.parameters.assign(trainer.model().parameters().host().begin(), trainer.model().parameters().host().end());
  });
  return outcome;
}

const AugmentationOptions kAll{.crop_padding = 1, .flip = 0.5, .cutout = 3, .mixup = 0.4};

TEST(AugmentedTraining, HasTheSameBitsOnAnyNumberOfReplicas) {
  const auto data = augmented(Data().training, kAll);
  TrainerOptions options = options_for(12);  // into the second epoch
  options.deterministic = true;
  const auto expect_same = [&]<class Scalar>(Scalar) {
    options.data.threads = 0;
    const Outcome<Scalar> alone = train<Scalar>(1, data, options);
    EXPECT_NE(alone.parameters, train<Scalar>(1, Data().training, options).parameters);
    for (const int replicas : {2, 4, 8}) {
      options.data.threads = replicas == 4 ? 0 : 2;
      const Outcome<Scalar> together = train<Scalar>(replicas, data, options);
      EXPECT_EQ(together.parameters, alone.parameters) << replicas << " replicas";
      EXPECT_EQ(together.losses, alone.losses) << replicas << " replicas";
    }
  };
  expect_same(1.0F);
  expect_same(1.0);
}

TEST(AugmentedTraining, OtherEpochsDrawOtherChanges) {
  // One batch per epoch: without shuffling the loss would change by the learning rate only, which is 0.
  TrainerOptions options = options_for(3);
  options.global_batch = 250;
  options.learning_rate.base = 1e-300;
  const auto losses = train(1, augmented(Data().training, {.crop_padding = 2}), options).losses;
  EXPECT_GT(std::abs(losses[0] - losses[1]), 1e-6);
  EXPECT_GT(std::abs(losses[1] - losses[2]), 1e-6);
  const auto plain = train(1, Data().training, options).losses;
  EXPECT_NEAR(plain[0], plain[1], 1e-12);
}

TEST(AugmentedTraining, EvaluatesTheSamplesUnchanged) {
  run_replicas(2, [&](Communicator& replica) {
    const Data data;
    const auto training = augmented(data.training, kAll);
    Trainer<double> trainer(replica, Model<double>(kImage, mlp<double>()), training, data.test, options_for(5));
    trainer.fit();
    EXPECT_NEAR(trainer.evaluate(*training).loss, trainer.evaluate(*data.training).loss, 1e-12);
    const Tensor<double> changed = trainer.predict(*training), plain = trainer.predict(*data.training);
    EXPECT_TRUE(std::equal(changed.host().begin(), changed.host().end(), plain.host().begin()));
  });
}

/// Has probabilities of the classes, but does not say so in its batches.
class Forgetful final : public Dataset {
 public:
  std::int64_t size() const override { return 64; }
  const Shape& shape() const override { return kImage; }
  std::int32_t classes() const override { return kClasses; }
  const Shape& target_shape() const override { return target_shape_; }
  bool targets_are_probabilities() const override { return true; }
  void gather(std::span<const std::uint32_t> samples, Batch<float>& batch) const override {
    const auto count = static_cast<std::int64_t>(samples.size());
    batch.inputs.resize(count, kImage);
    batch.targets.resize(count, target_shape_);
    std::fill(batch.inputs.host().begin(), batch.inputs.host().end(), 0.0F);
    std::fill(batch.targets.host().begin(), batch.targets.host().end(), 0.25F);
    batch.labels.assign(samples.size(), 1);
  }

 private:
  const Shape target_shape_{kClasses};
};

TEST(Probabilities, AreUsedIfTheDatasetHasThem) {
  const auto data = std::make_shared<const Forgetful>();
  TrainerOptions options = options_for(60);
  options.learning_rate.base = 0.5;
  run_replicas(1, [&](Communicator& replica) {
    Trainer<double> trainer(replica, Model<double>(kImage, mlp<double>()), data, nullptr, options);
    EXPECT_NEAR(trainer.fit().loss, std::log(4), 0.01) << "with labels alone the loss would come near 0";
    EXPECT_NEAR(trainer.evaluate(*data).loss, std::log(4), 0.01);
  });
}

TEST(AugmentedTraining, OptionsAreCompared) {
  std::vector<std::string> messages(2);
  run_replicas(2, [&](Communicator& replica) {
    const auto data = augmented(Data().training, {.flip = replica.rank() == 0 ? 0.5 : 0.25});
    messages[static_cast<std::size_t>(replica.rank())] = message_of<Mismatch>([&] {
      const Trainer<double> trainer(replica, Model<double>(kImage, mlp<double>()), data, nullptr, options_for(3));
    });
  });
  EXPECT_THAT(messages, Each(HasSubstr("the checksum of the training data")));
}

TEST(Prefetching, ChangesNoBit) {
  for (const std::int64_t accumulate : {1, 3}) {
    TrainerOptions options = options_for(20);  // 8 training steps in an epoch
    options.accumulate = accumulate;
    const Outcome<double> expected = train(3, Data().training, options);
    for (const int threads : {1, 2, 5}) {
      for (const std::int64_t ahead : {1, 4}) {
        options.data = {.threads = threads, .batches_ahead = ahead};
        const Outcome<double> found = train(3, Data().training, options);
        EXPECT_EQ(found.parameters, expected.parameters) << threads << " threads";
        EXPECT_EQ(found.losses, expected.losses) << threads << " threads";
      }
    }
  }
}

TEST(Prefetching, AStopOrACheckpointLosesNothing) {
  const test::TemporaryDirectory directory;
  TrainerOptions options = options_for(20);
  options.data.threads = 2;
  const auto expected = train(2, Data().training, options).parameters;
  for (const bool from_checkpoint : {false, true}) {
    std::vector<double> found;
    const long before = test::threads_at_rest().count;
    run_replicas(2, [&](Communicator& replica) {
      const Data data;
      TrainerOptions mine = options;
      std::int64_t steps = 0;
      mine.stop_requested = [&] { return ++steps % 5 == 0; };
      if (from_checkpoint) mine.checkpoints.directory = directory.path();
      std::optional<Trainer<double>> trainer;
      do {
        if (!trainer || from_checkpoint) {
          trainer.reset();
          trainer.emplace(replica, Model<double>(kImage, mlp<double>()), data.training, nullptr, mine);
          mine.checkpoints.resume = true;
        }
        const bool stopped = trainer->fit().stopped;
        EXPECT_EQ(stopped, trainer->training_steps() < 20);
      } while (trainer->training_steps() < 20);
      if (replica.rank() == 0)
        found.assign(trainer->model().parameters().host().begin(), trainer->model().parameters().host().end());
    });
    EXPECT_EQ(found, expected);
    test::await_thread_count(before);
  }
}

/// Cannot read a sample on one rank, or stops the training there.
class Failing final : public Dataset {
 public:
  explicit Failing(bool fails) : fails_(fails) {}
  std::int64_t size() const override { return data_->size(); }
  const Shape& shape() const override { return data_->shape(); }
  std::int32_t classes() const override { return data_->classes(); }
  void gather(std::span<const std::uint32_t> samples, Batch<float>& batch) const override {
    if (fails_ && ++calls_ == 6) throw DataError("image_6.png is cut off");
    data_->gather(samples, batch);
  }

 private:
  const bool fails_;
  const std::shared_ptr<const Dataset> data_ = Data().training;
  mutable std::atomic<int> calls_{0};
};

TEST(Prefetching, AThrowingGatherOnOneRankEndsAll) {
  for (const int threads : {1, 3}) {
    std::vector<std::string> messages(2);
    std::vector<std::int64_t> steps(2);
    const long before = test::threads_at_rest().count;
    run_replicas(2, [&](Communicator& replica) {
      const auto rank = static_cast<std::size_t>(replica.rank());
      TrainerOptions options = options_for(30);
      options.data = {.threads = threads, .batches_ahead = 4};
      Trainer<double> trainer(replica, Model<double>(kImage, mlp<double>()), std::make_shared<const Failing>(rank == 1),
                              nullptr, options);
      messages[rank] =
          rank == 1 ? message_of<DataError>([&] { trainer.fit(); }) : message_of<PeerLost>([&] { trainer.fit(); });
      steps[rank] = trainer.training_steps();
    });
    EXPECT_EQ(messages[1], "image_6.png is cut off");
    EXPECT_THAT(
        messages[0],
        HasSubstr("rank 1 has stopped training, because Dataset::gather threw: DataError: image_6.png is cut off"));
    if (threads == 1) {
      EXPECT_EQ(steps[1], 5) << "the batches before the broken one were trained";
    }
    test::await_thread_count(before);
  }
}

TEST(Prefetching, WaitingForInputIsReported) {
  for (const int threads : {0, 1}) {
    TrainerOptions options = options_for(8);
    options.data.threads = threads;
    double waited = 0, seconds = 0;
    options.on_step = [&](const StepReport& report) {
      EXPECT_GT(report.input_waiting_seconds, 0);
      EXPECT_LE(report.input_waiting_seconds, report.seconds);
      waited += report.input_waiting_seconds;
      seconds += report.seconds;
    };
    run_replicas(1, [&](Communicator& replica) {
      Trainer<double> trainer(replica, Model<double>(kImage, mlp<double>()), Data().training, nullptr, options);
      const double share = trainer.fit().input_waiting_share;
      EXPECT_NEAR(share, waited / seconds, 1e-9);
    });
  }
}

TEST(DropLast, LeavesTheIncompleteBatchOutOfEachEpoch) {
  TrainerOptions options = options_for(0);
  options.epochs = 2;  // 250 samples in batches of 32
  EXPECT_EQ(train(2, Data().training, options).report.training_steps, 16);
  options.data.drop_last = true;
  EXPECT_EQ(train(2, Data().training, options).report.training_steps, 14);
}

TEST(DropLast, IsTheRemedyForLayersThatSynchronise) {
  const Layers<double> normalized = [] {
    return layers<double>({[] { return dense<double>(8); },
                           [] { return batch_normalization<double>({.synchronized = true}); },
                           [] { return dense<double>(kClasses); }});
  };
  TrainerOptions options = options_for(30);
  options.global_batch = 4;
  options.synchronized_layers = true;
  const auto data = synthetic_dataset(101, kImage, kClasses, kSeed);
  std::vector<std::string> messages(2);
  run_replicas(2, [&](Communicator& replica) {
    messages[static_cast<std::size_t>(replica.rank())] = message_of<InvalidArgument>(
        [&] { const Trainer<double> trainer(replica, Model<double>(kImage, normalized()), data, nullptr, options); });
  });
  EXPECT_THAT(messages,
              Each(HasSubstr("the last global batch of an epoch has 1 samples, but layers that synchronise need "
                             "one in each of 2 replicas x 1 micro-batches; set data.drop_last, or")));
  options.data.drop_last = true;
  EXPECT_EQ(train<double>(2, data, options, normalized).report.training_steps, 30);
}

TEST(DropLast, MustBeTheSameAfterAResume) {
  const test::TemporaryDirectory directory;
  TrainerOptions options = options_for(3);
  options.checkpoints.directory = directory.path();
  train(1, Data().training, options);
  options.checkpoints.resume = true;
  options.data.drop_last = true;
  EXPECT_THAT(message_of<InvalidArgument>([&] { train(1, Data().training, options); }), HasSubstr("drop last"));
  options.data.drop_last = false;
  options.max_steps = 5;
  EXPECT_EQ(train(1, Data().training, options).report.training_steps, 5);
}

/// The samples of the training data, one behind the other without end. @param first  number of the first sample
std::shared_ptr<const Dataset> stream(std::atomic<std::int64_t>* computed = nullptr, std::int64_t first = 0,
                                      std::int64_t distance = 1) {
  return stream_dataset({.shape = kImage, .samples_per_epoch = 100, .classes = kClasses}, [=] {
    return [=, data = Data().training, next = first](StreamSample& sample) mutable {
      if (!sample.is_skipped) {
        if (computed != nullptr) ++*computed;
        Batch<float> batch;
        data->gather(std::vector<std::uint32_t>{static_cast<std::uint32_t>(next % data->size())}, batch);
        std::copy(batch.inputs.host().begin(), batch.inputs.host().end(), sample.input.begin());
        sample.label = batch.labels[0];
      }
      next += distance;
    };
  });
}

TEST(StreamTraining, DoesNotDependOnReplicasAndThreads) {
  TrainerOptions options = options_for(10);  // 4 training steps in an epoch
  const Outcome<double> alone = train(1, stream(), options);
  EXPECT_LT(alone.losses.back(), alone.losses.front());
  for (const int threads : {0, 3}) {
    options.data.threads = threads;
    std::atomic<std::int64_t> computed{0};
    const Outcome<double> together = train(3, stream(&computed), options);
    EXPECT_THAT(together.parameters, testing::Pointwise(testing::DoubleNear(1e-11), alone.parameters));
    EXPECT_EQ(computed, 2 * 100 + 64) << "each sample on one rank only";
  }
}

TEST(StreamTraining, IsResumedWithTheNextSample) {
  const test::TemporaryDirectory directory;
  TrainerOptions options = options_for(10);
  options.data.threads = 1;
  const auto expected = train(2, stream(), options).parameters;
  options.checkpoints.directory = directory.path();
  options.max_steps = 6;
  train(2, stream(), options);
  options.checkpoints.resume = true;
  options.max_steps = 10;
  EXPECT_EQ(train(2, stream(), options).parameters, expected);
}

TEST(StreamTraining, OwnStreamsShareTheSamples) {
  std::vector<std::vector<double>> parameters(2);
  std::atomic<std::int64_t> computed{0};
  run_replicas(2, [&](Communicator& replica) {
    TrainerOptions options = options_for(14);  // 200 samples in 7 training steps
    options.data.own_shards = true;
    const auto mine = stream(&computed, replica.rank(), 2);
    Trainer<double> trainer(replica, Model<double>(kImage, mlp<double>()), mine, nullptr, options);
    trainer.fit();
    const auto values = trainer.model().parameters().host();
    parameters[static_cast<std::size_t>(replica.rank())].assign(values.begin(), values.end());
  });
  EXPECT_EQ(parameters[0], parameters[1]);
  EXPECT_EQ(computed, 2 * 200);
}

TEST(StreamTraining, EvaluatesTheFirstSamples) {
  run_replicas(2, [&](Communicator& replica) {
    const auto data = stream();
    Trainer<double> trainer(replica, Model<double>(kImage, mlp<double>()), data, data, options_for(4));
    const double in_training = trainer.fit().test->loss;
    EXPECT_EQ(trainer.evaluate(*data).loss, in_training);
    EXPECT_EQ(trainer.predict(*data).samples(), 100);
  });
}

TEST(StreamTraining, IsRefusedInDeterministicMode) {
  TrainerOptions options = options_for(3);
  options.deterministic = true;
  EXPECT_THAT(message_of<Unsupported>([&] { train(1, stream(), options); }),
              HasSubstr("streams are not available in deterministic mode, because"));
}

TEST(DataOptions, AreChecked) {
  TrainerOptions options = options_for(3);
  options.data.threads = -1;
  EXPECT_THAT(message_of<InvalidArgument>([&] { train(1, Data().training, options); }),
              HasSubstr("data.threads is -1; it must be from 0 to 1024"));
  options.data = {.batches_ahead = -1};
  EXPECT_THAT(message_of<InvalidArgument>([&] { train(1, Data().training, options); }),
              HasSubstr("data.batches_ahead is -1"));
}

}  // namespace
}  // namespace farandole::trainer
