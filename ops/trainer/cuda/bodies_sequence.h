// SPDX-License-Identifier: Apache-2.0
// Bodies of embedding and attention.
#pragma once

#include <cmath>
#include <cstdint>

#include "body_arguments.h"

namespace farandole::trainer::cuda {

/// Operands: output, indices, weights. Sizes: elements of the output, vocabulary, units.
template <class T>
struct LookUp {
  FARANDOLE_HOST_DEVICE static void run(const Arguments& a, Share share) {
    const std::int64_t units = a.sizes[2];
    for (std::int64_t i = share.first; i < a.sizes[0]; i += share.stride) {
      const T value = input<T>(a, 1)[i / units];
      const bool is_row = value >= T{0} && value < static_cast<T>(a.sizes[1]);
      output<T>(a, 0)[i] =
          is_row ? input<T>(a, 2)[static_cast<std::int64_t>(value) * units + i % units] : static_cast<T>(std::nan(""));
    }
  }
};

/// Operands: gradient of the weights, indices, dy. Sizes: elements of the gradient, indices, units. Each thread looks
/// at all indices, so that the sums have the order of the indices.
template <class T>
struct LookUpBackward {
  FARANDOLE_HOST_DEVICE static void run(const Arguments& a, Share share) {
    const std::int64_t units = a.sizes[2];
    for (std::int64_t i = share.first; i < a.sizes[0]; i += share.stride) {
      const T row = static_cast<T>(i / units);
      T sum{0};
      for (std::int64_t k = 0; k < a.sizes[1]; ++k) {
        if (input<T>(a, 1)[k] == row) sum += input<T>(a, 2)[k * units + i % units];
      }
      output<T>(a, 0)[i] = sum;
    }
  }
};

/// Operands: y, x, row. Sizes: elements, columns.
template <class T>
struct AddRow {
  FARANDOLE_HOST_DEVICE static void run(const Arguments& a, Share share) {
    for (std::int64_t i = share.first; i < a.sizes[0]; i += share.stride) {
      output<T>(a, 0)[i] = input<T>(a, 1)[i] + input<T>(a, 2)[i % a.sizes[1]];
    }
  }
};

/// Operands: values. Sizes: rows, length, 1 if causal. Numbers: scale.
template <class T>
struct Softmax {
  FARANDOLE_HOST_DEVICE static void run(const Arguments& a, Share share) {
    const std::int64_t length = a.sizes[1];
    const T scale = number<T>(a, 0);
    for (std::int64_t row = share.first; row < a.sizes[0]; row += share.stride) {
      T* values = output<T>(a, 0) + row * length;
      const std::int64_t visible = a.sizes[2] == 1 ? row % length + 1 : length;
      T largest = values[0];
      for (std::int64_t k = 1; k < visible; ++k) largest = values[k] > largest ? values[k] : largest;
      double sum = 0;
      for (std::int64_t k = 0; k < visible; ++k) {
        values[k] = std::exp((values[k] - largest) * scale);
        sum += static_cast<double>(values[k]);
      }
      const auto inverse = static_cast<T>(1 / sum);
      for (std::int64_t k = 0; k < length; ++k) values[k] = k < visible ? values[k] * inverse : T{0};
    }
  }
};

/// Operands: gradients, probabilities. Sizes: rows, length, 1 if causal. Numbers: scale.
template <class T>
struct SoftmaxBackward {
  FARANDOLE_HOST_DEVICE static void run(const Arguments& a, Share share) {
    const std::int64_t length = a.sizes[1];
    const T scale = number<T>(a, 0);
    for (std::int64_t row = share.first; row < a.sizes[0]; row += share.stride) {
      const T* p = input<T>(a, 1) + row * length;
      T* gradient = output<T>(a, 0) + row * length;
      const std::int64_t visible = a.sizes[2] == 1 ? row % length + 1 : length;
      double product = 0;
      for (std::int64_t k = 0; k < visible; ++k)
        product += static_cast<double>(gradient[k]) * static_cast<double>(p[k]);
      const auto mean = static_cast<T>(product);
      for (std::int64_t k = 0; k < length; ++k) gradient[k] = p[k] * (gradient[k] - mean) * scale;
    }
  }
};

}  // namespace farandole::trainer::cuda
