// SPDX-License-Identifier: Apache-2.0
#include "farandole/trainer/dataset.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "checksum.h"
#include "farandole/core/error.h"
#include "farandole/trainer/random.h"
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

template <class Value>
std::span<const std::byte> bytes_of(const std::vector<Value>& values) {
  return std::as_bytes(std::span(values));
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
  return std::make_shared<const Dataset>(Shape{images.extents[1], images.extents[2], 1}, std::move(images.bytes),
                                         std::vector<std::int32_t>(labels.bytes.begin(), labels.bytes.end()), kClasses,
                                         kOfTrainingImages);
}

}  // namespace

Dataset::Dataset(Shape shape, std::vector<std::uint8_t> bytes, std::vector<std::int32_t> labels, std::int32_t classes,
                 Normalization normalization)
    : shape_(std::move(shape)), values_(std::move(bytes)), labels_(std::move(labels)), classes_(classes) {
  check(std::get<0>(values_).size());
  value_of_byte_.resize(256);
  for (std::size_t byte = 0; byte < value_of_byte_.size(); ++byte) {
    value_of_byte_[byte] = (static_cast<double>(byte) / 255 - normalization.mean) / normalization.deviation;
  }
  checksum_ = compute_checksum();
}

Dataset::Dataset(Shape shape, std::vector<float> values, std::vector<std::int32_t> labels, std::int32_t classes)
    : shape_(std::move(shape)), values_(std::move(values)), labels_(std::move(labels)), classes_(classes) {
  check(std::get<1>(values_).size());
  checksum_ = compute_checksum();
}

std::uint32_t Dataset::compute_checksum() const {
  const auto of_samples = std::visit([](const auto& values) { return trainer::checksum(bytes_of(values)); }, values_);
  return trainer::checksum(bytes_of(labels_), trainer::checksum(bytes_of(value_of_byte_), of_samples));
}

void Dataset::check(std::size_t elements_given) const {
  const auto expected = labels_.size() * static_cast<std::size_t>(elements(shape_));
  if (elements_given != expected) {
    throw InvalidArgument(fmt::format("a data set of {} samples of shape {} has {} elements, but {} were given",
                                      labels_.size(), describe(shape_), expected, elements_given));
  }
  for (std::size_t sample = 0; sample < labels_.size(); ++sample) {
    if (labels_[sample] < 0 || labels_[sample] >= classes_) {
      throw InvalidArgument(fmt::format("label {} is {}, which is not in [0, {})", sample, labels_[sample], classes_));
    }
  }
}

template <class Scalar>
void Dataset::gather(std::span<const std::uint32_t> samples, Tensor<Scalar>& inputs,
                     std::vector<std::int32_t>& labels) const {
  inputs.resize(static_cast<std::int64_t>(samples.size()), shape_);
  labels.resize(samples.size());
  const auto count = static_cast<std::size_t>(elements(shape_));
  Scalar* out = inputs.data();
  for (std::size_t i = 0; i < samples.size(); ++i, out += count) {
    labels[i] = labels_[samples[i]];
    const std::size_t first = samples[i] * count;
    if (const auto* bytes = std::get_if<0>(&values_)) {
      std::transform(bytes->data() + first, bytes->data() + first + count, out,
                     [&](std::uint8_t byte) { return static_cast<Scalar>(value_of_byte_[byte]); });
    } else {
      const float* values = std::get<1>(values_).data() + first;
      std::copy(values, values + count, out);
    }
  }
}

template void Dataset::gather(std::span<const std::uint32_t>, Tensor<float>&, std::vector<std::int32_t>&) const;
template void Dataset::gather(std::span<const std::uint32_t>, Tensor<double>&, std::vector<std::int32_t>&) const;

TrainingData load_fashion_mnist(const std::filesystem::path& directory) {
  const auto from = directory.empty() ? std::filesystem::path(kFashionMnistDirectory) : directory;
  TrainingData data{.training = load_part(from, "train"), .test = load_part(from, "t10k")};
  if (data.training->shape() != data.test->shape()) {
    throw DataError(fmt::format("{}: training images are {}, test images are {}", from.string(),
                                describe(data.training->shape()), describe(data.test->shape())));
  }
  return data;
}

std::shared_ptr<const Dataset> synthetic_dataset(std::int64_t samples, const Shape& shape, std::int32_t classes,
                                                 std::uint64_t seed, double noise) {
  const auto stream = [](std::uint64_t index) { return random_stream(RandomPurpose::kOther, {index}); };
  const CounterRandom prototypes(seed, stream(0)), deviations(seed, stream(1)), classes_drawn(seed, stream(2));
  const auto count = static_cast<std::uint64_t>(elements(shape));
  std::vector<float> values;
  std::vector<std::int32_t> labels;
  values.reserve(static_cast<std::size_t>(samples) * count);
  for (std::uint64_t sample = 0; sample < static_cast<std::uint64_t>(samples); ++sample) {
    const std::uint64_t label = classes_drawn.below(sample, static_cast<std::uint64_t>(classes));
    labels.push_back(static_cast<std::int32_t>(label));
    for (std::uint64_t i = 0; i < count; ++i) {
      values.push_back(
          static_cast<float>(prototypes.normal(label * count + i) + noise * deviations.normal(sample * count + i)));
    }
  }
  return std::make_shared<const Dataset>(shape, std::move(values), std::move(labels), classes);
}

}  // namespace farandole::trainer
