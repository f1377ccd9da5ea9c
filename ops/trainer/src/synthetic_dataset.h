// SPDX-License-Identifier: Apache-2.0
// Samples that are computed when they are first needed, in host memory or on a device.
#pragma once

#include <cstdint>
#include <mutex>
#include <span>
#include <variant>
#include <vector>

#include "farandole/trainer/dataset.h"
#include "kernels/kernels.h"

namespace farandole::trainer {

/// Synthetic samples, without targets and weights. The first `gather` draws all of them, and keeps them in host memory.
/// A training on devices calls `draw` with the kernels of its device instead, and copies the indices of the samples
/// only. Both give the same bits. Const after construction, but for the samples that std::call_once keeps.
class FARANDOLE_API SyntheticDataset final : public Dataset {
 public:
  using Source = std::variant<SyntheticClasses, SyntheticText>;

  /// @param source  has the sizes of `shape`
  SyntheticDataset(std::int64_t size, Shape shape, const Source& source);

  /// Returns `data` as a synthetic dataset; null if it is another, also if it contains one and changes its samples.
  static const SyntheticDataset* from(const Dataset& data) { return dynamic_cast<const SyntheticDataset*>(&data); }

  std::int64_t size() const override { return size_; }
  const Shape& shape() const override { return shape_; }
  std::int32_t classes() const override { return classes_; }
  std::int64_t labels_per_sample() const override { return labels_per_sample_; }
  std::uint32_t checksum() const override { return checksum_; }
  void gather(std::span<const std::uint32_t> samples, Batch<float>& batch) const override { write(samples, batch); }
  void gather(std::span<const std::uint32_t> samples, Batch<double>& batch) const override { write(samples, batch); }

  /// Writes the inputs and the labels of samples, in the memory of the kernels. @pre  indices below `size()`
  template <class Scalar>
  void draw(const Kernels<Scalar>& kernels, const DrawnSamples<Scalar>& to) const {
    std::visit([&](const auto& source) { kernels.samples().draw(source, to); }, source_);
  }

 private:
  template <class Scalar>
  void write(std::span<const std::uint32_t> samples, Batch<Scalar>& batch) const;
  void draw_all() const;

  const std::int64_t size_;
  const Shape shape_;
  const Source source_;
  std::int32_t classes_ = 0;
  std::int64_t labels_per_sample_ = 1;
  std::uint32_t checksum_ = 0;
  mutable std::once_flag is_drawn_;
  mutable std::vector<float> inputs_;
  mutable std::vector<std::int32_t> labels_;
};

}  // namespace farandole::trainer
