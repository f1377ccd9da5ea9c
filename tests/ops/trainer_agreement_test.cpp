// SPDX-License-Identifier: Apache-2.0
// Ranks whose options, data, model or precision differ raise an error before the first training step.
#include <gtest/gtest.h>

#include <optional>
#include <utility>

#include "farandole/collectives/agreement.h"
#include "small_training.h"
#include "trainer_files.h"

namespace farandole::trainer {
namespace {

using farandole::test::message_of;
using test::contains;
using test::Data;
using test::kClasses;
using test::kImage;
using test::kSeed;
using test::layers;
using test::Layers;
using test::mlp;
using test::options_for;

constexpr int kReplicas = 3;
constexpr int kOdd = 2;  // the rank that differs

/// Options, data and model of one rank.
struct Plan {
  TrainerOptions options = options_for(3);
  Data data;
  Layers<double> make = mlp<double>;
};

/// Errors thrown by the ranks' trainers if the last rank's plan is changed by `alter`.
template <class Kind = Mismatch>
std::vector<std::string> disagreement(const std::function<void(Plan&)>& alter) {
  std::vector<std::string> messages(kReplicas);
  run_replicas(kReplicas, [&](Communicator& replica) {
    Plan plan;
    if (replica.rank() == kOdd) alter(plan);
    messages[static_cast<std::size_t>(replica.rank())] = message_of<Kind>([&] {
      Trainer<double> trainer(replica, Model<double>(kImage, plan.make()), plan.data.training, plan.data.test,
                              plan.options);
      trainer.fit();
    });
    replica.barrier();  // the communicator is still usable
  });
  return messages;
}

/// Every rank's error names the difference, and both values with their ranks.
void expect_named(const std::vector<std::string>& messages, const std::string& what, const std::string& ours,
                  const std::string& theirs) {
  std::string first = what, second = ") and ";
  first.append(" is ").append(ours).append(" on rank 0 (");
  second.append(theirs).append(" on rank 2 (");
  for (const std::string& message : messages) {
    EXPECT_TRUE(contains(message, first));
    EXPECT_TRUE(contains(message, second));
  }
}

void expect_named(const std::function<void(Plan&)>& alter, const std::string& what, const std::string& ours,
                  const std::string& theirs) {
  SCOPED_TRACE(what);
  expect_named(disagreement(alter), what, ours, theirs);
}

struct OptionCase {
  const char* option;
  std::function<void(TrainerOptions&)> alter;
  const char *ours, *theirs;
};

/// Options of the optimizer and the learning rate.
const std::vector<OptionCase>& update_cases() {
  using Options = TrainerOptions;
  static const std::vector<OptionCase> cases{
      {"optimizer.kind", [](Options& o) { o.optimizer.kind = OptimizerKind::kAdam; }, "sgd", "adam"},
      {"optimizer.weight_decay", [](Options& o) { o.optimizer.weight_decay = 0.25; }, "0", "0.25"},
      {"optimizer.momentum", [](Options& o) { o.optimizer.momentum = 0.5; }, "0.9", "0.5"},
      {"optimizer.nesterov", [](Options& o) { o.optimizer.nesterov = true; }, "no", "yes"},
      {"optimizer.beta1", [](Options& o) { o.optimizer.beta1 = 0.5; }, "0.9", "0.5"},
      {"optimizer.beta2", [](Options& o) { o.optimizer.beta2 = 0.5; }, "0.999", "0.5"},
      {"optimizer.epsilon", [](Options& o) { o.optimizer.epsilon = 1e-7; }, "1e-08", "1e-07"},
      {"learning_rate.base", [](Options& o) { o.learning_rate.base = 0.02000000000000001; }, "0.02",
       "0.02000000000000001"},
      {"learning_rate.schedule", [](Options& o) { o.learning_rate.schedule = LearningRateSchedule::kCosine; },
       "constant", "cosine"},
      {"learning_rate.warmup_steps", [](Options& o) { o.learning_rate.warmup_steps = 2; }, "0", "2"},
      {"learning_rate.step_factor", [](Options& o) { o.learning_rate.step_factor = 0.5; }, "0.1", "0.5"},
      {"learning_rate.step_epochs", [](Options& o) { o.learning_rate.step_epochs = 5; }, "10", "5"},
      {"learning_rate.scale_by_replicas", [](Options& o) { o.learning_rate.scale_by_replicas = true; }, "no", "yes"},
      {"learning_rate.minimum", [](Options& o) { o.learning_rate.minimum = 0.001; }, "0", "0.001"},
      {"learning_rate.power", [](Options& o) { o.learning_rate.power = 2; }, "1", "2"},
      {"learning_rate.one_cycle.pct_start", [](Options& o) { o.learning_rate.one_cycle.pct_start = 0.5; }, "0.3",
       "0.5"},
      {"learning_rate.one_cycle.div_factor", [](Options& o) { o.learning_rate.one_cycle.div_factor = 5; }, "25", "5"},
      {"learning_rate.one_cycle.final_div_factor", [](Options& o) { o.learning_rate.one_cycle.final_div_factor = 10; },
       "10000", "10"},
      {"learning_rate.plateau.factor", [](Options& o) { o.learning_rate.plateau.factor = 0.5; }, "0.1", "0.5"},
      {"learning_rate.plateau.patience", [](Options& o) { o.learning_rate.plateau.patience = 3; }, "10", "3"},
      {"learning_rate.plateau.threshold", [](Options& o) { o.learning_rate.plateau.threshold = 0.5; }, "0.0001", "0.5"},
      {"learning_rate.schedule",
       [](Options& o) {
         o.learning_rate.schedule = LearningRateSchedule::kOwn;
         o.learning_rate.own = [](std::int64_t, std::int64_t, std::int64_t) { return 0.1; };
       },
       "constant", "own"},
      {"optimizer.groups",
       [](Options& o) {
         o.optimizer.groups = {{.pattern = "0.*", .trainable = false}, {.pattern = "2.dense.bias", .weight_decay = 1}};
       },
       "none", "'0.*': rate factor 1, frozen; '2.dense.bias': rate factor 1, weight decay 1"},
      {"optimizer.ema_decay", [](Options& o) { o.optimizer.ema_decay = 0.99; }, "0", "0.99"},
  };
  return cases;
}

/// All other options.
const std::vector<OptionCase>& option_cases() {
  using Options = TrainerOptions;
  static const std::vector<OptionCase> cases{
      {"global_batch", [](Options& o) { o.global_batch = 64; }, "32", "64"},
      {"epochs", [](Options& o) { o.epochs = 99; }, "100", "99"},
      {"max_steps", [](Options& o) { o.max_steps = 4; }, "3", "4"},
      {"evaluate_with_ema", [](Options& o) { o.evaluate_with_ema = true; }, "no", "yes"},
      {"clip_norm", [](Options& o) { o.clip_norm = 1; }, "0", "1"},
      {"accumulate", [](Options& o) { o.accumulate = 2; }, "1", "2"},
      {"seed", [](Options& o) { o.seed = 6; }, "5", "6"},
      {"initialize", [](Options& o) { o.initialize = false; }, "yes", "no"},
      {"deterministic", [](Options& o) { o.deterministic = true; }, "no", "yes"},
      {"micro_batches", [](Options& o) { o.micro_batches = 4; }, "8", "4"},
      {"synchronized_layers", [](Options& o) { o.synchronized_layers = true; }, "no", "yes"},
      {"averaging", [](Options& o) { o.averaging = false; }, "yes", "no"},
      {"evaluate_every", [](Options& o) { o.evaluate_every = 1; }, "0", "1"},
      {"evaluation_batch", [](Options& o) { o.evaluation_batch = 10; }, "20", "10"},
      {"checkpoints.directory", [](Options& o) { o.checkpoints.directory = "nowhere"; }, "''", "'nowhere'"},
      {"checkpoints.every_epochs", [](Options& o) { o.checkpoints.every_epochs = 2; }, "1", "2"},
      {"checkpoints.every_steps", [](Options& o) { o.checkpoints.every_steps = 2; }, "0", "2"},
      {"checkpoints.every_minutes", [](Options& o) { o.checkpoints.every_minutes = 0.5; }, "0", "0.5"},
      {"checkpoints.keep", [](Options& o) { o.checkpoints.keep = 2; }, "3", "2"},
      {"checkpoints.keep_best", [](Options& o) { o.checkpoints.keep_best = true; }, "no", "yes"},
      {"checkpoints.resume", [](Options& o) { o.checkpoints.resume = true; }, "no", "yes"},
      {"data.drop_last", [](Options& o) { o.data.drop_last = true; }, "no", "yes"},
      {"data.own_shards", [](Options& o) { o.data.own_shards = true; }, "no", "yes"},
      {"monitor.value", [](Options& o) { o.monitor.value = "accuracy"; }, "loss", "accuracy"},
      {"monitor.higher_is_better", [](Options& o) { o.monitor.higher_is_better = true; }, "no", "yes"},
      {"monitor.min_delta", [](Options& o) { o.monitor.min_delta = 0.5; }, "0", "0.5"},
      {"monitor.patience", [](Options& o) { o.monitor.patience = 2; }, "0", "2"},
  };
  return cases;
}

TEST(Agreement, EveryOptionIsCompared) {
  for (const std::vector<OptionCase>* cases : {&update_cases(), &option_cases()}) {
    for (const OptionCase& each : *cases) {
      expect_named([&](Plan& plan) { each.alter(plan.options); }, std::string("TrainerOptions::") + each.option,
                   each.ours, each.theirs);
    }
  }
}

TEST(Agreement, AllOptionsThatDifferAreListed) {
  const auto messages = disagreement([](Plan& plan) {
    plan.options.seed = 6;
    plan.options.learning_rate.base = 0.5;
    plan.options.epochs = 7;
  });
  expect_named(messages, "TrainerOptions::epochs", "100", "7");
  for (const std::string& message : messages) {
    EXPECT_TRUE(contains(message, "also different: TrainerOptions::learning_rate.base, TrainerOptions::seed"));
  }
}

TEST(Agreement, OptionsOfOneRankMayDiffer) {
  std::vector<std::uint32_t> checksums(kReplicas);
  run_replicas(kReplicas, [&](Communicator& replica) {
    const Data data;
    TrainerOptions options = options_for(3);
    options.kernel_threads = 1 + replica.rank() % 2;
    options.data = {.threads = replica.rank(), .batches_ahead = 1 + replica.rank()};
    if (replica.rank() == 1) options.on_step = [](const StepReport&) {};
    Trainer<double> trainer(replica, Model<double>(kImage, mlp<double>()), data.training, data.test, options);
    checksums[static_cast<std::size_t>(replica.rank())] = trainer.fit().parameters_checksum.value();
  });
  EXPECT_EQ(checksums, std::vector<std::uint32_t>(kReplicas, checksums[0]));
}

TEST(Agreement, ShardsInsteadOfTheWholeSetAreRefused) {
  const auto shard = [](Plan& plan) { plan.data.training = synthetic_dataset(250, kImage, kClasses, kSeed + 1); };
  const auto messages = disagreement(shard);
  for (const std::string& message : messages) {
    EXPECT_TRUE(contains(message, "the checksum of the training data is "));
    EXPECT_TRUE(contains(message, "every rank needs the whole data set, the same on all"));
  }
  expect_named([](Plan& plan) { plan.data.training = synthetic_dataset(249, kImage, kClasses, kSeed); },
               "the number of samples of the training data", "250", "249");
}

TEST(Agreement, TestDataAreCompared) {
  expect_named([](Plan& plan) { plan.data.test = synthetic_dataset(129, kImage, kClasses, kSeed); },
               "the number of samples of the test data", "130", "129");
  expect_named([](Plan& plan) { plan.data.test = nullptr; }, "the number of samples of the test data", "130",
               "missing");
}

/// `samples` images of bytes.
std::shared_ptr<const Dataset> bytes(std::int32_t classes, Normalization normalization, std::int32_t last_label = 0) {
  std::vector<std::int32_t> labels(250);
  labels.back() = last_label;
  return memory_dataset({.shape = kImage,
                         .inputs = std::vector<std::uint8_t>(250 * 64, 7),
                         .normalization = {normalization},
                         .labels = labels,
                         .classes = classes});
}

/// Samples of 3 classes with several labels each.
std::shared_ptr<const Dataset> with_labels(std::int64_t labels_per_sample) {
  return memory_dataset({.shape = kImage,
                         .inputs = std::vector<std::uint8_t>(250 * 64, 7),
                         .labels = std::vector<std::int32_t>(static_cast<std::size_t>(250 * labels_per_sample)),
                         .classes = 3,
                         .labels_per_sample = labels_per_sample});
}

TEST(Agreement, LabelsClassesAndNormalizationAreCompared) {
  const auto compare = [](std::shared_ptr<const Dataset> ours, std::shared_ptr<const Dataset> theirs) {
    std::string message;
    run_replicas(2, [&](Communicator& replica) {
      const std::string mine = message_of<Mismatch>([&] {
        const Trainer<double> trainer(replica, Model<double>(kImage, mlp<double>()),
                                      replica.rank() == 0 ? ours : theirs, nullptr, options_for(3));
      });
      if (replica.rank() == 0) message = mine;
    });
    return message;
  };
  const auto ours = bytes(3, {});
  EXPECT_TRUE(contains(compare(ours, bytes(4, {})), "the number of classes of the training data is 3 on rank 0"));
  EXPECT_TRUE(contains(compare(ours, bytes(3, {.mean = 0.5})), "the checksum of the training data is "));
  EXPECT_TRUE(contains(compare(ours, bytes(3, {}, 1)), "the checksum of the training data is "));
  EXPECT_TRUE(
      contains(compare(with_labels(1), with_labels(2)), "the labels per sample of the training data is 1 on rank 0"));
}

TEST(Agreement, ModelsAreCompared) {
  const Layers<double> wide = [] {
    return layers<double>({[] { return dense<double>(17); }, relu<double>, [] { return dense<double>(kClasses); }});
  };
  expect_named([&](Plan& plan) { plan.make = wide; }, "layer 0 of the model", "'dense, 16 units', output 16",
               "'dense, 17 units', output 17");
  const Layers<double> longer = [] {
    return layers<double>({[] { return dense<double>(16); }, relu<double>, [] { return dense<double>(kClasses); },
                           [] { return dropout<double>(0.5); }});
  };
  expect_named([&](Plan& plan) { plan.make = longer; }, "layer 3 of the model", "missing", "'dropout 0.5', output 4");
}

TEST(Agreement, PrecisionIsCompared) {
  std::vector<std::string> messages(2);
  run_replicas(2, [&](Communicator& replica) {
    const Data data;
    const auto construct = [&]<class Scalar>(Scalar) {
      const Trainer<Scalar> trainer(replica, Model<Scalar>(kImage, mlp<Scalar>()), data.training, data.test,
                                    options_for(3));
    };
    messages[static_cast<std::size_t>(replica.rank())] =
        message_of<Mismatch>([&] { replica.rank() == 0 ? construct(1.0F) : construct(1.0); });
  });
  for (const std::string& message : messages) {
    EXPECT_TRUE(contains(message, "the precision is f32 on rank 0 ("));
    EXPECT_TRUE(contains(message, ") and f64 on rank 1 ("));
  }
}

TEST(Agreement, DataToEvaluateAreCompared) {
  std::vector<std::string> other_data(kReplicas), other_shape(kReplicas);
  run_replicas(kReplicas, [&](Communicator& replica) {
    const auto rank = static_cast<std::size_t>(replica.rank());
    const Data data;
    Trainer<double> trainer(replica, Model<double>(kImage, mlp<double>()), data.training, data.test, options_for(3));
    const auto mine = synthetic_dataset(130, kImage, kClasses, replica.rank() == kOdd ? 8 : 9);
    other_data[rank] = message_of<Mismatch>([&] { trainer.evaluate(*mine); });
    // One batch: only one rank would have computed anything.
    const auto odd = synthetic_dataset(5, {8, 9, 1}, kClasses, kSeed);
    other_shape[rank] = message_of<InvalidArgument>([&] { trainer.evaluate(*odd); });
    EXPECT_EQ(trainer.evaluate(*data.test).loss, trainer.evaluate(*data.test).loss);
  });
  for (const std::string& message : other_data) EXPECT_TRUE(contains(message, "the checksum of the data to evaluate"));
  for (const std::string& message : other_shape)
    EXPECT_TRUE(contains(message, "those of the data to evaluate are 8x9x1"));
}

TEST(Agreement, ErrorsOfOneRankComeBeforeTheComparison) {
  for (const std::string& message : disagreement<InvalidArgument>([](Plan& plan) { plan.data.training = nullptr; })) {
    EXPECT_TRUE(contains(message, "a trainer needs training data"));
  }
}

TEST(Misuse, ATrainerThatWasMovedFromSaysSo) {
  run_replicas(1, [&](Communicator& replica) {
    const Data data;
    Trainer<double> first(replica, Model<double>(kImage, mlp<double>()), data.training, data.test, options_for(3));
    Trainer<double> second = std::move(first);
    // NOLINTBEGIN(bugprone-use-after-move): that is the test.
    EXPECT_TRUE(contains(message_of<InvalidArgument>([&] { first.fit(); }), "this trainer was moved from"));
    EXPECT_THROW(first.evaluate(*data.test), InvalidArgument);
    EXPECT_THROW(first.model(), InvalidArgument);
    EXPECT_THROW((void)first.training_steps(), InvalidArgument);
    EXPECT_THROW((void)first.resumed_from(), InvalidArgument);
    // NOLINTEND(bugprone-use-after-move)
    EXPECT_EQ(second.fit().training_steps, 3);
  });
}

TEST(Misuse, ATrainerNeedsACommunicatorAndAModel) {
  const Data data;
  EXPECT_TRUE(contains(message_of<InvalidArgument>([&] {
                         const Trainer<double> trainer({}, Model<double>(kImage, mlp<double>()), data.training, nullptr,
                                                       options_for(3));
                       }),
                       "a trainer needs a communicator"));
  std::vector<std::string> messages(2);
  run_replicas(2, [&](Communicator& replica) {
    Model<double> model(kImage, mlp<double>());
    std::optional<Model<double>> taken;
    if (replica.rank() == 1) taken.emplace(std::move(model));
    // NOLINTBEGIN(bugprone-use-after-move): that is the test.
    messages[static_cast<std::size_t>(replica.rank())] = message_of<InvalidArgument>(
        [&] { const Trainer<double> trainer(replica, std::move(model), data.training, nullptr, options_for(3)); });
    // NOLINTEND(bugprone-use-after-move)
  });
  for (const std::string& message : messages) EXPECT_TRUE(contains(message, "this model was moved from"));
}

TEST(Misuse, ATrainerThatOutlivesItsJobRaises) {
  const test::TemporaryDirectory directory;
  for (const int replicas : {1, 2}) {
    const Data data;
    std::vector<std::unique_ptr<Trainer<double>>> trainers(static_cast<std::size_t>(replicas));
    run_replicas(replicas, [&](Communicator& replica) {
      TrainerOptions options = options_for(3);
      options.checkpoints.directory = directory.path() / std::to_string(replicas);
      trainers[static_cast<std::size_t>(replica.rank())] = std::make_unique<Trainer<double>>(
          replica, Model<double>(kImage, mlp<double>()), data.training, data.test, options);
    });
    for (auto& trainer : trainers) {
      EXPECT_THROW(trainer->fit(), InvalidArgument);
      EXPECT_THROW(trainer->evaluate(*data.test), InvalidArgument);
      trainer->model().parameters().host()[0] = 1;  // windows stay
      EXPECT_NO_THROW(trainer.reset());
    }
  }
}

/// Reports of the ranks of a training of 20 steps, in which the last rank asks to stop in training step `step`.
std::vector<EpochReport> stopped_in(std::int64_t step, const std::function<void(TrainerOptions&)>& alter) {
  std::vector<EpochReport> reports(2);
  run_replicas(2, [&](Communicator& replica) {
    const Data data;
    TrainerOptions options = options_for(20);
    alter(options);
    std::int64_t asked = 0;
    if (replica.rank() == 1) options.stop_requested = [&] { return ++asked >= step; };
    Trainer<double> trainer(replica, Model<double>(kImage, mlp<double>()), data.training, data.test, options);
    reports[static_cast<std::size_t>(replica.rank())] = trainer.fit();
  });
  return reports;
}

TEST(StopRequested, AllRanksStopAfterTheStepOfTheFirstRequest) {
  for (const bool deterministic : {false, true}) {
    // An epoch has 8 training steps.
    for (const std::int64_t step : {1, 5, 8}) {
      const auto reports = stopped_in(step, [&](TrainerOptions& options) { options.deterministic = deterministic; });
      for (const EpochReport& report : reports) {
        EXPECT_TRUE(report.stopped);
        EXPECT_EQ(report.training_steps, step);
        EXPECT_FALSE(report.test);
      }
    }
  }
}

TEST(StopRequested, TrainingGoesOnFromTheCheckpoint) {
  const test::TemporaryDirectory directory;
  const auto keep = [&](TrainerOptions& options) { options.checkpoints.directory = directory.path(); };
  EXPECT_EQ(stopped_in(5, keep)[0].training_steps, 5);
  const auto resumed = stopped_in(100, [&](TrainerOptions& options) {
    keep(options);
    options.checkpoints.resume = true;
  });
  const auto whole = stopped_in(100, [](TrainerOptions&) {});
  for (const EpochReport& report : resumed) {
    EXPECT_FALSE(report.stopped);
    EXPECT_EQ(report.training_steps, 20);
    EXPECT_EQ(report.parameters_checksum, whole[0].parameters_checksum);
  }
}

TEST(StopRequested, InTheLastStepChangesNothing) {
  for (const EpochReport& report : stopped_in(20, [](TrainerOptions&) {})) {
    EXPECT_FALSE(report.stopped);
    EXPECT_TRUE(report.test);
  }
}

TEST(StopRequested, NeedsAveraging) {
  run_replicas(2, [&](Communicator& replica) {
    const Data data;
    TrainerOptions options = options_for(3);
    options.averaging = false;
    options.stop_requested = [] { return false; };
    EXPECT_TRUE(contains(message_of<InvalidArgument>([&] {
                           const Trainer<double> trainer(replica, Model<double>(kImage, mlp<double>()), data.training,
                                                         nullptr, options);
                         }),
                         "leave stop_requested empty"));
  });
}

}  // namespace
}  // namespace farandole::trainer
