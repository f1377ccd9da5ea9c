// SPDX-License-Identifier: Apache-2.0
// Bodies for vectors and matrices. Operand 0 is the result, sizes[0] the number of its elements, or of those to copy.
#pragma once

#include <cmath>
#include <cstdint>

#include "body_arguments.h"
#include "kernels/activation.h"
#include "philox.h"
#include "random_streams.h"

namespace farandole::trainer::cuda {

/// Operands: sum, left, right.
template <class T>
struct Add {
  FARANDOLE_HOST_DEVICE static void run(const Arguments& a, Share share) {
    const T *left = input<T>(a, 1), *right = input<T>(a, 2);
    T* sum = output<T>(a, 0);
    for (std::int64_t i = share.first; i < a.sizes[0]; i += share.stride) sum[i] = left[i] + right[i];
  }
};

/// Operands: product, left, right.
template <class T>
struct Multiply {
  FARANDOLE_HOST_DEVICE static void run(const Arguments& a, Share share) {
    const T *left = input<T>(a, 1), *right = input<T>(a, 2);
    T* product = output<T>(a, 0);
    for (std::int64_t i = share.first; i < a.sizes[0]; i += share.stride) product[i] = left[i] * right[i];
  }
};

/// Operands: values. Numbers: factor.
template <class T>
struct Scale {
  FARANDOLE_HOST_DEVICE static void run(const Arguments& a, Share share) {
    const T factor = number<T>(a, 0);
    T* values = output<T>(a, 0);
    for (std::int64_t i = share.first; i < a.sizes[0]; i += share.stride) values[i] *= factor;
  }
};

/// Operands: values, factor.
template <class T>
struct ScaleBy {
  FARANDOLE_HOST_DEVICE static void run(const Arguments& a, Share share) {
    const auto factor = static_cast<T>(*input<double>(a, 1));
    T* values = output<T>(a, 0);
    for (std::int64_t i = share.first; i < a.sizes[0]; i += share.stride) values[i] *= factor;
  }
};

/// Operands: values, target, LossScale or null. Numbers: weight.
template <class T>
struct Approach {
  FARANDOLE_HOST_DEVICE static void run(const Arguments& a, Share share) {
    if (is_skipped(a, 2)) return;
    const T weight = number<T>(a, 0);
    const T* target = input<T>(a, 1);
    T* values = output<T>(a, 0);
    for (std::int64_t i = share.first; i < a.sizes[0]; i += share.stride) values[i] += weight * (target[i] - values[i]);
  }
};

/// Operands: average, values, LossScale or null. Numbers: keep, add.
template <class T>
struct MoveAverage {
  FARANDOLE_HOST_DEVICE static void run(const Arguments& a, Share share) {
    if (is_skipped(a, 2)) return;
    const T keep = number<T>(a, 0), add = number<T>(a, 1);
    const T* values = input<T>(a, 1);
    T* average = output<T>(a, 0);
    for (std::int64_t i = share.first; i < a.sizes[0]; i += share.stride)
      average[i] = keep * average[i] + add * values[i];
  }
};

/// An activation and its derivative at one element.
template <class T>
struct ElementActivation {
  ActivationKind kind;
  T slope;

  FARANDOLE_HOST_DEVICE static T logistic(T x) { return T{1} / (T{1} + std::exp(-x)); }
  /// Distribution function of the standard normal distribution.
  FARANDOLE_HOST_DEVICE static T probability(T x) { return T(0.5) * (T{1} + std::erf(x * T(0.70710678118654752440))); }

