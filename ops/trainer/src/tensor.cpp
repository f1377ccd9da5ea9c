// SPDX-License-Identifier: Apache-2.0
#include "farandole/trainer/tensor.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <new>
#include <utility>

#include "farandole/core/error.h"

namespace farandole::trainer {
namespace {

constexpr std::align_val_t kAlignment{64};

}  // namespace

std::int64_t elements(const Shape& shape) {
  std::int64_t product = 1;
  for (const std::int64_t extent : shape) product *= extent;
  return product;
}

std::string describe(const Shape& shape) {
  return shape.empty() ? "scalar" : fmt::format("{}", fmt::join(shape, "x"));
}

template <class Scalar>
void Tensor<Scalar>::Free::operator()(Scalar* memory) const {
  ::operator delete(memory, kAlignment);
}

template <class Scalar>
void Tensor<Scalar>::resize(std::int64_t samples, Shape shape) {
  const std::int64_t per_sample = elements(shape);
  if (samples < 0 || per_sample < 0) {
    throw InvalidArgument(fmt::format("tensor of {} samples of shape {}: extents must not be negative", samples,
                                      trainer::describe(shape)));
  }
  const std::int64_t needed = samples * per_sample;
  if (needed > capacity_) {
    memory_.reset();
    capacity_ = 0;
    memory_.reset(static_cast<Scalar*>(::operator new(static_cast<std::size_t>(needed) * sizeof(Scalar), kAlignment)));
    capacity_ = needed;
  }
  samples_ = samples;
  sample_elements_ = per_sample;
  shape_ = std::move(shape);
}

template class Tensor<float>;
template class Tensor<double>;

}  // namespace farandole::trainer
