// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <cmath>
#include <optional>
#include <utility>

#include "byte_values.h"
#include "checksum.h"
#include "farandole/core/error.h"
#include "farandole/trainer/data_files.h"
#include "npy_file.h"

namespace farandole::trainer {
namespace {

/// Shape of a sample of an array of samples.
Shape sample_shape(const NpyFile& file) {
  if (file.shape().size() == 1) return {1};
  return {file.shape().begin() + 1, file.shape().end()};
}

bool is_float(NpyType type) {
  return type == NpyType::kF4 || type == NpyType::kF8;
}

class MappedDataset final : public Dataset {
 public:
  explicit MappedDataset(const ArrayFiles& files)
      : inputs_(files.inputs),
        shape_(sample_shape(inputs_)),
        values_(files.normalization, shape_),
        classes_(files.classes),
        class_names_(files.class_names) {
    if (!files.normalization.empty() && inputs_.type() != NpyType::kU1) {
      throw InvalidArgument(fmt::format("ArrayFiles: a normalization is for inputs of type u1, but {} has type {}",
                                        inputs_.name(), name(inputs_.type())));
    }
    open(labels_, files.labels);
    open(targets_, files.targets);
    open(weights_, files.weights);
    if (labels_) check_labels();
    if (targets_) target_shape_ = sample_shape(*targets_);
    if (weights_ && (weights_->shape().size() != 1 || !is_float(weights_->type()))) {
      throw DataError(
          fmt::format("{}: weights are one number of type f4 or f8 per sample, but the array has shape {} "
                      "and type {}",
                      weights_->name(), describe(weights_->shape()), name(weights_->type())));
    }
    checksum_ = trainer::checksum(class_names_, inputs_.checksum(values_.checksum(0)));
    for (const auto* const file : {&labels_, &targets_, &weights_}) {
      if (*file) checksum_ = (*file)->checksum(checksum_);
    }
  }

  std::int64_t size() const override { return inputs_.shape()[0]; }
  const Shape& shape() const override { return shape_; }
  std::int32_t classes() const override { return classes_; }
  const std::vector<std::string>& class_names() const override { return class_names_; }
  std::int64_t labels_per_sample() const override { return labels_per_sample_; }
  const Shape& target_shape() const override { return target_shape_; }
  std::uint32_t checksum() const override { return checksum_; }
  void gather(std::span<const std::uint32_t> samples, Batch<float>& batch) const override { write(samples, batch); }
  void gather(std::span<const std::uint32_t> samples, Batch<double>& batch) const override { write(samples, batch); }

 private:
  void open(std::optional<NpyFile>& file, const std::filesystem::path& path) const {
    if (path.empty()) return;
    file.emplace(path);
    if (file->shape()[0] == size()) return;
    throw DataError(
        fmt::format("{} has {} samples, but {} has {}", inputs_.name(), size(), file->name(), file->shape()[0]));
  }

  void check_labels() {
    if (is_float(labels_->type()) || labels_->shape().size() > 2) {
      throw DataError(
          fmt::format("{}: labels are whole numbers (u1, i4, i8), one or a row for each sample, but the array "
                      "has shape {} and type {}",
                      labels_->name(), describe(labels_->shape()), name(labels_->type())));
    }
    if (labels_->shape().size() == 2) labels_per_sample_ = labels_->shape()[1];
  }

  template <class Scalar>
  void write_inputs(std::int64_t sample, Scalar* output) const {
    const std::int64_t count = elements(shape_), first = sample * count;
    if (inputs_.type() != NpyType::kU1) return inputs_.copy(first, count, output);
    const auto* const bytes = reinterpret_cast<const std::uint8_t*>(inputs_.data().data());
    values_.convert(std::span(bytes + first, static_cast<std::size_t>(count)), output);
  }

  /// Appends the sample's labels. @throws DataError  a label is out of range
  void append_labels(std::int64_t sample, std::vector<std::int32_t>& labels) const {
    for (std::int64_t position = 0; position < labels_per_sample_; ++position) {
      std::int64_t label = 0;
      labels_->copy(sample * labels_per_sample_ + position, 1, &label);
      if (label < 0 || label >= classes_) {
        throw DataError(fmt::format("{}: a label of sample {} is {}, which is not in [0, {})", labels_->name(), sample,
                                    label, classes_));
      }
      labels.push_back(static_cast<std::int32_t>(label));
    }
  }

  void append_weight(std::int64_t sample, std::vector<float>& weights) const {
    float weight = 0;
    weights_->copy(sample, 1, &weight);
    if (!(weight >= 0) || !std::isfinite(weight)) {
      throw DataError(fmt::format("{}: the weight of sample {} is {}; it must be a finite number, at least 0",
                                  weights_->name(), sample, weight));
    }
    weights.push_back(weight);
  }

  template <class Scalar>
  void write(std::span<const std::uint32_t> samples, Batch<Scalar>& batch) const {
    const auto count = static_cast<std::int64_t>(samples.size());
    batch.inputs.resize(count, shape_);
    batch.targets.resize(targets_ ? count : 0, target_shape_);
    batch.labels.clear();
    batch.weights.clear();
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t sample = samples[static_cast<std::size_t>(i)];
      write_inputs(sample, batch.inputs.data() + i * elements(shape_));
      if (labels_) append_labels(sample, batch.labels);
      if (weights_) append_weight(sample, batch.weights);
      if (!targets_) continue;
      const std::int64_t targets = elements(target_shape_);
      targets_->copy(sample * targets, targets, batch.targets.data() + i * targets);
    }
  }

  const NpyFile inputs_;
  const Shape shape_;
  const ByteValues values_;  // unused unless the inputs are bytes
  const std::int32_t classes_;
  const std::vector<std::string> class_names_;
  std::optional<NpyFile> labels_, targets_, weights_;
  std::int64_t labels_per_sample_ = 1;
  Shape target_shape_;
  std::uint32_t checksum_ = 0;
};

}  // namespace

std::shared_ptr<const Dataset> memory_mapped_dataset(const ArrayFiles& files) {
  if (files.inputs.empty()) throw InvalidArgument("ArrayFiles: inputs is empty; name a file of numpy.save");
  if (files.classes < 0 || files.labels.empty() != (files.classes == 0)) {
    throw InvalidArgument(fmt::format("ArrayFiles: labels is '{}' and classes is {}; give both, or neither",
                                      files.labels.string(), files.classes));
  }
  check_class_names(files.class_names, files.classes);
  return std::make_shared<const MappedDataset>(files);
}

}  // namespace farandole::trainer
