// SPDX-License-Identifier: Apache-2.0
// Batches of samples, channels last, in TensorFlow's layout.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <ranges>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "farandole/core/buffer.h"
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

/// @throws InvalidArgument  always: names the device, and says what to do
[[noreturn]] void throw_not_host(MemorySpace space);

/// View of `size()` contiguous elements in host memory, or in the memory of a device. Whoever returned the view owns
/// the memory. Collectives take it as a buffer: `ranks.allreduce(model.gradients(), ReduceOp::kSum)`. Take `host()`
/// once, not in each turn of a loop.
template <class T>
class VectorView {
 public:
  VectorView() = default;
  /// @param data  address in `space`
  VectorView(T* data, std::size_t size, MemorySpace space = {}) : data_(data), size_(size), space_(space) {}
  /// Views a std::span, std::vector, std::array or another contiguous range in host memory that is no temporary.
  template <LastingRange Range>
  requires(std::is_convertible_v<decltype(std::ranges::data(std::declval<Range&>())), T*>)
      VectorView(Range&& values)  // NOLINT: implicit, as views are
      : VectorView(std::ranges::data(values), std::ranges::size(values)) {}
  operator VectorView<const T>() const requires(!std::is_const_v<T>) { return {data_, size_, space_}; }  // NOLINT

  std::size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  MemorySpace space() const { return space_; }
  /// Address of the first element, which only `space()` can read.
  T* data() const { return data_; }
  /// The elements. @throws InvalidArgument  they lie in the memory of a device
  std::span<T> host() const {
    if (!space_.is_host()) throw_not_host(space_);
    return {data_, size_};
  }
  VectorView subview(std::size_t first, std::size_t count) const { return {data_ + first, count, space_}; }

  operator ConstBufferView() const { return {data_, size_, dtype_of<std::remove_const_t<T>>, space_}; }      // NOLINT
  operator BufferView() const requires(!std::is_const_v<T>) { return {data_, size_, dtype_of<T>, space_}; }  // NOLINT

 private:
  T* data_ = nullptr;
  std::size_t size_ = 0;
  MemorySpace space_;
};

/// Where tensors lie, and how they get their memory. The default is host memory. Memory of a rank's device:
///
///     const TensorMemory memory{ranks.device(), [&](std::size_t count, DType dtype) {
///                                 return ranks.allocate(count, dtype, ranks.device());
///                               }};
struct TensorMemory {
  MemorySpace space = {};
  /// Allocates `count` elements in `space`. Empty: uninitialised host memory, aligned to 64 bytes.
  std::function<Buffer(std::size_t count, DType dtype)> allocate = {};
};
/// Allocates elements with undefined contents. @throws InvalidArgument  TensorMemory::allocate returned another number
/// of elements, or memory in another space
Buffer allocate(const TensorMemory& memory, std::size_t count, DType dtype);

/// A batch of samples of the same shape, in contiguous memory that the tensor owns: host memory, or the memory of a
/// device. `Scalar` is float or double. Not thread-safe.
///
///     Tensor<float> batch(32, {28, 28, 1});
///     for (float& value : batch.host()) value = 0;
///     ranks.allreduce(batch.view(), ReduceOp::kSum);
template <class Scalar>
class Tensor {
  static_assert(kIsTrainable<Scalar>, "farandole::trainer computes in float and double only");

 public:
  Tensor() = default;
  /// An empty tensor, whose memory `resize` will allocate from `memory`.
  explicit Tensor(TensorMemory memory) : source_(std::move(memory)) {}
  /// A tensor in host memory; the contents are undefined.
  Tensor(std::int64_t samples, Shape shape) { resize(samples, std::move(shape)); }

  /// Changes number and shape of the samples; the contents are undefined afterwards. Memory grows if necessary and
  /// never shrinks. @throws InvalidArgument  an extent is negative; or as `allocate`
  void resize(std::int64_t samples, Shape shape);

  std::int64_t samples() const { return samples_; }
  const Shape& shape() const { return shape_; }
  std::int64_t sample_elements() const { return sample_elements_; }
  std::int64_t size() const { return samples_ * sample_elements_; }
  MemorySpace space() const { return source_.space; }

  /// All elements, sample by sample. @throws InvalidArgument  they lie in the memory of a device
  std::span<Scalar> host() { return view().host(); }
  std::span<const Scalar> host() const { return view().host(); }
  VectorView<Scalar> view() { return {data(), static_cast<std::size_t>(size()), space()}; }
  VectorView<const Scalar> view() const { return {data(), static_cast<std::size_t>(size()), space()}; }
  /// Address of the first element, which only `space()` can read.
  Scalar* data() { return static_cast<Scalar*>(memory_.view().data); }
  const Scalar* data() const { return static_cast<const Scalar*>(memory_.view().data); }

 private:
  TensorMemory source_;
  Buffer memory_;  // at least size() elements
  std::int64_t samples_ = 0, sample_elements_ = 0;
  Shape shape_;
};

}  // namespace trainer
}  // namespace FARANDOLE_API
