// SPDX-License-Identifier: Apache-2.0
// The same training on different numbers of replicas gives the same losses, and in deterministic mode the same bits.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <optional>

#include "farandole/core/error.h"
#include "farandole/trainer/layers.h"
#include "farandole/trainer/trainer.h"
#include "small_training.h"
#include "trainer_files.h"

namespace farandole::trainer {
namespace {

using test::Data;
using test::kClasses;
using test::kImage;
using test::kSeed;
using test::Layers;
using test::layers;
using test::mlp;
using test::options_for;

template <class Scalar>
LayerList<Scalar> cnn() {
  return layers<Scalar>({[] { return conv2d<Scalar>({.channels = 4}); }, relu<Scalar>,
                         [] { return max_pool2d<Scalar>(2); }, [] { return dense<Scalar>(kClasses); }});
}

template <class Scalar>
LayerList<Scalar> normalized(bool synchronized, double dropped) {
  return layers<Scalar>({[] { return conv2d<Scalar>({.channels = 4}); },
                         [&] { return batch_normalization<Scalar>({.synchronized = synchronized}); }, relu<Scalar>,
                         [] { return max_pool2d<Scalar>(2); }, [&] { return dropout<Scalar>(dropped); },
                         [] { return dense<Scalar>(kClasses); }});
}

/// Convolutions with a residual block, whose pixels then attend to each other.
template <class Scalar>
LayerList<Scalar> mixed() {
  const auto block = [] {
    return residual<Scalar>(layers<Scalar>({[] { return depthwise_conv2d<Scalar>({.padding = 1}); },
                                            [] { return group_normalization<Scalar>(2); }, gelu<Scalar>,
                                            [] { return dropout<Scalar>(0.1); }}));
  };
  const auto attending = [] {
    return residual<Scalar>(
        layers<Scalar>({[] { return layer_normalization<Scalar>(); }, [] { return attention<Scalar>({.heads = 2}); }}));
  };
  return layers<Scalar>({[] { return conv2d<Scalar>({.channels = 8}); }, block, [] { return max_pool2d<Scalar>(2); },
                         [] {
                           return reshape<Scalar>({9, 8});
                         },
                         [] { return positional_encoding<Scalar>(PositionalEncoding::kLearned); }, attending,
                         global_average_pool<Scalar>, [] { return dense<Scalar>(kClasses); }});
}

/// Results of a training, as seen by rank 0.
template <class Scalar>
struct Outcome {
  std::vector<double> losses;  // of each training step
  std::vector<Scalar> parameters, statistics;
  EpochReport report;
};

template <class Scalar>
Outcome<Scalar> train(int replicas, const Layers<Scalar>& make, const TrainerOptions& options, const Data& data = {}) {
  Outcome<Scalar> outcome;
  run_replicas(replicas, [&](Communicator& replica) {
    TrainerOptions mine = options;
    const bool first = replica.rank() == 0;
    if (first) mine.on_step = [&](const StepReport& report) { outcome.losses.push_back(report.loss); };
    Trainer<Scalar> trainer(replica, Model<Scalar>(kImage, make()), data.training, data.test, mine);
    const EpochReport report = trainer.fit();
    if (!first) return;
    outcome.report = report;
    const auto copy = [](std::span<Scalar> values) { return std::vector<Scalar>(values.begin(), values.end()); };
    outcome.parameters = copy(trainer.model().parameters().host());
    outcome.statistics = copy(trainer.model().statistics().host());
  });
  return outcome;
}

void expect_close(const std::vector<double>& found, const std::vector<double>& expected, const std::string& what,
                  double tolerance = 1e-12) {
  ASSERT_EQ(found.size(), expected.size()) << what;
  for (std::size_t i = 0; i < found.size(); ++i) {
    ASSERT_LE(std::abs(found[i] - expected[i]), tolerance * std::max(std::abs(expected[i]), 1e-3))
        << what << ", entry " << i << ": " << found[i] << " and " << expected[i];
  }
}

void expect_close(const Outcome<double>& found, const Outcome<double>& expected, const std::string& what) {
  expect_close(found.losses, expected.losses, what + ", losses");
  expect_close(found.parameters, expected.parameters, what + ", parameters", 1e-10);
  expect_close(found.statistics, expected.statistics, what + ", statistics", 1e-10);
}

template <class Scalar>
void expect_same_bits(const Outcome<Scalar>& found, const Outcome<Scalar>& expected, const std::string& what) {
  const auto same = [](const auto& a, const auto& b) {
    return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(a[0])) == 0);
  };
  EXPECT_TRUE(same(found.losses, expected.losses)) << what;
  EXPECT_TRUE(same(found.parameters, expected.parameters)) << what;
  EXPECT_TRUE(same(found.statistics, expected.statistics)) << what;
  EXPECT_EQ(found.report.parameters_checksum, expected.report.parameters_checksum) << what;
  EXPECT_EQ(found.report.loss, expected.report.loss) << what;
  EXPECT_EQ(found.report.test->loss, expected.report.test->loss) << what;
}

