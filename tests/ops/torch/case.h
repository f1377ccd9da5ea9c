// SPDX-License-Identifier: Apache-2.0
// A training that a JSON file describes: layers, loss, options and data. cases.py has all of them.
#pragma once

#include <filesystem>
#include <memory>
#include <utility>
#include <vector>

#include "farandole/trainer/trainer.h"
#include "fields.h"

namespace farandole::trainer::test {

/// Makes layers from a list of objects {"kind": "conv2d", "channels": 4, …}; "kind" is the maker's name in layers.h,
/// and the other fields are its arguments and options.
LayerList<double> make_layers(const Json& list);

/// Makes a loss from an object {"kind": "huber_loss", "delta": 0.5}.
LossPointer<double> make_loss(const Json& object);

/// Reads the fields of TrainerOptions that cases set. Evaluates nothing during the training.
TrainerOptions make_options(const Json& object);

/// Samples from a safetensors file with the tensors "inputs" and, if there are any, "labels", "targets" and "weights".
class CaseData final : public Dataset {
 public:
  CaseData(const std::filesystem::path& file, std::int32_t classes);
  std::int64_t size() const override { return size_; }
  const Shape& shape() const override { return inputs_.shape; }
  std::int32_t classes() const override { return classes_; }
  const Shape& target_shape() const override { return targets_.shape; }
  void gather(std::span<const std::uint32_t> samples, Batch<float>& batch) const override;
  void gather(std::span<const std::uint32_t> samples, Batch<double>& batch) const override;

 private:
  /// A tensor whose first axis are the samples.
  struct Column {
    Shape shape = {};  ///< of a sample
    std::vector<double> values = {};
  };
  template <class Scalar>
  void gather_all(std::span<const std::uint32_t> samples, Batch<Scalar>& batch) const;
  template <class Scalar>
  static void gather_column(const Column& column, std::span<const std::uint32_t> samples, Tensor<Scalar>& to);

  const std::int32_t classes_;
  std::int64_t size_ = 0;
  Column inputs_, labels_, targets_, weights_;
};

}  // namespace farandole::trainer::test
