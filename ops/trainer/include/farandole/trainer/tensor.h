// SPDX-License-Identifier: Apache-2.0
// Batches of samples, channels last, in TensorFlow's layout.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "farandole/core/export.h"

namespace farandole FARANDOLE_API {
namespace trainer {

/// Shape of a sample: {height, width, channels} for images, {features} for vectors.
using Shape = std::vector<std::int64_t>;
/// Number of elements of a sample.
std::int64_t elements(const Shape& shape);
/// The shape as text: "28x28x1".
std::string describe(const Shape& shape);

/// True for the element types of models: float and double.
template <class Scalar>
inline constexpr bool kIsTrainable = std::is_same_v<Scalar, float> || std::is_same_v<Scalar, double>;

/// A batch of samples of the same shape, in contiguous, 64-byte aligned memory that the tensor owns. `Scalar` is float
/// or double. Not thread-safe.
template <class Scalar>
class Tensor {
  static_assert(kIsTrainable<Scalar>, "farandole::trainer computes in float and double only");

 public:
  Tensor() = default;
  Tensor(std::int64_t samples, Shape shape) { resize(samples, std::move(shape)); }

  /// Changes number and shape of the samples; the contents are undefined afterwards. Memory grows if necessary and
  /// never shrinks.
  void resize(std::int64_t samples, Shape shape);

  std::int64_t samples() const { return samples_; }
  const Shape& shape() const { return shape_; }
  std::int64_t sample_elements() const { return sample_elements_; }
  std::int64_t size() const { return samples_ * sample_elements_; }
  Scalar* data() { return memory_.get(); }
  const Scalar* data() const { return memory_.get(); }
  std::span<Scalar> values() { return {data(), static_cast<std::size_t>(size())}; }
  std::span<const Scalar> values() const { return {data(), static_cast<std::size_t>(size())}; }

 private:
  struct Free {
    void operator()(Scalar* memory) const;
  };
  std::unique_ptr<Scalar, Free> memory_;
  std::int64_t capacity_ = 0, samples_ = 0, sample_elements_ = 0;
  Shape shape_;
};

}  // namespace trainer
}  // namespace FARANDOLE_API