/// Trains on each number of replicas and compares with one.
void expect_equivalent(const Layers<double>& make, const TrainerOptions& options,
                       const std::vector<int>& sizes = {2, 3, 4}, const Data& data = {}) {
  const Outcome<double> one = train<double>(1, make, options, data);
  ASSERT_EQ(one.losses.size(), static_cast<std::size_t>(options.max_steps));
  EXPECT_LT(one.losses.back(), one.losses.front()) << "nothing was learned";
  for (const int replicas : sizes) {
    expect_close(train<double>(replicas, make, options, data), one, std::to_string(replicas) + " replicas");
  }
}

TEST(Equivalence, Mlp) {
  expect_equivalent(mlp<double>, options_for(30));
}

TEST(Equivalence, Cnn) {
  expect_equivalent(cnn<double>, options_for(30));
}

TEST(Equivalence, ResidualBlocksAndAttention) {
  expect_equivalent(mixed<double>, options_for(30));
}

TEST(Equivalence, SynchronizedBatchNormalization) {
  TrainerOptions options = options_for(20);
  options.synchronized_layers = true;
  expect_equivalent([] { return normalized<double>(true, 0.25); }, options);
}

TEST(Equivalence, AdamWithWarmUpAndCosine) {
  TrainerOptions options = options_for(30);
  options.optimizer = {.kind = OptimizerKind::kAdamW, .weight_decay = 0.01};
  options.learning_rate = {.base = 0.005, .schedule = LearningRateSchedule::kCosine, .warmup_steps = 5};
  // Adam divides by the gradient's own size, which makes much of differences in tiny gradients.
  expect_equivalent(cnn<double>, options, {2, 4});
}

TEST(Equivalence, ClippingByTheNormOfTheReducedGradient) {
  TrainerOptions options = options_for(20);
  options.clip_norm = 0.5;
  expect_equivalent(mlp<double>, options);
  TrainerOptions unclipped = options_for(20);
  EXPECT_NE(train<double>(1, mlp<double>, options).losses.back(),
            train<double>(1, mlp<double>, unclipped).losses.back());
}

TEST(Equivalence, AccumulationIsOneBatch) {
  const Outcome<double> whole = train<double>(1, cnn<double>, options_for(20));
  TrainerOptions options = options_for(20);
  options.accumulate = 4;
  for (const int replicas : {1, 2, 4}) {
    expect_close(train<double>(replicas, cnn<double>, options), whole, std::to_string(replicas) + " replicas");
  }
}

TEST(Equivalence, BatchStatisticsOfMicroBatchesAndReplicasWeighAlike) {
  // Two micro-batches on one replica are the same parts of the batch as one on each of two.
  const auto make = [] { return normalized<double>(false, 0.25); };
  TrainerOptions options = options_for(20);
  const Outcome<double> replicated = train<double>(2, make, options);
  options.accumulate = 2;
  expect_close(train<double>(1, make, options), replicated, "accumulated");
}

TEST(Equivalence, ALastBatchOfOneSample) {
  const Data data{.training = synthetic_dataset(65, kImage, kClasses, kSeed)};
  expect_equivalent(mlp<double>, options_for(9), {2, 4}, data);
  TrainerOptions options = options_for(9);
  options.accumulate = 3;
  expect_close(train<double>(4, mlp<double>, options, data), train<double>(1, mlp<double>, options_for(9), data),
               "accumulated");
}

