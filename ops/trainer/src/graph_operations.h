// SPDX-License-Identifier: Apache-2.0
// Operations on whole tensors of a graph: sums, products, and copies of columns.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "farandole/trainer/tensor.h"
#include "vectorized.h"

namespace farandole::trainer {

/// result = left + right. The result is another tensor.
template <class Scalar>
void add(const Tensor<Scalar>& left, const Tensor<Scalar>& right, Tensor<Scalar>& result) {
  const std::int64_t size = result.size();
  const Scalar *one = left.data(), *other = right.data();
  Scalar* to = result.data();
  vectorized([=]() FARANDOLE_INLINED {
    const Scalar* __restrict a = one, * __restrict b = other;
    Scalar* __restrict y = to;
    for (std::int64_t i = 0; i < size; ++i) y[i] = a[i] + b[i];
  });
}

/// sum += more.
template <class Scalar>
void accumulate(Tensor<Scalar>& sum, const Tensor<Scalar>& more) {
  const std::int64_t size = sum.size();
  const Scalar* from = more.data();
  Scalar* to = sum.data();
  vectorized([=]() FARANDOLE_INLINED {
    const Scalar* __restrict x = from;
    Scalar* __restrict y = to;
    for (std::int64_t i = 0; i < size; ++i) y[i] += x[i];
  });
}

/// product *= factor, element by element.
template <class Scalar>
void scale_by(Tensor<Scalar>& product, const Tensor<Scalar>& factor) {
  const std::int64_t size = product.size();
  const Scalar* from = factor.data();
  Scalar* to = product.data();
  vectorized([=]() FARANDOLE_INLINED {
    const Scalar* __restrict x = from;
    Scalar* __restrict y = to;
    for (std::int64_t i = 0; i < size; ++i) y[i] *= x[i];
  });
}

template <class Scalar>
void copy_values(const Tensor<Scalar>& from, Tensor<Scalar>& to) {
  std::copy_n(from.data(), from.size(), to.data());
}

/// A matrix's columns [first, first + count), in memory of `width` columns.
struct Columns {
  std::int64_t first = 0, count = 0, width = 0;
};

/// Copies columns of `rows` rows; `from.count` equals `to.count`.
template <class Scalar>
void copy_columns(std::int64_t rows, const Scalar* values, const Columns& from, Scalar* result, const Columns& to) {
  for (std::int64_t row = 0; row < rows; ++row) {
    std::copy_n(values + row * from.width + from.first, from.count, result + row * to.width + to.first);
  }
}

}  // namespace farandole::trainer
