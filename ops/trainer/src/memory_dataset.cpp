// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "byte_values.h"
#include "checksum.h"
#include "farandole/core/error.h"
#include "farandole/trainer/dataset.h"

namespace farandole::trainer {
namespace {

template <class Value>
std::uint32_t checksum_of(const std::vector<Value>& values, std::uint32_t before = 0) {
  return checksum(std::as_bytes(std::span(values)), before);
}

/// @param what  "inputs of shape 2x3"   @throws InvalidArgument
void check_count(const std::string& what, std::size_t given, std::size_t samples, std::size_t elements_per_sample) {
  if (given == samples * elements_per_sample) return;
  throw InvalidArgument(fmt::format("a data set of {} samples needs {} {}, but {} were given", samples,
                                    samples * elements_per_sample, what, given));
}

class MemoryDataset final : public Dataset {
 public:
  explicit MemoryDataset(Samples samples)
      : samples_(std::move(samples)), size_(count_samples()), values_(samples_.normalization, samples_.shape) {
    check();
    checksum_ = std::visit([](const auto& inputs) { return checksum_of(inputs); }, samples_.inputs);
    if (has_bytes()) checksum_ = values_.checksum(checksum_);
    checksum_ = checksum_of(samples_.targets, checksum_of(samples_.labels, checksum_));
    checksum_ = checksum_of(samples_.weights, checksum_);
    checksum_ = trainer::checksum(samples_.class_names, checksum_);
  }

  std::int64_t size() const override { return static_cast<std::int64_t>(size_); }
  const Shape& shape() const override { return samples_.shape; }
  std::int32_t classes() const override { return samples_.classes; }
  const std::vector<std::string>& class_names() const override { return samples_.class_names; }
  std::int64_t labels_per_sample() const override { return samples_.labels_per_sample; }
  const Shape& target_shape() const override { return samples_.target_shape; }
  bool targets_are_probabilities() const override { return samples_.targets_are_probabilities; }
  std::uint32_t checksum() const override { return checksum_; }
  void gather(std::span<const std::uint32_t> samples, Batch<float>& batch) const override { write(samples, batch); }
  void gather(std::span<const std::uint32_t> samples, Batch<double>& batch) const override { write(samples, batch); }

 private:
  bool has_bytes() const { return samples_.inputs.index() == 1; }
  std::size_t input_elements() const { return static_cast<std::size_t>(elements(samples_.shape)); }
  std::size_t label_count() const { return static_cast<std::size_t>(samples_.labels_per_sample); }
  std::size_t target_elements() const { return static_cast<std::size_t>(elements(samples_.target_shape)); }

  /// By the labels or targets, if there are any, because an error about inputs then names both counts.
  std::size_t count_samples() const {
    if (!samples_.labels.empty()) return samples_.labels.size() / std::max<std::size_t>(label_count(), 1);
    if (!samples_.targets.empty()) return samples_.targets.size() / std::max<std::size_t>(target_elements(), 1);
    const std::size_t values = std::visit([](const auto& inputs) { return inputs.size(); }, samples_.inputs);
    return values / std::max<std::size_t>(input_elements(), 1);
  }

  void check() const {
    if (samples_.labels_per_sample < 1) {
      throw InvalidArgument(fmt::format("{} labels per sample; at least 1 is needed", samples_.labels_per_sample));
    }
    const std::size_t values = std::visit([](const auto& inputs) { return inputs.size(); }, samples_.inputs);
    check_count(fmt::format("inputs of shape {}", describe(samples_.shape)), values, size_, input_elements());
    if (samples_.targets_are_probabilities && samples_.target_shape != Shape{samples_.classes}) {
      throw InvalidArgument(fmt::format("targets of shape {} cannot be the probabilities of {} classes",
                                        describe(samples_.target_shape), samples_.classes));
    }
    if (!samples_.targets.empty() || !samples_.target_shape.empty()) {
      check_count(fmt::format("targets of shape {}", describe(samples_.target_shape)), samples_.targets.size(), size_,
                  target_elements());
    }
    if (!samples_.weights.empty()) check_count("weights", samples_.weights.size(), size_, 1);
    check_labels();
    for (std::size_t sample = 0; sample < samples_.weights.size(); ++sample) {
      if (samples_.weights[sample] >= 0 && std::isfinite(samples_.weights[sample])) continue;
      throw InvalidArgument(
          fmt::format("weight {} is {}; it must be a finite number, at least 0", sample, samples_.weights[sample]));
    }
  }

