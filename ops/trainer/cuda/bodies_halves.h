// SPDX-License-Identifier: Apache-2.0
// Bodies that convert between f32 and a 16-bit type H, Half or BFloat16, before and after products and convolutions.
#pragma once

#include <cstdint>
#include <type_traits>

#include "body_arguments.h"
#include "farandole/internal/float16.h"

namespace farandole::trainer::cuda {

template <class H>
FARANDOLE_HOST_DEVICE inline H narrowed(float value) {
  if constexpr (std::is_same_v<H, Half>) {
    return narrow_to_half(value);
  } else {
    return narrow_to_bfloat16(value);
  }
}

/// Operands: narrow values, values. Sizes: count.
template <class H>
struct Narrow {
  FARANDOLE_HOST_DEVICE static void run(const Arguments& a, Share share) {
    const auto* values = input<float>(a, 1);
    H* narrow = output<H>(a, 0);
    for (std::int64_t i = share.first; i < a.sizes[0]; i += share.stride) narrow[i] = narrowed<H>(values[i]);
  }
};

/// Operands: narrow matrices behind each other, matrices. Sizes: elements of the matrices, matrices per sample, rows,
/// columns, elements from a row to the next of the narrow matrices; then of the matrices: elements from a sample to the
/// next, from a matrix to the next, from a row to the next.
template <class H>
struct NarrowMatrices {
  FARANDOLE_HOST_DEVICE static void run(const Arguments& a, Share share) {
    const std::int64_t heads = a.sizes[1], rows = a.sizes[2], columns = a.sizes[3];
    const auto* values = input<float>(a, 1);
    H* narrow = output<H>(a, 0);
    for (std::int64_t i = share.first; i < a.sizes[0]; i += share.stride) {
      const std::int64_t row = i / columns, column = i % columns, matrix = row / rows;
      const std::int64_t from = matrix / heads * a.sizes[5] + matrix % heads * a.sizes[6] + row % rows * a.sizes[7];
      narrow[row * a.sizes[4] + column] = narrowed<H>(values[from + column]);
    }
  }
};

/// Operands: narrow transposed matrix, matrix. Sizes: elements, rows and columns of the matrix.
template <class H>
struct NarrowTransposed {
  FARANDOLE_HOST_DEVICE static void run(const Arguments& a, Share share) {
    const std::int64_t rows = a.sizes[1], columns = a.sizes[2];
    for (std::int64_t i = share.first; i < a.sizes[0]; i += share.stride) {
      output<H>(a, 0)[i] = narrowed<H>(input<float>(a, 1)[i % rows * columns + i / rows]);
    }
  }
};

/// Operands: values, narrow values, row to add to each row or null. Sizes: count, columns.
template <class H>
struct Widen {
  FARANDOLE_HOST_DEVICE static void run(const Arguments& a, Share share) {
    const H* narrow = input<H>(a, 1);
    const auto* row = input<float>(a, 2);
    auto* values = output<float>(a, 0);
    for (std::int64_t i = share.first; i < a.sizes[0]; i += share.stride) {
      values[i] = row == nullptr ? widen(narrow[i]) : widen(narrow[i]) + row[i % a.sizes[1]];
    }
  }
};

/// Operands: transposed matrix, narrow matrix. Sizes: elements, rows and columns of the matrix.
template <class H>
struct WidenTransposed {
  FARANDOLE_HOST_DEVICE static void run(const Arguments& a, Share share) {
    const std::int64_t rows = a.sizes[1], columns = a.sizes[2];
    for (std::int64_t i = share.first; i < a.sizes[0]; i += share.stride) {
      output<float>(a, 0)[i] = widen(input<H>(a, 1)[i % rows * columns + i / rows]);
    }
  }
};

}  // namespace farandole::trainer::cuda
