// SPDX-License-Identifier: Apache-2.0
// A factor of a matrix product.
#pragma once

#include <cstdint>

namespace farandole::trainer {

/// A factor of a matrix product, stored row by row; the product uses its transpose if `transposed`.
template <class Scalar>
struct Factor {
  const Scalar* values;
  std::int64_t rows, columns;
  bool transposed = false;
  std::int64_t stride = 0;        ///< elements from a row to the next; 0: `columns`
  const void* rounded = nullptr;  ///< the same in the type of products, see Kernels::rounded. May be null

  std::int64_t row_stride() const { return stride > 0 ? stride : columns; }
  Factor transpose() const { return {values, rows, columns, !transposed, stride, rounded}; }
};

}  // namespace farandole::trainer
