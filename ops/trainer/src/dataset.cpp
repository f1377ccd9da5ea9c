// SPDX-License-Identifier: Apache-2.0
#include "farandole/trainer/dataset.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "farandole/core/error.h"
#include "idx_file.h"

namespace farandole::trainer {
namespace {

/// Returns the path of the gzipped file if it exists, else of the plain file. @throws DataError  neither exists
std::filesystem::path find_file(const std::filesystem::path& directory, const std::string& file) {
  for (const char* ending : {".gz", ""}) {
    std::filesystem::path path = directory / (file + ending);
    std::error_code ignored;
    if (std::filesystem::exists(path, ignored)) return path;
  }
  throw DataError(
      fmt::format("{}: no such file, with or without .gz. Install Fashion-MNIST with `apt-get install "
                  "dataset-fashion-mnist`, or name the directory of its four IDX files with --data-dir",
                  (directory / file).string()));
}

std::shared_ptr<const Dataset> load_part(const std::filesystem::path& directory, const std::string& part) {
  constexpr std::int32_t kClasses = 10;
  constexpr Normalization kOfTrainingImages{.mean = 0.2860, .deviation = 0.3530};
  const auto images_file = find_file(directory, part + "-images-idx3-ubyte");
  const auto labels_file = find_file(directory, part + "-labels-idx1-ubyte");
  IdxArray images = read_idx_file(images_file, 3);
  const IdxArray labels = read_idx_file(labels_file, 1);
  if (images.extents[0] != labels.extents[0]) {
    throw DataError(fmt::format("{} has {} images, but {} has {} labels", images_file.string(), images.extents[0],
                                labels_file.string(), labels.extents[0]));
  }
  const auto worst = std::max_element(labels.bytes.begin(), labels.bytes.end());
  if (*worst >= kClasses) {
    throw DataError(fmt::format("{}: label {} is {}; expected 0 to {}", labels_file.string(),
                                worst - labels.bytes.begin(), *worst, kClasses - 1));
  }
  return memory_dataset({.shape = {images.extents[1], images.extents[2], 1},
                         .inputs = std::move(images.bytes),
                         .normalization = {kOfTrainingImages},
                         .labels = {labels.bytes.begin(), labels.bytes.end()},
                         .classes = kClasses});
}

}  // namespace

TrainingData load_fashion_mnist(const std::filesystem::path& directory) {
  const auto from = directory.empty() ? std::filesystem::path(kFashionMnistDirectory) : directory;
  TrainingData data{.training = load_part(from, "train"), .test = load_part(from, "t10k")};
  if (data.training->shape() != data.test->shape()) {
    throw DataError(fmt::format("{}: training images are {}, test images are {}", from.string(),
                                describe(data.training->shape()), describe(data.test->shape())));
  }
  return data;
}

}  // namespace farandole::trainer
