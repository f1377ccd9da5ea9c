// SPDX-License-Identifier: Apache-2.0
// Products of row-major matrices in host memory. For float, oneDNN's sgemm picks a kernel for the processor at run
// time; for double, Eigen computes the product (docs/decisions/0002-dense-layers-use-onednn-sgemm.md).
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "kernels/factor.h"
#include "vectorized.h"

namespace farandole::trainer {

/// Computes result = left * right, or adds the product to `result`. At most one factor is transposed. No extent is 0.
/// @param stride  elements from a row of the result to the next; 0: its number of columns
void multiply(const Factor<float>& left, const Factor<float>& right, bool add, float* result, std::int64_t stride = 0);
void multiply(const Factor<double>& left, const Factor<double>& right, bool add, double* result,
              std::int64_t stride = 0);

/// Sets each of `rows` rows to `row`.
template <class Scalar>
void fill_rows(std::span<const Scalar> row, std::int64_t rows, Scalar* to) {
  for (std::int64_t k = 0; k < rows; ++k) to = std::copy(row.begin(), row.end(), to);
}

/// Sets `sums` to the sum of the rows, in their order.
template <class Scalar>
void sum_rows(const Scalar* values, std::int64_t rows, std::span<Scalar> sums) {
  const auto columns = static_cast<std::int64_t>(sums.size());
  Scalar* result = sums.data();
  std::fill(sums.begin(), sums.end(), Scalar{0});
  vectorized([=]() FARANDOLE_INLINED {
    for (std::int64_t row = 0; row < rows; ++row) {
      const Scalar* __restrict from = values + row * columns;
      Scalar* __restrict to = result;
      for (std::int64_t column = 0; column < columns; ++column) to[column] += from[column];
    }
  });
}

}  // namespace farandole::trainer
