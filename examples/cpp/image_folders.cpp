// SPDX-License-Identifier: Apache-2.0
// A residual network learns images from folders, on two replicas: with augmentation, read ahead by threads, and with a
// checkpoint of the best epoch.
//
//   image_folders DIRECTORY [CHECKPOINTS]     DIRECTORY has train/ and test/, each with a folder of PNG or JPEG files
//   per
//                                             class; training goes on if CHECKPOINTS holds an earlier one
#include <atomic>
#include <cstdio>
#include <exception>
#include <filesystem>

#include "farandole/trainer/augmentation.h"
#include "farandole/trainer/data_files.h"
#include "farandole/trainer/models.h"
#include "farandole/trainer/strategy.h"
#include "farandole/trainer/trainer.h"

using namespace farandole;
using namespace farandole::trainer;

constexpr std::int64_t kSide = 16;

TrainerOptions options_for(const std::filesystem::path& checkpoints) {
  TrainerOptions options;
  options.global_batch = 16;
  options.epochs = 4;
  options.optimizer = {.weight_decay = 1e-4, .nesterov = true};
  options.learning_rate = {.base = 0.02, .schedule = LearningRateSchedule::kCosine, .warmup_steps = 5};
  options.data = {.threads = 1, .batches_ahead = 2};
  options.monitor = {.value = "accuracy", .higher_is_better = true};
  if (!checkpoints.empty()) {
    options.checkpoints = {
        .directory = checkpoints, .keep_best = true, .resume = std::filesystem::exists(checkpoints / "best")};
  }
  return options;
}

int main(int argc, char** argv) try {
  if (argc < 2) {
    std::fprintf(stderr, "usage: image_folders DIRECTORY [CHECKPOINTS]\n");
    return 2;
  }
  const std::filesystem::path directory = argv[1], checkpoints = argc > 2 ? argv[2] : "";
  const ImageFolderOptions images{.height = kSide, .width = kSide};
  const auto folders = image_folder(directory / "train", images);
  const auto training = augmented(folders, {.crop_padding = 2, .flip = 0.5});
  const auto test =
      image_folder(directory / "test", {.height = kSide, .width = kSide, .classes = folders->class_names()});
  WorldOptions job;
  job.replicas = 2;
  MirroredStrategy strategy(job);
  std::atomic<bool> learned = false;
  strategy.run([&](Communicator& replica) {
    const Shape shape{kSide, kSide, 3};
    Model<float> model(shape, layers_of<float>("resnet18", {.input = shape, .classes = folders->classes()}));
    Trainer<float> trainer(replica, std::move(model), training, test, options_for(checkpoints));
    if (replica.rank() == 0 && !trainer.resumed_from().empty()) {
      std::printf("goes on after %lld training steps\n", static_cast<long long>(trainer.training_steps()));
    }
    const EpochReport report = trainer.fit();
    learned = report.test->metric("accuracy") > 0.8;
    if (replica.rank() != 0) return;
    std::printf(
        "%lld images of %d classes: %.0f %% of the test images are right, %.1f %% of the time waiting for input\n",
        static_cast<long long>(folders->size()), folders->classes(), 100 * report.test->metric("accuracy"),
        100 * report.input_waiting_share);
  });
  return learned ? 0 : 1;
} catch (const std::exception& error) {
  std::fprintf(stderr, "image_folders: %s\n", error.what());
  return 1;
}