  void check_labels() const {
    if (samples_.labels.empty() != (samples_.classes == 0) && size_ > 0) {
      throw InvalidArgument(fmt::format("{} labels, but classes is {}", samples_.labels.size(), samples_.classes));
    }
    if (!samples_.labels.empty()) check_count("labels", samples_.labels.size(), size_, label_count());
    for (std::size_t index = 0; index < samples_.labels.size(); ++index) {
      const std::int32_t label = samples_.labels[index];
      if (label >= 0 && label < samples_.classes) continue;
      throw InvalidArgument(fmt::format("label {} is {}, which is not in [0, {})", index, label, samples_.classes));
    }
    check_class_names(samples_.class_names, samples_.classes);
  }

  template <class Scalar>
  void write_input(std::size_t first, Scalar* output) const {
    const std::size_t count = input_elements();
    if (const auto* const bytes = std::get_if<1>(&samples_.inputs)) {
      values_.convert(std::span(*bytes).subspan(first, count), output);
    } else {
      const float* const values = std::get<0>(samples_.inputs).data() + first;
      std::copy(values, values + count, output);
    }
  }

  template <class Scalar>
  void write(std::span<const std::uint32_t> samples, Batch<Scalar>& batch) const {
    const auto count = static_cast<std::int64_t>(samples.size());
    batch.inputs.resize(count, samples_.shape);
    batch.labels.resize(samples_.labels.empty() ? 0 : samples.size() * label_count());
    batch.targets.resize(samples_.targets.empty() ? 0 : count, samples_.target_shape);
    batch.weights.resize(samples_.weights.empty() ? 0 : samples.size());
    batch.targets_are_probabilities = samples_.targets_are_probabilities;
    for (std::size_t i = 0; i < samples.size(); ++i) {
      const std::size_t sample = samples[i];
      write_input(sample * input_elements(), batch.inputs.data() + i * input_elements());
      if (!batch.labels.empty()) {
        const std::int32_t* const labels = samples_.labels.data() + sample * label_count();
        std::copy(labels, labels + label_count(), batch.labels.data() + i * label_count());
      }
      if (!batch.weights.empty()) batch.weights[i] = samples_.weights[sample];
      if (batch.targets.samples() == 0) continue;
      const float* const targets = samples_.targets.data() + sample * target_elements();
      std::copy(targets, targets + target_elements(), batch.targets.data() + i * target_elements());
    }
  }

  const Samples samples_;
  const std::size_t size_;
  const ByteValues values_;  // unused if the inputs are numbers
  std::uint32_t checksum_ = 0;
};

void widen(const Tensor<float>& from, Tensor<double>& to) {
  to.resize(from.samples(), from.shape());
  std::copy(from.host().begin(), from.host().end(), to.host().begin());
}

}  // namespace

const Shape& Dataset::target_shape() const {
  static const Shape none;
  return none;
}

const std::vector<std::string>& Dataset::class_names() const {
  static const std::vector<std::string> none;
  return none;
}

void Dataset::gather(std::span<const std::uint32_t> samples, Batch<double>& batch) const {
  Batch<float> floats;
  gather(samples, floats);
  widen(floats.inputs, batch.inputs);
  widen(floats.targets, batch.targets);
  batch.labels = std::move(floats.labels);
  batch.weights = std::move(floats.weights);
  batch.targets_are_probabilities = floats.targets_are_probabilities;
}

void Dataset::gather_for_training(std::span<const std::uint32_t> samples, const TrainingDraw&,
                                  Batch<float>& batch) const {
  gather(samples, batch);
}

void Dataset::gather_for_training(std::span<const std::uint32_t> samples, const TrainingDraw&,
                                  Batch<double>& batch) const {
  gather(samples, batch);
}

std::shared_ptr<const Dataset> memory_dataset(Samples samples) {
  return std::make_shared<const MemoryDataset>(std::move(samples));
}

}  // namespace farandole::trainer
