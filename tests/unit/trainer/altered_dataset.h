// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <utility>

#include "farandole/trainer/dataset.h"

namespace farandole::trainer::test {

/// A data set of a program's own: the samples of another data set, whose batches `alter` changes.
class AlteredDataset final : public Dataset {
 public:
  using Alter = std::function<void(std::span<const std::uint32_t> samples, Batch<float>& batch)>;
  AlteredDataset(std::shared_ptr<const Dataset> data, Alter alter) : data_(std::move(data)), alter_(std::move(alter)) {}

  std::int64_t size() const override { return data_->size(); }
  const Shape& shape() const override { return data_->shape(); }
  std::int32_t classes() const override { return data_->classes(); }
  std::int64_t labels_per_sample() const override { return data_->labels_per_sample(); }
  const Shape& target_shape() const override { return data_->target_shape(); }
  bool targets_are_probabilities() const override { return data_->targets_are_probabilities(); }
  void gather(std::span<const std::uint32_t> samples, Batch<float>& batch) const override {
    data_->gather(samples, batch);
    alter_(samples, batch);
  }

 private:
  const std::shared_ptr<const Dataset> data_;
  const Alter alter_;
};

}  // namespace farandole::trainer::test
