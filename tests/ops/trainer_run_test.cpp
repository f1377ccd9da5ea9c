// SPDX-License-Identifier: Apache-2.0
// The course of a training: callbacks and their order, stop(), early stopping, when checkpoints are written, the best
// one, and what a resume may change.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <filesystem>
#include <functional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "farandole/core/error.h"
#include "followed_training.h"

namespace farandole::trainer {
namespace {

using test::contains;
using test::Course;
using test::errors_of;
using test::follow;
using test::options_for;
using test::TemporaryDirectory;
using testing::ElementsAre;
using testing::ElementsAreArray;

/// Training steps of an epoch of the small training.
constexpr std::int64_t kPerEpoch = 8;

/// Names of the files of a directory, sorted, without the lock.
std::vector<std::string> files_of(const std::filesystem::path& directory) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    const std::string name = entry.path().filename().string();
    if (name.front() != '.') names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

/// Options that append a word to `events` in each callback.
TrainerOptions recorded(TrainerOptions options, std::vector<std::string>& events) {
  options.before_epoch = [&](std::int64_t epoch) { events.push_back(fmt::format("epoch {}", epoch)); };
  options.before_step = [&](std::int64_t step) { events.push_back(fmt::format("step {}", step)); };
  options.on_step = [&](const StepReport& report) { events.push_back(fmt::format("did {}", report.training_step)); };
  options.before_checkpoint = [&](std::int64_t step) { events.push_back(fmt::format("save {}", step)); };
  options.on_checkpoint = [&](const CheckpointReport& report) {
    EXPECT_TRUE(std::filesystem::exists(report.path / "manifest.json"));
    events.push_back(fmt::format("saved {}", report.training_step));
  };
  options.on_epoch = [&](const EpochReport& report) {
    EXPECT_TRUE(report.test) << "the evaluation comes first";
    events.push_back(fmt::format("end {}", report.epoch));
  };
  return options;
}

TEST(Callbacks, ComeInTheOrderOfThePageOnEveryRank) {
  const TemporaryDirectory directory;
  TrainerOptions options = options_for(3);
  options.global_batch = 125;  // two training steps an epoch
  options.evaluate_every = 1;
  options.checkpoints.directory = directory.path();
  std::vector<std::vector<std::string>> events(2);
  const auto alter = [&](TrainerOptions& mine, int rank) {
    mine = recorded(std::move(mine), events[static_cast<std::size_t>(rank)]);
  };
  follow(2, options, alter);
  options.checkpoints.resume = true;
  options.max_steps = 4;
  follow(2, options, alter);
  for (std::vector<std::string>& of_rank : events) {
    // Training goes on while a checkpoint is written: at the latest it is reported before the next one, or at the end.
    const auto take = [&](const std::string& saved, const std::string& after, const std::string& before) {
      const auto found = std::find(of_rank.begin(), of_rank.end(), saved);
      ASSERT_NE(found, of_rank.end()) << saved;
      EXPECT_LT(std::find(of_rank.begin(), of_rank.end(), after), found);
      EXPECT_LT(found, std::find(of_rank.begin(), of_rank.end(), before));
      of_rank.erase(found);
    };
    take("saved 2", "save 2", "save 3");
    take("saved 3", "save 3", "step 4");
    take("saved 4", "save 4", "none");
    EXPECT_THAT(of_rank, ElementsAre("epoch 1", "step 1", "did 1", "step 2", "did 2", "save 2", "end 1",  //
                                     "epoch 2", "step 3", "did 3", "save 3",                              //
                                     "epoch 2", "step 4", "did 4", "save 4", "end 2"));
  }
}

TEST(Callbacks, OneThatThrowsOnOneRankIsTheReasonOnTheOthers) {
  using Break = std::function<void(TrainerOptions&)>;
  const auto fail = [](auto&&...) { throw std::runtime_error("no more coffee"); };
  const std::vector<std::pair<std::string, Break>> cases{
      {"before_epoch", [&](TrainerOptions& mine) { mine.before_epoch = fail; }},
      {"before_step", [&](TrainerOptions& mine) { mine.before_step = fail; }},
      {"on_step", [&](TrainerOptions& mine) { mine.on_step = fail; }},
      {"on_epoch", [&](TrainerOptions& mine) { mine.on_epoch = fail; }},
      {"before_checkpoint", [&](TrainerOptions& mine) { mine.before_checkpoint = fail; }},
      {"on_checkpoint", [&](TrainerOptions& mine) { mine.on_checkpoint = fail; }}};
  for (const auto& [name, breaks] : cases) {
    SCOPED_TRACE(name);
    const TemporaryDirectory directory;
    std::vector<std::string> texts(2);
    try {
      run_replicas(2, [&, &breaks = breaks](Communicator& replica) {
        const test::Data data;
        TrainerOptions options = options_for(20);
        options.checkpoints.directory = directory.path();
        if (replica.rank() == 1) breaks(options);
        try {
          Trainer<double> trainer(replica, Model<double>(test::kImage, test::mlp<double>()), data.training, data.test,
                                  options);
          trainer.fit();
        } catch (const std::exception& error) {
          texts[static_cast<std::size_t>(replica.rank())] = error.what();
          throw;
        }
      });
    } catch (const std::exception&) {
    }
    EXPECT_TRUE(contains(texts[0], "TrainerOptions::" + name + " threw: no more coffee"));
    EXPECT_EQ(texts[1], "no more coffee");
  }
}

/// Reports of two ranks, of which the last gets its trainer into the hands of its callbacks.
std::vector<EpochReport> stopped_by(
    const std::function<void(TrainerOptions&, const std::function<void()>& stop)>& arrange) {
  std::vector<EpochReport> reports(2);
  run_replicas(2, [&](Communicator& replica) {
    const test::Data data;
    TrainerOptions options = options_for(30);
    options.evaluate_every = 1;
    Trainer<double>* mine = nullptr;
    if (replica.rank() == 1) arrange(options, [&mine] { mine->stop(); });
    Trainer<double> trainer(replica, Model<double>(test::kImage, test::mlp<double>()), data.training, data.test,
                            options);
    mine = &trainer;
    reports[static_cast<std::size_t>(replica.rank())] = trainer.fit();
    const EpochReport next = trainer.fit();
    EXPECT_FALSE(next.stopped) << "the request is used up";
    EXPECT_EQ(next.training_steps, 30);
  });
  return reports;
}

TEST(Stop, FromACallbackOfOneRankEndsAllAtTheSameStep) {
  const auto before_step = stopped_by([](TrainerOptions& options, const std::function<void()>& stop) {
    options.before_step = [stop](std::int64_t step) {
      if (step == 5) stop();
    };
  });
  const auto on_step = stopped_by([](TrainerOptions& options, const std::function<void()>& stop) {
    options.on_step = [stop](const StepReport& report) {
      if (report.training_step == 5) stop();
    };
  });
  const auto on_epoch = stopped_by([](TrainerOptions& options, const std::function<void()>& stop) {
    options.on_epoch = [stop](const EpochReport& report) {
      if (report.epoch == 2) stop();
    };
  });
  for (const std::size_t rank : {0, 1}) {
    EXPECT_TRUE(before_step[rank].stopped);
    EXPECT_EQ(before_step[rank].training_steps, 5);
    EXPECT_TRUE(on_step[rank].stopped);
    EXPECT_EQ(on_step[rank].training_steps, 6);
    EXPECT_TRUE(on_epoch[rank].stopped);
    EXPECT_EQ(on_epoch[rank].training_steps, 2 * kPerEpoch);
  }
}

TEST(Stop, FromAnotherThreadEndsAnEndlessTraining) {
  run_replicas(1, [&](Communicator& replica) {
    const test::Data data;
    TrainerOptions options = options_for(0);
    options.epochs = 1'000'000'000;
    std::atomic<bool> trains{false};
    options.on_step = [&](const StepReport&) { trains = true; };
    Trainer<double> trainer(replica, Model<double>(test::kImage, test::mlp<double>()), data.training, nullptr, options);
    std::thread other([&] {
      while (!trains) std::this_thread::yield();
      trainer.stop();
    });
    EXPECT_TRUE(trainer.fit().stopped);
    other.join();
  });
}

TEST(Stop, NeedsAveraging) {
  run_replicas(2, [&](Communicator& replica) {
    const test::Data data;
    TrainerOptions options = options_for(3);
    options.averaging = false;
    Trainer<double> trainer(replica, Model<double>(test::kImage, test::mlp<double>()), data.training, nullptr, options);
    EXPECT_TRUE(
        contains(farandole::test::message_of<InvalidArgument>([&] { trainer.stop(); }), "cannot stop together"));
  });
}

/// Descends for two epochs, then ascends: the loss falls, then rises.
class DownAndUp final : public UpdateRule<double> {
 public:
  std::string name() const override { return "down and up"; }
  std::vector<std::string> states() const override { return {}; }
  void update(VectorView<double> values, VectorView<const double> gradients, std::span<const VectorView<double>>,
              const UpdateFacts& facts) override {
    const double rate = facts.training_step < 2 * kPerEpoch ? facts.learning_rate : -facts.learning_rate;
    for (std::size_t i = 0; i < values.size(); ++i) values.host()[i] -= rate * gradients.host()[i];
  }
};

/// A training of ten epochs, of which the second is the best.
TrainerOptions getting_worse() {
  TrainerOptions options = options_for(10 * kPerEpoch);
  options.evaluate_every = 1;
  options.optimizer.kind = OptimizerKind::kOwn;
  options.optimizer.own.f64 = [] { return std::make_unique<DownAndUp>(); };
  return options;
}

TEST(EarlyStopping, EndsAfterThePatienceOnEveryRank) {
  for (const std::int64_t patience : {1, 2}) {
    TrainerOptions options = getting_worse();
    options.monitor.patience = patience;
    std::vector<double> losses;
    const auto courses = follow(2, options, [&](TrainerOptions& mine, int rank) {
      if (rank == 0) mine.on_epoch = [&](const EpochReport& report) { losses.push_back(report.test->loss); };
    });
    std::int64_t bad = 0;
    std::size_t epochs = 0;
    for (double best = INFINITY; epochs < losses.size() && bad < patience; ++epochs) {
      bad = losses[epochs] < best ? 0 : bad + 1;
      best = std::min(best, losses[epochs]);
    }
    EXPECT_EQ(bad, patience) << "the training was to get worse";
    EXPECT_EQ(epochs, losses.size()) << "it ends as soon as the patience does";
    for (const Course& course : courses) {
      EXPECT_TRUE(course.report.stopped_early);
      EXPECT_FALSE(course.report.stopped);
      EXPECT_EQ(course.report.epoch, static_cast<std::int64_t>(epochs));
    }
  }
}

TEST(EarlyStopping, AResumeCountsOnAndAStopLosesNothing) {
  TrainerOptions options = getting_worse();
  options.monitor.patience = 3;
  const Course whole = follow(1, options)[0];
  ASSERT_TRUE(whole.report.stopped_early);
  const TemporaryDirectory directory;
  options.checkpoints.directory = directory.path();
  EpochReport report;
  for (std::int64_t parts = 0; parts < 20 && !report.stopped_early; ++parts) {
    TrainerOptions part = options;
    part.checkpoints.resume = parts > 0;
    // Each part stops after a training step that may be the last of an epoch, before its evaluation.
    part.stop_requested = [asked = 0]() mutable { return ++asked == 4; };
    report = follow(1, part)[0].report;
  }
  EXPECT_EQ(report.training_steps, whole.report.training_steps);
  EXPECT_EQ(report.parameters_checksum, whole.report.parameters_checksum);
  options.checkpoints.resume = true;
  EXPECT_EQ(follow(1, options)[0].report.training_steps, report.training_steps) << "there is no patience left";
  options.monitor.patience = 4;
  EXPECT_EQ(follow(1, options)[0].report.training_steps, report.training_steps + kPerEpoch);
}

TEST(EarlyStopping, ChangesBelowTheSmallestDoNotCount) {
  TrainerOptions options = options_for(10 * kPerEpoch);
  options.monitor = {.min_delta = 100, .patience = 2};
  EXPECT_EQ(follow(1, options)[0].report.training_steps, 3 * kPerEpoch) << "the first, and two that are not better";
  options.monitor = {.value = "accuracy", .higher_is_better = true, .min_delta = 1, .patience = 1};
  EXPECT_EQ(follow(1, options)[0].report.training_steps, 2 * kPerEpoch);
}

TEST(EarlyStopping, AnUnknownResultIsRefusedWithTheKnownOnes) {
  TrainerOptions options = options_for(3);
  options.monitor = {.value = "f1", .patience = 1};
  for (const std::string& message : errors_of<InvalidArgument>(2, options)) {
    EXPECT_TRUE(contains(message, "the monitor watches 'f1', which this training does not compute"));
    EXPECT_TRUE(contains(message, "accuracy"));
  }
}

TEST(Checkpoints, AreWrittenAfterSteps) {
  const TemporaryDirectory directory;
  TrainerOptions options = options_for(11);
  options.checkpoints = {.directory = directory.path(), .every_epochs = 0, .every_steps = 4, .keep = 10};
  follow(2, options);
  EXPECT_THAT(files_of(directory.path()), ElementsAre("step-000004", "step-000008", "step-000011"));
}

TEST(Checkpoints, AreWrittenWhenRank0sTimeHasPassed) {
  const TemporaryDirectory directory;
  TrainerOptions options = options_for(5);
  // Every training step takes longer than a nanosecond.
  options.checkpoints = {.directory = directory.path(), .every_epochs = 0, .every_minutes = 1e-11, .keep = 10};
  for (const bool deterministic : {false, true}) {
    options.deterministic = deterministic;
    options.checkpoints.directory = directory.path() / (deterministic ? "deterministic" : "fast");
    follow(2, options);
    EXPECT_EQ(files_of(options.checkpoints.directory).size(), 5U);
  }
}

TEST(Checkpoints, TheBestIsKeptBesideTheNewest) {
  const TemporaryDirectory directory;
  TrainerOptions options = getting_worse();
  options.checkpoints = {.directory = directory.path(), .keep = 1, .keep_best = true};
  std::vector<std::int64_t> best;
  const auto alter = [&](TrainerOptions& mine, int rank) {
    if (rank != 1) return;
    mine.on_checkpoint = [&](const CheckpointReport& report) {
      if (report.best) best.push_back(report.training_step);
    };
  };
  follow(2, options, alter);
  ASSERT_FALSE(best.empty());
  ASSERT_LT(best.back(), options.max_steps) << "the last epoch was not to be the best";
  const std::string name = fmt::format("step-{:06}", best.back());
  EXPECT_THAT(files_of(directory.path()), ElementsAre("best", name, "step-000080"));
  EXPECT_EQ(std::filesystem::read_symlink(directory.path() / "best"), name);

  // A resumed training knows how good the best one was.
  options.checkpoints.resume = true;
  options.max_steps = 11 * kPerEpoch;
  follow(2, options);
  EXPECT_THAT(files_of(directory.path()), ElementsAre("best", name, "step-000088"));
}

TEST(Checkpoints, TheBestIsWrittenEvenWhereNoneIsDue) {
  const TemporaryDirectory directory;
  TrainerOptions options = getting_worse();
  options.checkpoints = {.directory = directory.path(), .every_epochs = 0, .keep = 1, .keep_best = true};
  follow(1, options);
  EXPECT_EQ(files_of(directory.path()).size(), 3U) << "best, its checkpoint, and the last one";
}

TEST(Checkpoints, TheBestIsKnownThoughAStopLeftItsEvaluationOut) {
  const TemporaryDirectory directory;
  TrainerOptions options = getting_worse();
  options.checkpoints = {.directory = directory.path(), .keep = 1, .keep_best = true};
  TrainerOptions part = options;
  part.stop_requested = [asked = std::int64_t{0}]() mutable { return ++asked == 2 * kPerEpoch; };
  EXPECT_EQ(follow(2, part)[0].report.training_steps, 2 * kPerEpoch);
  EXPECT_EQ(std::filesystem::read_symlink(directory.path() / "best"), "step-000008");
  options.checkpoints.resume = true;
  options.max_steps = 3 * kPerEpoch;
  follow(2, options);
  EXPECT_THAT(files_of(directory.path()), ElementsAre("best", "step-000016", "step-000024"));
  EXPECT_EQ(std::filesystem::read_symlink(directory.path() / "best"), "step-000016");
}

TEST(Checkpoints, OfStepsOrTimeNeedADirectory) {
  TrainerOptions options = options_for(3);
  options.checkpoints.every_steps = 1;
  EXPECT_THAT(errors_of<InvalidArgument>(2, options), testing::Each(testing::HasSubstr("need a checkpoint directory")));
  options.checkpoints.every_steps = 0;
  options.checkpoints.every_minutes = 1;
  EXPECT_THAT(errors_of<InvalidArgument>(2, options), testing::Each(testing::HasSubstr("need a checkpoint directory")));
}

TEST(Fit, GoesOnAfterAnExceptionWithTheSumsOfTheEpoch) {
  run_replicas(1, [](Communicator& replica) {
    const test::Data data;
    TrainerOptions options = options_for(kPerEpoch);
    double sum = 0;
    int broken = 3;
    options.on_step = [&](const StepReport& report) {
      const std::int64_t samples = report.training_step < kPerEpoch ? 32 : 26;
      sum += report.loss * static_cast<double>(samples);
      if (report.training_step == broken) throw std::runtime_error("no more coffee");
    };
    Trainer<double> trainer(replica, Model<double>(test::kImage, test::mlp<double>()), data.training, data.test,
                            options);
    EXPECT_THROW(trainer.fit(), std::runtime_error);
    EXPECT_EQ(trainer.training_steps(), broken);
    const EpochReport report = trainer.fit();
    EXPECT_EQ(report.metrics.at(0).sums.at(1), 250) << "the epoch's metrics cover all its samples";
    EXPECT_NEAR(report.loss, sum / 250, 1e-12);
  });
}

TEST(EarlyStopping, NeedsAveraging) {
  TrainerOptions options = options_for(3);
  options.averaging = false;
  options.monitor.patience = 1;
  EXPECT_THAT(errors_of<InvalidArgument>(2, options),
              testing::Each(testing::HasSubstr("without averaging the replicas share nothing")));
}

TEST(Resume, WithAnotherMonitorForgetsTheBestResult) {
  const TemporaryDirectory directory;
  TrainerOptions options = options_for(2 * kPerEpoch);
  options.evaluate_every = 1;
  options.checkpoints = {.directory = directory.path(), .keep = 1, .keep_best = true};
  follow(1, options);
  // No accuracy is so much larger than any loss.
  options.monitor = {.value = "accuracy", .higher_is_better = true, .min_delta = 1};
  options.checkpoints.resume = true;
  options.max_steps = 3 * kPerEpoch;
  follow(1, options);
  EXPECT_EQ(std::filesystem::read_symlink(directory.path() / "best"), "step-000024");
}

TEST(Resume, WithATestSetForgetsTheBestTrainingResult) {
  const TemporaryDirectory directory;
  TrainerOptions options = options_for(2 * kPerEpoch);
  options.monitor = {.value = "accuracy", .higher_is_better = true, .min_delta = 0.9};
  options.checkpoints = {.directory = directory.path(), .keep = 1, .keep_best = true};
  follow(1, options);
  options.evaluate_every = 1;  // the test set's results count from now on
  options.checkpoints.resume = true;
  options.max_steps = 3 * kPerEpoch;
  follow(1, options);
  EXPECT_EQ(std::filesystem::read_symlink(directory.path() / "best"), "step-000024");
}

TEST(Resume, TellsWhatHasChanged) {
  const TemporaryDirectory directory;
  TrainerOptions options = options_for(0);
  options.epochs = 2;
  options.checkpoints.directory = directory.path();
  follow(1, options);
  options.epochs = 3;
  options.learning_rate.base = 0.01;
  options.checkpoints.resume = true;
  std::vector<std::string> changes;
  EpochReport report;
  run_replicas(2, [&](Communicator& replica) {
    const test::Data data;
    Trainer<double> trainer(replica, Model<double>(test::kImage, test::mlp<double>()), data.training, data.test,
                            options);
    if (replica.rank() == 0) {
      changes = trainer.changed_options();
    } else {
      EXPECT_TRUE(trainer.changed_options().empty());
    }
    const EpochReport mine = trainer.fit();
    if (replica.rank() == 0) report = mine;
  });
  EXPECT_THAT(changes, ElementsAre("replicas: 1, now 2", "epochs: 2, now 3", "learning_rate.base: 0.02, now 0.01"));
  EXPECT_EQ(report.epoch, 3) << "a finished training goes on";
}

}  // namespace
}  // namespace farandole::trainer