TEST(Equivalence, EvaluationIsExactForAnyNumberOfReplicas) {
  const Outcome<double> one = train<double>(1, mlp<double>, options_for(5));
  for (const int replicas : {2, 3, 8}) {
    std::vector<Evaluation> found(static_cast<std::size_t>(replicas));
    run_replicas(replicas, [&](Communicator& replica) {
      Model<double> model(kImage, mlp<double>());
      std::copy(one.parameters.begin(), one.parameters.end(), model.parameters().host().begin());
      TrainerOptions options = options_for(5);
      options.initialize = false;
      const Data data;
      Trainer<double> trainer(replica, std::move(model), data.training, data.test, options);
      found[static_cast<std::size_t>(replica.rank())] = trainer.evaluate(*data.test);
    });
    for (const Evaluation& evaluation : found) {
      EXPECT_EQ(evaluation.loss, one.report.test->loss);
      EXPECT_EQ(evaluation.metric("accuracy"), one.report.test->metric("accuracy"));
    }
  }
}

TEST(Deterministic, SameBitsOnAnyNumberOfReplicas) {
  const auto make = [] { return normalized<float>(false, 0.25); };
  TrainerOptions options = options_for(25);
  options.deterministic = true;
  options.clip_norm = 2;
  const Outcome<float> one = train<float>(1, make, options);
  EXPECT_LT(one.losses.back(), one.losses.front());
  for (const int replicas : {2, 4, 8}) {
    expect_same_bits(train<float>(replicas, make, options), one, std::to_string(replicas) + " replicas");
  }
}

TEST(Deterministic, SameBitsOfResidualBlocksAndAttention) {
  TrainerOptions options = options_for(15);
  options.deterministic = true;
  const Outcome<float> one = train<float>(1, mixed<float>, options);
  EXPECT_LT(one.losses.back(), one.losses.front());
  for (const int replicas : {2, 4, 8}) {
    expect_same_bits(train<float>(replicas, mixed<float>, options), one, std::to_string(replicas) + " replicas");
  }
}

TEST(Deterministic, SameBitsAfterStopsOnOtherNumbersOfReplicas) {
  const auto make = [] { return normalized<float>(false, 0.25); };
  TrainerOptions options = options_for(20);
  options.deterministic = true;
  options.optimizer.kind = OptimizerKind::kAdam;
  options.learning_rate.base = 0.003;
  const Outcome<float> whole = train<float>(1, make, options);

  const test::TemporaryDirectory directory;
  options.checkpoints.directory = directory.path();
  Outcome<float> parts;
  // Epochs have 8 training steps: stops in the first epoch, at an end of one, and in the third.
  for (const auto& [replicas, stop] : {std::pair{2, 5}, {8, 16}, {4, 18}, {1, 20}}) {
    options.max_steps = stop;
    std::vector<double> losses = std::move(parts.losses);
    parts = train<float>(replicas, make, options);
    losses.insert(losses.end(), parts.losses.begin(), parts.losses.end());
    parts.losses = std::move(losses);
    options.checkpoints.resume = true;
  }
  expect_same_bits(parts, whole, "resumed");
}

TEST(Checkpointing, ResumesMidEpochOnAnotherNumberOfReplicas) {
  TrainerOptions options = options_for(20);
  const Outcome<double> whole = train<double>(1, cnn<double>, options);
  const test::TemporaryDirectory directory;
  options.checkpoints.directory = directory.path();
  options.max_steps = 11;
  const Outcome<double> first = train<double>(3, cnn<double>, options);
  options.checkpoints.resume = true;
  options.max_steps = 20;
  Outcome<double> second = train<double>(2, cnn<double>, options);
  second.losses.insert(second.losses.begin(), first.losses.begin(), first.losses.end());
  expect_close(second, whole, "resumed");
  EXPECT_NEAR(second.report.loss, whole.report.loss, 1e-9);
}

TEST(Checkpointing, FallsBackToOlderCheckpointIfNewestIsDamaged) {
  TrainerOptions options = options_for(20);
  const Outcome<double> whole = train<double>(2, cnn<double>, options);
  const test::TemporaryDirectory directory;
  const auto newest = directory.path() / "step-000016";
  options.checkpoints.directory = directory.path();
  options.max_steps = 16;
  train<double>(2, cnn<double>, options);
  std::filesystem::resize_file(newest / "model.safetensors", 100);
  std::filesystem::create_directory(directory.path() / "step-000017");

  options.checkpoints.resume = true;
  options.max_steps = 20;
  testing::internal::CaptureStderr();
  const Outcome<double> resumed = train<double>(3, cnn<double>, options);
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_EQ(resumed.losses.size(), 12U) << "from training step 8 on";
  expect_close(resumed.parameters, whole.parameters, "parameters", 1e-10);
  for (const char* damaged : {"step-000016", "step-000017"}) {
    const auto path = directory.path() / damaged;
    EXPECT_TRUE(test::contains(
        log, path.string() + " is damaged, so training resumes from " + (directory.path() / "step-000008").string()));
    EXPECT_TRUE(test::contains(log, "it is now " + path.string() + ".damaged"));
    EXPECT_TRUE(std::filesystem::exists(path.string() + ".damaged"));
  }
  EXPECT_TRUE(test::contains(log, "model.safetensors: "));
  EXPECT_TRUE(test::contains(log, "step-000017/manifest.json: No such file"));
  EXPECT_TRUE(std::filesystem::exists(newest / "manifest.json")) << "not written again";
}

