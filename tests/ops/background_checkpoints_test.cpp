// SPDX-License-Identifier: Apache-2.0
// Checkpoints that are written while training goes on, on a disk that the tests stop and fill.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <filesystem>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "altered_dataset.h"
#include "farandole/core/error.h"
#include "followed_training.h"

namespace farandole::trainer {
namespace {

using test::contains;
using test::errors_of;
using test::follow;
using test::options_for;
using test::TemporaryDirectory;

/// The disk, as `fsync` shows it. Thread-safe.
class Disk {
 public:
  static Disk& here() {
    static Disk disk;
    return disk;
  }
  /// From now on fsync waits for `release`.
  void hold() {
    set([this] { is_held_ = true, was_late_ = false; });
  }
  void release() {
    set([this] { is_held_ = false; });
  }
  /// From now on fsync fails, until `set_full(false)`.
  void set_full(bool full) {
    set([this, full] { is_full_ = full; });
  }
  /// True if an fsync has given up waiting.
  bool was_late() {
    const std::lock_guard lock(mutex_);
    return was_late_;
  }
  /// Blocks until an fsync waits.
  void await_writer() {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, kLimit, [this] { return waiting_ > 0; })) was_late_ = true;
  }

  int synchronize(int descriptor) {
    {
      std::unique_lock lock(mutex_);
      if (is_full_) {
        errno = ENOSPC;
        return -1;
      }
      ++waiting_;
      changed_.notify_all();
      if (!changed_.wait_for(lock, kLimit, [this] { return !is_held_; })) {
        was_late_ = true;
        is_held_ = false;
      }
      --waiting_;
    }
    return static_cast<int>(syscall(SYS_fsync, descriptor));
  }

