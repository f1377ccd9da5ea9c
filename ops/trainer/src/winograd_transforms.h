// SPDX-License-Identifier: Apache-2.0
// The transforms of Winograd's F(4x4, 3x3), for eight channels at a time, with AVX2 and FMA.
//
// A tile is 4x4 pixels of the result. With Y = A^T [(G w G^T) * (B^T x B)] A, where x are the 6x6 pixels of the image
// that the tile depends on, w is a 3x3 kernel and * multiplies element by element, the gradient of the kernel is G^T
// [(B^T x B) * (A dY A^T)] G, summed over tiles. Source: Lavin, Gray: Fast algorithms for convolutional neural
// networks, CVPR 2016.
#pragma once

#include <immintrin.h>

#include <cstdint>

/// Marks functions that are compiled for AVX2 and FMA.
#define FARANDOLE_FMA __attribute__((target("avx2,fma")))
#define FARANDOLE_FMA_INLINED __attribute__((target("avx2,fma"), always_inline))

namespace farandole::trainer {

using Lanes = __m256;
inline constexpr std::int64_t kLanes = 8;

FARANDOLE_FMA_INLINED inline Lanes lanes_at(const float* values) {
  return _mm256_loadu_ps(values);
}
FARANDOLE_FMA_INLINED inline Lanes lanes_of(float value) {
  return _mm256_set1_ps(value);
}
/// factor * x + y
FARANDOLE_FMA_INLINED inline Lanes scaled_sum(float factor, Lanes x, Lanes y) {
  return _mm256_fmadd_ps(lanes_of(factor), x, y);
}

/// A one-dimensional transform: y = matrix * x. Each has `kFrom` and `kTo`, the lengths of x and y.

/// B^T
struct ImageTransform {
  static constexpr int kFrom = 6, kTo = 6;
  FARANDOLE_FMA_INLINED static void apply(const Lanes (&x)[kFrom], Lanes (&y)[kTo]) {
    const Lanes outer_even = scaled_sum(-4, x[2], x[4]), outer_odd = scaled_sum(-4, x[1], x[3]);
    const Lanes inner_even = x[4] - x[2], inner_odd = x[3] - x[1];
    y[0] = scaled_sum(4, x[0], scaled_sum(-5, x[2], x[4]));
    y[1] = outer_even + outer_odd;
    y[2] = outer_even - outer_odd;
    y[3] = scaled_sum(2, inner_odd, inner_even);
    y[4] = scaled_sum(-2, inner_odd, inner_even);
    y[5] = scaled_sum(4, x[1], scaled_sum(-5, x[3], x[5]));
  }
};

/// A^T
struct ResultTransform {
  static constexpr int kFrom = 6, kTo = 4;
  FARANDOLE_FMA_INLINED static void apply(const Lanes (&x)[kFrom], Lanes (&y)[kTo]) {
    const Lanes inner_sum = x[1] + x[2], inner_difference = x[1] - x[2];
    const Lanes outer_sum = x[3] + x[4], outer_difference = x[3] - x[4];
    y[0] = x[0] + inner_sum + outer_sum;
    y[1] = scaled_sum(2, outer_difference, inner_difference);
    y[2] = scaled_sum(4, outer_sum, inner_sum);
    y[3] = scaled_sum(8, outer_difference, inner_difference) + x[5];
  }
};

/// A
struct ResultGradientTransform {
  static constexpr int kFrom = 4, kTo = 6;
  FARANDOLE_FMA_INLINED static void apply(const Lanes (&x)[kFrom], Lanes (&y)[kTo]) {
    const Lanes even = x[0] + x[2], odd = x[1] + x[3];
    const Lanes scaled_even = scaled_sum(4, x[2], x[0]), half_odd = scaled_sum(4, x[3], x[1]);
    y[0] = x[0];
    y[1] = even + odd;
    y[2] = even - odd;
    y[3] = scaled_sum(2, half_odd, scaled_even);
    y[4] = scaled_sum(-2, half_odd, scaled_even);
    y[5] = x[3];
  }
};

/// G
struct KernelTransform {
  static constexpr int kFrom = 3, kTo = 6;
  FARANDOLE_FMA_INLINED static void apply(const Lanes (&x)[kFrom], Lanes (&y)[kTo]) {
    const Lanes sixth = lanes_of(1.0F / 6), ends = (x[0] + x[2]) * sixth, middle = x[1] * sixth;
    const Lanes outer = scaled_sum(1.0F / 24, x[0], x[2] * sixth), outer_middle = x[1] * lanes_of(1.0F / 12);
    y[0] = x[0] * lanes_of(0.25F);
    y[1] = lanes_of(0) - (ends + middle);
    y[2] = middle - ends;
    y[3] = outer + outer_middle;
    y[4] = outer - outer_middle;
    y[5] = x[2];
  }
};

/// G^T
struct KernelGradientTransform {
  static constexpr int kFrom = 6, kTo = 3;
  FARANDOLE_FMA_INLINED static void apply(const Lanes (&x)[kFrom], Lanes (&y)[kTo]) {
    const Lanes sixth = lanes_of(1.0F / 6), inner_sum = (x[1] + x[2]) * sixth, inner_difference = (x[2] - x[1]) * sixth;
    const Lanes outer_sum = x[3] + x[4], outer_difference = x[3] - x[4];
    y[0] = scaled_sum(0.25F, x[0], scaled_sum(1.0F / 24, outer_sum, lanes_of(0) - inner_sum));
    y[1] = scaled_sum(1.0F / 12, outer_difference, inner_difference);
    y[2] = scaled_sum(1.0F / 6, outer_sum, x[5] - inner_sum);
  }
};

/// Computes matrix * x * matrix^T. `load(i, j)` returns an element of x, and `store(i, j, value)` takes one of the
/// result; both are marked FARANDOLE_FMA_INLINED.
template <class Transform, class Load, class Store>
FARANDOLE_FMA_INLINED inline void transform_square(const Load& load, const Store& store) {
  constexpr int kFrom = Transform::kFrom, kTo = Transform::kTo;
  Lanes half[kTo][kFrom];
#pragma GCC unroll 6
  for (int j = 0; j < kFrom; ++j) {
    Lanes column[kFrom], transformed[kTo];
#pragma GCC unroll 6
    for (int i = 0; i < kFrom; ++i) column[i] = load(i, j);
    Transform::apply(column, transformed);
#pragma GCC unroll 6
    for (int i = 0; i < kTo; ++i) half[i][j] = transformed[i];
  }
#pragma GCC unroll 6
  for (int i = 0; i < kTo; ++i) {
    Lanes transformed[kTo];
    Transform::apply(half[i], transformed);
#pragma GCC unroll 6
    for (int j = 0; j < kTo; ++j) store(i, j, transformed[j]);
  }
}

}  // namespace farandole::trainer