/// Errors thrown by the replicas' trainers.
template <class Kind>
std::vector<std::string> errors(int replicas, const Layers<double>& make, const TrainerOptions& options) {
  std::vector<std::string> messages(static_cast<std::size_t>(replicas));
  const Data data;
  run_replicas(replicas, [&](Communicator& replica) {
    messages[static_cast<std::size_t>(replica.rank())] = farandole::test::message_of<Kind>([&] {
      Trainer<double> trainer(replica, Model<double>(kImage, make()), data.training, data.test, options);
      trainer.fit();
    });
    replica.barrier();  // the communicator is still usable
  });
  return messages;
}

TEST(Errors, ALossThatIsNotANumberEndsAllReplicas) {
  const test::TemporaryDirectory directory;
  TrainerOptions options = options_for(0);
  options.checkpoints.directory = directory.path();
  options.learning_rate = {.base = 0.01};
  options.epochs = 1;
  train<double>(2, mlp<double>, options);
  options.epochs = 3;
  options.learning_rate.base = 1e200;
  options.checkpoints.resume = true;
  for (const std::string& message : errors<DataError>(3, mlp<double>, options)) {
    EXPECT_TRUE(test::contains(message, "epoch 2: the loss is not a number"));
    EXPECT_TRUE(test::contains(message, "--learning-rate"));
  }
  options.learning_rate.base = 0.01;
  EXPECT_EQ(train<double>(2, mlp<double>, options).report.training_steps, 24) << "the good checkpoint is gone";
}

TEST(Errors, ADamagedCheckpointIsEveryReplicasError) {
  const test::TemporaryDirectory directory;
  TrainerOptions options = options_for(3);
  options.checkpoints.directory = directory.path();
  train<double>(1, mlp<double>, options);
  EXPECT_TRUE(test::contains(errors<InvalidArgument>(2, mlp<double>, options)[0], "--resume"));
  options.checkpoints.resume = true;
  const auto other_model = errors<InvalidArgument>(2, cnn<double>, options);
  EXPECT_TRUE(test::contains(other_model[0], "'0.dense.weight' of shape 64x16"));
  EXPECT_TRUE(test::contains(other_model[1], "rank 0 reports: "));

  const auto file = directory.path() / "step-000003" / "model.safetensors";
  std::filesystem::resize_file(file, std::filesystem::file_size(file) - 1);
  for (const std::string& message : errors<DataError>(3, mlp<double>, options)) {
    EXPECT_TRUE(test::contains(message, "'2.dense.bias' is cut"));
  }
}

TEST(Errors, ResumingFromNothingIsRefusedAtTheStart) {
  const test::TemporaryDirectory directory;
  TrainerOptions options = options_for(3);
  options.checkpoints.directory = directory.path();
  options.checkpoints.resume = true;
  for (const std::string& message : errors<InvalidArgument>(2, mlp<double>, options)) {
    EXPECT_TRUE(test::contains(message, directory.path().string() + " holds no checkpoint to resume from"));
  }
  std::filesystem::create_directory(directory.path() / "step-000003");
  for (const std::string& message : errors<DataError>(2, mlp<double>, options)) {
    EXPECT_TRUE(test::contains(message, "step-000003/manifest.json: No such file"));
  }
  options.checkpoints.resume = false;
  for (const std::string& message : errors<InvalidArgument>(2, mlp<double>, options)) {
    EXPECT_TRUE(test::contains(message, "the newest step-000003"));
  }
}

