// SPDX-License-Identifier: Apache-2.0
#include "train_data.h"

#include <algorithm>
#include <vector>

#include "farandole/trainer/augmentation.h"
#include "farandole/trainer/data_files.h"
#include "farandole/trainer/random.h"

namespace farandole::trainer {
namespace {

/// Random symbols; the label of each position is the next symbol, so that there is nothing to learn but their
/// frequency.
std::shared_ptr<const Dataset> synthetic_text(std::int64_t samples, std::int64_t length, std::uint64_t seed) {
  constexpr std::int32_t kSymbols = 96;
  const CounterRandom random(seed, random_stream(RandomPurpose::kOther, {}));
  std::vector<float> inputs;
  std::vector<std::int32_t> labels;
  for (std::int64_t i = 0; i < samples * length; ++i) {
    const auto symbol = [&](std::int64_t at) { return random.below(static_cast<std::uint64_t>(at), kSymbols); };
    inputs.push_back(static_cast<float>(symbol(i)));
    labels.push_back(static_cast<std::int32_t>(symbol(i + 1)));
  }
  return memory_dataset({.shape = {length},
                         .inputs = std::move(inputs),
                         .labels = std::move(labels),
                         .classes = kSymbols,
                         .labels_per_sample = length});
}

TrainingData make_synthetic(const DataCommand& command) {
  constexpr std::int32_t kClasses = 10;
  const std::int64_t tested = std::max<std::int64_t>(command.samples / 10, 1);
  if (command.kind == "text") {
    return {.training = synthetic_text(command.samples, command.text_length, command.seed),
            .test = synthetic_text(tested, command.text_length, command.seed)};
  }
  const std::int64_t side = command.kind == "fashion-mnist" ? 28 : command.kind == "cifar10" ? 32 : command.image_size;
  const Shape shape{side, side, command.kind == "fashion-mnist" ? 1 : 3};
  return {.training = synthetic_dataset(command.samples, shape, kClasses, command.seed),
          .test = synthetic_dataset(tested, shape, kClasses, command.seed)};
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