  FARANDOLE_HOST_DEVICE T value(T x) const {
    switch (kind) {
      case ActivationKind::kRelu:
        return Relu<T>{}.value(x);
      case ActivationKind::kLeakyRelu:
        return LeakyRelu<T>{slope}.value(x);
      case ActivationKind::kGelu:
        return x * probability(x);
      case ActivationKind::kSilu:
        return x * logistic(x);
      case ActivationKind::kSigmoid:
        return logistic(x);
      case ActivationKind::kHyperbolicTangent:
        return std::tanh(x);
    }
    return x;
  }
  FARANDOLE_HOST_DEVICE T gradient(T x, T y, T dy) const {
    switch (kind) {
      case ActivationKind::kRelu:
        return Relu<T>{}.gradient(x, y, dy);
      case ActivationKind::kLeakyRelu:
        return LeakyRelu<T>{slope}.gradient(x, y, dy);
      case ActivationKind::kGelu: {
        const T density = T(0.39894228040143267794) * std::exp(T(-0.5) * x * x);
        return dy * (probability(x) + x * density);
      }
      case ActivationKind::kSilu: {
        const T gate = logistic(x);
        return dy * gate * (T{1} + x * (T{1} - gate));
      }
      case ActivationKind::kSigmoid:
        return dy * y * (T{1} - y);
      case ActivationKind::kHyperbolicTangent:
        return dy * (T{1} - y * y);
    }
    return dy;
  }
};

template <class T>
FARANDOLE_HOST_DEVICE inline ElementActivation<T> activation_of(const Arguments& a) {
  return {static_cast<ActivationKind>(a.sizes[1]), number<T>(a, 0)};
}

/// Operands: y, x. Sizes: count, kind. Numbers: slope.
template <class T>
struct Activate {
  FARANDOLE_HOST_DEVICE static void run(const Arguments& a, Share share) {
    const ElementActivation<T> activation = activation_of<T>(a);
    const T* x = input<T>(a, 1);
    T* y = output<T>(a, 0);
    for (std::int64_t i = share.first; i < a.sizes[0]; i += share.stride) y[i] = activation.value(x[i]);
  }
};

/// Operands: dx, x, y, dy. Sizes: count, kind. Numbers: slope.
template <class T>
struct ActivateBackward {
  FARANDOLE_HOST_DEVICE static void run(const Arguments& a, Share share) {
    const ElementActivation<T> activation = activation_of<T>(a);
    const T *x = input<T>(a, 1), *y = input<T>(a, 2), *dy = input<T>(a, 3);
    T* dx = output<T>(a, 0);
    for (std::int64_t i = share.first; i < a.sizes[0]; i += share.stride)
      dx[i] = activation.gradient(x[i], y[i], dy[i]);
  }
};

/// Operands: factors, StepNumbers or null. Sizes: count, seed, purpose, training step, layer, first draw. Numbers:
/// rate, factor of what is kept.
template <class T>
struct DrawDropout {
  FARANDOLE_HOST_DEVICE static void run(const Arguments& a, Share share) {
    const StepNumbers* const step = step_numbers_of(a, 1);
    const auto whole = [&a](int index) { return static_cast<std::uint64_t>(a.sizes[index]); };
    const std::uint64_t seed = whole(1), first = whole(5);
    const std::uint64_t indices[]{step == nullptr ? whole(3) : static_cast<std::uint64_t>(step->training_step),
                                  whole(4)};
    const std::uint64_t stream = hashed_stream(whole(2), indices, 2);
    const double dropped_below = a.numbers[0] * 4294967296.0;
    const T kept = number<T>(a, 1);
    T* factors = output<T>(a, 0);
    for (std::int64_t i = share.first; i < a.sizes[0]; i += share.stride) {
      const std::uint64_t counter = first + static_cast<std::uint64_t>(i);
      const PhiloxBlock block = philox(seed, stream, counter / 4);
      factors[i] = block.words[counter % 4] < dropped_below ? T{0} : kept;
    }
  }
};

// Matrices.

/// Operands: result, row. Sizes: elements of the result, columns.
template <class T>
struct FillRows {
  FARANDOLE_HOST_DEVICE static void run(const Arguments& a, Share share) {
    const T* row = input<T>(a, 1);
    T* result = output<T>(a, 0);
    for (std::int64_t i = share.first; i < a.sizes[0]; i += share.stride) result[i] = row[i % a.sizes[1]];
  }
};

/// Operands: values. Sizes: count. Sets each to 1.
template <class T>
struct FillOnes {
  FARANDOLE_HOST_DEVICE static void run(const Arguments& a, Share share) {
    T* values = output<T>(a, 0);
    for (std::int64_t i = share.first; i < a.sizes[0]; i += share.stride) values[i] = T{1};
  }
};

/// Operands: result, values. Sizes: elements to copy, columns, first and width in the values, first and width in the
/// result.
template <class T>
struct CopyColumns {
  FARANDOLE_HOST_DEVICE static void run(const Arguments& a, Share share) {
    const T* values = input<T>(a, 1);
    T* result = output<T>(a, 0);
    for (std::int64_t i = share.first; i < a.sizes[0]; i += share.stride) {
      const std::int64_t row = i / a.sizes[1], column = i % a.sizes[1];
      result[row * a.sizes[5] + a.sizes[4] + column] = values[row * a.sizes[3] + a.sizes[2] + column];
    }
  }
};

/// Operands: transposed matrix, matrix. Sizes: elements, rows and columns of the matrix.
template <class T>
struct Transpose {
  FARANDOLE_HOST_DEVICE static void run(const Arguments& a, Share share) {
    const std::int64_t rows = a.sizes[1], columns = a.sizes[2];
    for (std::int64_t i = share.first; i < a.sizes[0]; i += share.stride) {
      output<T>(a, 0)[i] = input<T>(a, 1)[i % rows * columns + i / rows];
    }
  }
};

}  // namespace farandole::trainer::cuda
