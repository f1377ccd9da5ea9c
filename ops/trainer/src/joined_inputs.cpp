// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "checksum.h"
#include "farandole/core/error.h"
#include "farandole/trainer/outputs.h"
#include "gathered_batch.h"
#include "kernels/kernels.h"

namespace farandole::trainer {
namespace {

class JoinedInputs final : public Dataset {
 public:
  explicit JoinedInputs(std::vector<std::shared_ptr<const Dataset>> data) : data_(std::move(data)) {
    check();
    std::vector<std::uint32_t> checksums;
    std::int64_t inputs = 0, targets = 0;
    int with_targets = 0;
    for (const auto& each : data_) {
      inputs += elements(each->shape());
      checksums.push_back(each->checksum());
      if (each->target_shape().empty()) continue;
      ++with_targets;
      targets += elements(each->target_shape());
      target_shape_ = each->target_shape();
    }
    shape_ = {inputs};
    if (with_targets > 1) target_shape_ = {targets};
    const bool is_known = std::any_of(checksums.begin(), checksums.end(), [](std::uint32_t each) { return each != 0; });
    if (is_known) checksum_ = trainer::checksum(std::as_bytes(std::span(checksums)));
  }

  std::int64_t size() const override { return data_[0]->size(); }
  const Shape& shape() const override { return shape_; }
  std::int32_t classes() const override {
    const Dataset* const labelled = with_classes();
    return labelled == nullptr ? 0 : labelled->classes();
  }
  const std::vector<std::string>& class_names() const override {
    const Dataset* const labelled = with_classes();
    return labelled == nullptr ? Dataset::class_names() : labelled->class_names();
  }
  std::int64_t labels_per_sample() const override {
    const Dataset* const labelled = with_classes();
    return labelled == nullptr ? 1 : labelled->labels_per_sample();
  }
  const Shape& target_shape() const override { return target_shape_; }
  std::uint32_t checksum() const override { return checksum_; }
  bool targets_are_probabilities() const override {
    const Dataset* const labelled = with_classes();
    return labelled != nullptr && labelled->targets_are_probabilities();
  }
  bool is_sequential() const override {
    return std::any_of(data_.begin(), data_.end(), [](const auto& each) { return each->is_sequential(); });
  }
  std::shared_ptr<const Dataset> for_replica() const override {
    std::vector<std::shared_ptr<const Dataset>> of_replica = data_;
    bool differs = false;
    for (auto& each : of_replica) {
      auto own = each->for_replica();
      if (!own) continue;
      each = std::move(own);
      differs = true;
    }
    return differs ? std::make_shared<JoinedInputs>(std::move(of_replica)) : nullptr;
  }
  void gather(std::span<const std::uint32_t> samples, Batch<float>& batch) const override {
    join(samples, batch, [&](const Dataset& data, Batch<float>& part) { data.gather(samples, part); });
  }
  void gather(std::span<const std::uint32_t> samples, Batch<double>& batch) const override {
    join(samples, batch, [&](const Dataset& data, Batch<double>& part) { data.gather(samples, part); });
  }
  void gather_for_training(std::span<const std::uint32_t> samples, const TrainingDraw& draw,
                           Batch<float>& batch) const override {
    join(samples, batch,
         [&](const Dataset& data, Batch<float>& part) { data.gather_for_training(samples, draw, part); });
  }
  void gather_for_training(std::span<const std::uint32_t> samples, const TrainingDraw& draw,
                           Batch<double>& batch) const override {
    join(samples, batch,
         [&](const Dataset& data, Batch<double>& part) { data.gather_for_training(samples, draw, part); });
  }

 private:
  void check() const {
    if (data_.empty()) throw InvalidArgument("joined_inputs: no data sets");
    for (std::size_t k = 0; k < data_.size(); ++k) {
      if (data_[k] == nullptr) throw InvalidArgument(fmt::format("joined_inputs: data set {} is null", k));
      if (data_[k]->size() != data_[0]->size()) {
        throw InvalidArgument(fmt::format("joined_inputs: data set 0 has {} samples, and data set {} has {}",
                                          data_[0]->size(), k, data_[k]->size()));
      }
    }
    const auto labelled =
        std::count_if(data_.begin(), data_.end(), [](const auto& each) { return each->classes() > 0; });
    if (labelled > 1) {
      throw InvalidArgument(fmt::format("joined_inputs: {} data sets have classes; at most one may", labelled));
    }
    const auto with_targets =
        std::count_if(data_.begin(), data_.end(), [](const auto& each) { return !each->target_shape().empty(); });
    if (targets_are_probabilities() && with_targets > 1) {
      throw InvalidArgument(
          "joined_inputs: the targets of one data set are probabilities of classes, as with mixup, so no other may "
          "have targets");
    }
  }

  const Dataset* with_classes() const {
    const auto found = std::find_if(data_.begin(), data_.end(), [](const auto& each) { return each->classes() > 0; });
    return found == data_.end() ? nullptr : found->get();
  }

  /// @param gather_part  writes the samples of a data set to a batch
  template <class Scalar, class Gather>
  void join(std::span<const std::uint32_t> samples, Batch<Scalar>& batch, const Gather& gather_part) const {
    const auto count = static_cast<std::int64_t>(samples.size());
    batch.inputs.resize(count, shape_);
    batch.targets.resize(target_shape_.empty() ? 0 : count, target_shape_);
    batch.labels.clear();
    batch.weights.clear();
    batch.targets_are_probabilities = targets_are_probabilities();
    std::int64_t first_input = 0, first_target = 0;
    for (std::size_t k = 0; k < data_.size(); ++k) {
      const Dataset* const each = data_[k].get();
      Batch<Scalar> part;
      gather_part(*each, part);
      check_gathered(*each, fmt::format("data set {} of joined_inputs", k), samples, part);
      first_input += put(part.inputs, first_input, batch.inputs);
      if (!each->target_shape().empty()) first_target += put(part.targets, first_target, batch.targets);
      if (each->classes() > 0) batch.labels = part.labels;
      if (part.weights.empty()) continue;
      if (batch.weights.empty()) batch.weights.assign(samples.size(), 1.0F);
      for (std::size_t i = 0; i < samples.size(); ++i) batch.weights[i] *= part.weights[i];
    }
  }

  /// Copies a part of each sample; returns the elements of the part.
  template <class Scalar>
  static std::int64_t put(const Tensor<Scalar>& part, std::int64_t first, Tensor<Scalar>& all) {
    const std::int64_t count = part.sample_elements();
    host_kernels<Scalar>().copy_columns(part.samples(), part.data(), {0, count, count}, all.data(),
                                        {first, count, all.sample_elements()});
    return count;
  }

  const std::vector<std::shared_ptr<const Dataset>> data_;
  Shape shape_, target_shape_;
  std::uint32_t checksum_ = 0;
};

}  // namespace

std::shared_ptr<const Dataset> joined_inputs(std::vector<std::shared_ptr<const Dataset>> data) {
  return std::make_shared<JoinedInputs>(std::move(data));
}

}  // namespace farandole::trainer