 private:
  static constexpr std::chrono::seconds kLimit{20};
  template <class Change>
  void set(const Change& change) {
    const std::lock_guard lock(mutex_);
    change();
    changed_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  int waiting_ = 0;
  bool is_held_ = false, is_full_ = false, was_late_ = false;
};

/// Checkpoints after each `every` training steps and at the end.
TrainerOptions saving(std::int64_t steps, std::int64_t every, const std::filesystem::path& directory) {
  TrainerOptions options = options_for(steps);
  options.optimizer.kind = OptimizerKind::kAdam;
  options.checkpoints = {.directory = directory, .every_epochs = 0, .every_steps = every, .keep = 10};
  return options;
}

bool has_checkpoint(const std::filesystem::path& directory, std::int64_t step) {
  return std::filesystem::exists(directory / fmt::format("step-{:06}", step) / "manifest.json");
}

TEST(BackgroundCheckpoints, TrainingGoesOnWhileOneIsWritten) {
  for (const int replicas : {1, 2}) {
    SCOPED_TRACE(replicas);
    const TemporaryDirectory directory;
    std::vector<std::int64_t> reported;
    bool was_there = true;
    const auto alter = [&](TrainerOptions& mine, int rank) {
      if (rank != 0) return;
      mine.before_checkpoint = [](std::int64_t step) {
        if (step == 4) Disk::here().hold();
      };
      mine.before_step = [&](std::int64_t step) {
        if (step != 7) return;
        was_there = has_checkpoint(directory.path(), 4);
        Disk::here().release();
      };
      mine.on_checkpoint = [&](const CheckpointReport& report) {
        EXPECT_TRUE(has_checkpoint(directory.path(), report.training_step));
        reported.push_back(report.training_step);
      };
    };
    follow(replicas, saving(7, 4, directory.path()), alter);
    EXPECT_FALSE(Disk::here().was_late()) << "a training step waited for the disk";
    EXPECT_FALSE(was_there) << "the checkpoint was whole before the disk had it";
    EXPECT_THAT(reported, testing::ElementsAre(4, 7));
  }
}

TEST(BackgroundCheckpoints, HoldTheBitsOfTheirTrainingStep) {
  for (const int replicas : {1, 2}) {
    SCOPED_TRACE(replicas);
    const TemporaryDirectory directory;
    TrainerOptions options = saving(7, 4, directory.path());
    const auto held = [](TrainerOptions& mine, int rank) {
      if (rank != 0) return;
      mine.before_checkpoint = [](std::int64_t step) {
        if (step == 4) Disk::here().hold();
      };
      mine.before_step = [](std::int64_t step) {
        if (step == 7) Disk::here().release();
      };
    };
    const std::vector<double> at_end = follow(replicas, options, held)[0].parameters;
    // Without the newer checkpoint the training goes on from the older one, with its parameters and states.
    std::filesystem::remove_all(directory.path() / "step-000007");
    options.checkpoints.resume = true;
    EXPECT_EQ(follow(replicas, options)[0].parameters, at_end);
  }
}

TEST(BackgroundCheckpoints, FitReturnsWhenTheLastIsWhole) {
  const TemporaryDirectory directory;
  std::jthread disk;
  const auto alter = [&](TrainerOptions& mine, int rank) {
    if (rank != 0) return;
    mine.before_checkpoint = [&](std::int64_t) {
      Disk::here().hold();
      disk = std::jthread([] {
        Disk::here().await_writer();
        Disk::here().release();
      });
    };
  };
  run_replicas(2, [&](Communicator& replica) {
    const test::Data data;
    TrainerOptions mine = saving(3, 0, directory.path());
    alter(mine, replica.rank());
    Trainer<double> trainer(replica, Model<double>(test::kImage, test::mlp<double>()), data.training, data.test, mine);
    trainer.fit();
    EXPECT_TRUE(has_checkpoint(directory.path(), 3));
    replica.barrier();
  });
  EXPECT_FALSE(Disk::here().was_late());
}

TEST(BackgroundCheckpoints, AFullDiskEndsTheTrainingOnAllRanks) {
  for (const std::int64_t every : {4, 0}) {
    SCOPED_TRACE(every);
    const TemporaryDirectory directory;
    std::vector<std::int64_t> begun;
    const auto alter = [&](TrainerOptions& mine, int rank) {
      if (rank != 0) return;
      mine.before_checkpoint = [&](std::int64_t step) {
        begun.push_back(step);
        Disk::here().set_full(true);
      };
    };
    const std::vector<std::string> errors = errors_of<DataError>(2, saving(20, every, directory.path()), alter);
    Disk::here().set_full(false);
    const std::int64_t step = every > 0 ? every : 20;
    EXPECT_THAT(begun, testing::ElementsAre(step)) << "the next one began after the error";
    for (const std::string& error : errors) {
      EXPECT_TRUE(contains(error, fmt::format("step-{:06} could not be written", step)));
      EXPECT_TRUE(contains(error, "No space left on device"));
    }
    EXPECT_FALSE(has_checkpoint(directory.path(), step));
  }
}

TEST(BackgroundCheckpoints, TheNextFitWritesWhatCouldNotBeWritten) {
  const TemporaryDirectory directory;
  run_replicas(2, [&](Communicator& replica) {
    const test::Data data;
    Trainer<double> trainer(replica, Model<double>(test::kImage, test::mlp<double>()), data.training, data.test,
                            saving(3, 0, directory.path()));
    replica.barrier();
    Disk::here().set_full(true);
    EXPECT_THROW(trainer.fit(), DataError);
    replica.barrier();
    Disk::here().set_full(false);
    replica.barrier();
    trainer.fit();
    EXPECT_TRUE(has_checkpoint(directory.path(), 3));
    replica.barrier();
  });
}

TEST(CheckpointOfAnEpoch, IsWholeThoughItsEvaluationFailed) {
  constexpr std::int64_t kPerEpoch = 8, kLast = 3 * kPerEpoch;
  TrainerOptions options = options_for(kLast);
  options.evaluate_every = 1;
  options.learning_rate.schedule = LearningRateSchedule::kPlateau;
  options.learning_rate.plateau.patience = 0;
  options.learning_rate.plateau.threshold = 0.5;  // every loss is bad, so a result that is missing changes the rates
  std::vector<double> straight, resumed;
  const auto train = [&](const std::filesystem::path& directory, bool breaks) {
    std::atomic<bool> is_broken = false;
    const auto test_set =
        std::make_shared<test::AlteredDataset>(test::Data().test, [&](std::span<const std::uint32_t>, Batch<float>&) {
          if (is_broken) throw DataError("the test set is gone");
        });
    run_replicas(2, [&](Communicator& replica) {
      TrainerOptions mine = options;
      mine.checkpoints.directory = directory;
      mine.checkpoints.keep_best = true;
      mine.checkpoints.resume_if_any = true;
      mine.on_epoch = [&](const EpochReport& report) { is_broken = breaks && report.epoch == 1; };
      Trainer<double> trainer(replica, Model<double>(test::kImage, test::mlp<double>()), test::Data().training,
                              test_set, mine);
      EXPECT_EQ(trainer.resumed_from().empty(), breaks || directory.filename() == "straight" || replica.rank() != 0);
      if (breaks) {
        EXPECT_THROW(trainer.fit(), DataError);
        return;
      }
      trainer.fit();
      const std::span<const double> values = trainer.model().parameters().host();
      if (replica.rank() == 0) (straight.empty() ? straight : resumed).assign(values.begin(), values.end());
    });
  };
  const TemporaryDirectory directory;
  train(directory.path() / "straight", false);
  train(directory.path() / "broken", true);
  EXPECT_TRUE(has_checkpoint(directory.path() / "broken", 2 * kPerEpoch));
  train(directory.path() / "broken", false);
  EXPECT_EQ(resumed, straight);
  EXPECT_EQ(std::filesystem::read_symlink(directory.path() / "broken" / "best"),
            std::filesystem::read_symlink(directory.path() / "straight" / "best"));
}

TEST(CheckpointOfAnEpoch, IsNotWrittenOfParametersThatAreNoNumbers) {
  const TemporaryDirectory directory;
  run_replicas(2, [&](Communicator& replica) {
    const test::Data data;
    TrainerOptions options = saving(4, 2, directory.path());
    Trainer<double>* diverging = nullptr;
    options.on_step = [&](const StepReport& report) {
      if (report.training_step == 4) diverging->model().parameters().host()[1] = std::nan("");
    };
    Trainer<double> trainer(replica, Model<double>(test::kImage, test::mlp<double>()), data.training, data.test,
                            options);
    diverging = &trainer;
    const std::string message = farandole::test::message_of<DataError>([&] { trainer.fit(); });
    EXPECT_TRUE(contains(message, "after training step 4 element 1 of the parameter '0."));
    EXPECT_TRUE(contains(message, "is nan"));
    EXPECT_TRUE(contains(message, (directory.path() / "step-000002").string()));
    replica.barrier();
  });
  EXPECT_FALSE(has_checkpoint(directory.path(), 4));
  EXPECT_TRUE(has_checkpoint(directory.path(), 2));
}

}  // namespace
}  // namespace farandole::trainer

/// Replaces the C library's function in this program and in the libraries that it loads.
extern "C" __attribute__((visibility("default"))) int fsync(int descriptor) {
  return farandole::trainer::Disk::here().synchronize(descriptor);
}
