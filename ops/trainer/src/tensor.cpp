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

void throw_not_host(MemorySpace space) {
  throw InvalidArgument(
      fmt::format("the values lie in {}, which the host cannot read or write; copy them to a tensor in "
                  "host memory first, or compute on the device",
                  farandole::describe(space)));
}

Buffer allocate(const TensorMemory& memory, std::size_t count, DType dtype) {
  if (!memory.allocate) {
    if (!memory.space.is_host()) throw_not_host(memory.space);
    void* const values = ::operator new(allocated_bytes(count, dtype), kAlignment);
    return {values, count, dtype, [](void* released) { ::operator delete(released, kAlignment); }};
  }
  Buffer buffer = memory.allocate(count, dtype);
  if (buffer.count() != count || buffer.dtype() != dtype || buffer.space() != memory.space) {
    throw InvalidArgument(
        fmt::format("TensorMemory::allocate was to return {} {} elements in {}, and returned {} {} "
                    "elements in {}",
                    count, name(dtype), farandole::describe(memory.space), buffer.count(), name(buffer.dtype()),
                    farandole::describe(buffer.space())));
  }
  return buffer;
}

template <class Scalar>
void Tensor<Scalar>::resize(std::int64_t samples, Shape shape) {
  const std::int64_t per_sample = elements(shape);
  if (samples < 0 || per_sample < 0) {
    throw InvalidArgument(fmt::format("tensor of {} samples of shape {}: extents must not be negative", samples,
                                      trainer::describe(shape)));
  }
  const auto needed = static_cast<std::size_t>(samples * per_sample);
  if (needed > memory_.count()) {
    memory_ = Buffer();
    samples_ = 0;  // in case that there is not enough memory
    memory_ = allocate(source_, needed, dtype_of<Scalar>);
  }
  samples_ = samples;
  sample_elements_ = per_sample;
  shape_ = std::move(shape);
}

template class Tensor<float>;
template class Tensor<double>;

}  // namespace farandole::trainer
