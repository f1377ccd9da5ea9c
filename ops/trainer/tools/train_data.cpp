// SPDX-License-Identifier: Apache-2.0
#include "train_data.h"

#include <algorithm>

#include "farandole/trainer/augmentation.h"
#include "farandole/trainer/data_files.h"

namespace farandole::trainer {
namespace {

TrainingData make_synthetic(const DataCommand& command) {
  constexpr std::int32_t kClasses = 10;
  constexpr std::uint64_t kTestDraw = 1;  // other samples than those of the training
  constexpr double kNoise = 1;
  const std::int64_t tested = std::max<std::int64_t>(command.samples / 10, 1);
  if (command.kind == "text") {
    constexpr std::int32_t kSymbols = 96;
    return {.training = synthetic_text(command.samples, command.text_length, kSymbols, command.seed),
            .test = synthetic_text(tested, command.text_length, kSymbols, command.seed, kTestDraw)};
  }
  const std::int64_t side = command.kind == "fashion-mnist" ? 28 : command.kind == "cifar10" ? 32 : command.image_size;
  const Shape shape{side, side, command.kind == "fashion-mnist" ? 1 : 3};
  return {.training = synthetic_dataset(command.samples, shape, kClasses, command.seed, kNoise),
          .test = synthetic_dataset(tested, shape, kClasses, command.seed, kNoise, kTestDraw)};
}

TrainingData read(const DataCommand& command) {
  if (command.kind == "cifar10") return load_cifar10(command.directory);
  if (command.kind == "text") {
    const TextData text = text_file_dataset(command.directory, {.length = command.text_length});
    return {.training = text.training, .test = text.test};
  }
  if (command.kind == "images") {
    ImageFolderOptions images{.height = command.image_size, .width = command.image_size};
    auto training = image_folder(command.directory / "train", images);
    images.classes = training->class_names();
    return {.training = std::move(training), .test = image_folder(command.directory / "test", images)};
  }
  return load_fashion_mnist(command.directory);
}

}  // namespace

TrainingData load_data(const DataCommand& command) {
  TrainingData data = command.synthetic ? make_synthetic(command) : read(command);
  const AugmentationOptions& augmentation = command.augmentation;
  if (augmentation.crop_padding > 0 || augmentation.flip > 0 || augmentation.cutout > 0 || augmentation.mixup > 0) {
    data.training = augmented(std::move(data.training), augmentation);
  }
  return data;
}

ModelOptions model_options_for(const TrainCommand& command, const Dataset& training) {
  ModelOptions options = command.model_options;
  options.input = training.shape();
  options.classes = options.vocabulary = training.classes();
  return options;
}

}  // namespace farandole::trainer