TEST(Errors, DirectoryInUseIsRefusedOnEveryRank) {
  const test::TemporaryDirectory directory;
  TrainerOptions options = options_for(3);
  options.checkpoints.directory = directory.path();
  const Data data;
  run_replicas(1, [&](Communicator& replica) {
    Trainer<double> first(replica, Model<double>(kImage, mlp<double>()), data.training, data.test, options);
    for (const std::string& message : errors<InvalidArgument>(3, mlp<double>, options)) {
      EXPECT_TRUE(test::contains(message, "is in use by another training (host "));
      EXPECT_TRUE(test::contains(message, ", pid " + std::to_string(getpid())));
    }
    EXPECT_EQ(first.fit().training_steps, 3);
  });
}

TEST(Errors, InvalidOptionsAreRefusedWithTheValidChoices) {
  TrainerOptions options = options_for(3);
  options.global_batch = 3;
  EXPECT_TRUE(test::contains(errors<InvalidArgument>(4, mlp<double>, options)[3], "it must be at least 4"));
  options = options_for(3);
  options.deterministic = true;
  EXPECT_TRUE(test::contains(errors<InvalidArgument>(3, mlp<double>, options)[0], "1, 2, 4, 8"));
  options.micro_batches = 6;
  EXPECT_TRUE(test::contains(errors<InvalidArgument>(4, mlp<double>, options)[0], "valid are 4, 8, 16, 32"));
  options.micro_batches = 2;
  EXPECT_TRUE(test::contains(errors<InvalidArgument>(4, mlp<double>, options)[0], "valid are 4, 8, 16, 32"));
  options.micro_batches = 8;
  options.synchronized_layers = true;
  EXPECT_TRUE(test::contains(errors<Unsupported>(2, mlp<double>, options)[0], "deterministic"));
  const Layers<double> narrow = [] { return layers<double>({[] { return dense<double>(kClasses - 1); }}); };
  EXPECT_TRUE(test::contains(errors<InvalidArgument>(2, narrow, options_for(3))[0], "4 classes"));
}

TEST(Errors, DivergedReplicasAreDetected) {
  const Data data;
  std::vector<std::string> messages(3);
  run_replicas(3, [&](Communicator& replica) {
    Model<double>* model = nullptr;
    TrainerOptions options = options_for(3);
    options.on_step = [&](const StepReport&) {
      if (replica.rank() == 2) model->parameters().host()[0] += 1e-9;
    };
    Trainer<double> trainer(replica, Model<double>(kImage, mlp<double>()), data.training, data.test, options);
    model = &trainer.model();
    messages[static_cast<std::size_t>(replica.rank())] =
        farandole::test::message_of<InternalError>([&] { trainer.fit(); });
  });
  for (const std::string& message : messages) EXPECT_TRUE(test::contains(message, "parameters is")) << message;
  for (const std::string& message : messages) EXPECT_TRUE(test::contains(message, "on rank 2"));
}

TEST(WithoutAveraging, EachReplicaTrainsItsOwnPart) {
  TrainerOptions options = options_for(5);
  options.averaging = false;
  const Outcome<double> alone = train<double>(2, mlp<double>, options);
  const Outcome<double> averaged = train<double>(2, mlp<double>, options_for(5));
  EXPECT_NE(alone.parameters, averaged.parameters);
  EXPECT_EQ(alone.report.exposed_communication_share, 0);
}

/// True if `call` says that this process was forked from a rank.
bool is_refused(const std::function<void()>& call) {
  try {
    call();
  } catch (const InvalidArgument& error) {
    return std::string(error.what()).find("was forked from rank ") != std::string::npos;
  }
  return false;
}

// One replica: allocators of sanitizers do not survive the fork of a process with several threads.
TEST(Forked, AChildOfAReplicaTrainsNothing) {
  const Data data;
  run_replicas(1, [&](Communicator& replica) {
    TrainerOptions options = options_for(2);
    options.kernel_threads = 1;
    std::optional<Trainer<float>> trainer;
    trainer.emplace(replica, Model<float>(kImage, mlp<float>()), data.training, data.test, options);
    trainer->fit();
    const pid_t child = fork();
    if (child == 0) {
      alarm(20);
      const bool good =
          is_refused([&] { trainer->fit(); }) && is_refused([&] { trainer->evaluate(*data.test); }) && is_refused([&] {
            const Trainer<float> another(replica, Model<float>(kImage, mlp<float>()), data.training, data.test,
                                         options);
          });
      trainer.reset();
      _exit(good ? 0 : 1);
    }
    int status = 1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    EXPECT_GT(trainer->evaluate(*data.test).loss, 0);
  });
}

}  // namespace
}  // namespace farandole::trainer
