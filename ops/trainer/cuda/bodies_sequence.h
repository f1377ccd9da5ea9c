// SPDX-License-Identifier: Apache-2.0
// Bodies of embedding and attention.
#pragma once

#include <cmath>
#include <cstdint>

#include "body_arguments.h"

namespace farandole::trainer::cuda {

/// The row of an embedding's weights that an index names; -1 if there is none.
template <class T>
FARANDOLE_HOST_DEVICE inline std::int64_t row_of(T index, std::int64_t vocabulary) {
  return index >= T{0} && index < static_cast<T>(vocabulary) ? static_cast<std::int64_t>(index) : -1;
}

/// Operands: output, indices, weights. Sizes: elements of the output, vocabulary, units.
template <class T>
struct LookUp {
  FARANDOLE_HOST_DEVICE static void run(const Arguments& a, Share share) {
    const std::int64_t units = a.sizes[2];
    for (std::int64_t i = share.first; i < a.sizes[0]; i += share.stride) {
      const std::int64_t row = row_of(input<T>(a, 1)[i / units], a.sizes[1]);
      output<T>(a, 0)[i] = row >= 0 ? input<T>(a, 2)[row * units + i % units] : static_cast<T>(std::nan(""));
    }
  }
};

/// Element k of an order of the indices. @param order  null: 0, 1, …
FARANDOLE_HOST_DEVICE inline std::int64_t element_of(const std::int64_t* order, std::int64_t k) {
  return order == nullptr ? k : order[k];
}

/// Operands: order, order before or null, indices. Sizes: count, length of the runs before, vocabulary. Merges pairs of
/// sorted runs into runs of twice the length, which have equal rows in their order before.
template <class T>
struct MergeRuns {
  FARANDOLE_HOST_DEVICE static void run(const Arguments& a, Share share) {
    const std::int64_t count = a.sizes[0], length = a.sizes[1];
    const auto* before = input<std::int64_t>(a, 1);
    const auto key = [&](std::int64_t k) { return row_of(input<T>(a, 2)[element_of(before, k)], a.sizes[2]); };
    for (std::int64_t i = share.first; i < count; i += share.stride) {
      const std::int64_t begin = i / (2 * length) * (2 * length), own = key(i);
      const std::int64_t middle = begin + length < count ? begin + length : count;
      const std::int64_t end = middle + length < count ? middle + length : count;
      const bool is_left = i < middle;
      // Finds the first element of the other run that goes behind this one.
      std::int64_t low = is_left ? middle : begin, high = is_left ? end : middle;
      while (low < high) {
        const std::int64_t half = low + (high - low) / 2, other = key(half);
        const bool goes_before = is_left ? other < own : other <= own;
        low = goes_before ? half + 1 : low;
        high = goes_before ? high : half;
      }
      const std::int64_t place = is_left ? i + (low - middle) : i - middle + low;
      output<std::int64_t>(a, 0)[place] = element_of(before, i);
    }
  }
};

/// Operands: gradient of the weights, order of the indices or null, indices, dy. Sizes: indices * units, indices,
/// vocabulary, units. Sets the rows that are used: the thread of a row's first index adds its uses, in their order.
template <class T>
struct LookUpBackward {
  FARANDOLE_HOST_DEVICE static void run(const Arguments& a, Share share) {
    const std::int64_t count = a.sizes[1], units = a.sizes[3];
    const auto* order = input<std::int64_t>(a, 1);
    const auto row = [&](std::int64_t k) { return row_of(input<T>(a, 2)[element_of(order, k)], a.sizes[2]); };
    for (std::int64_t i = share.first; i < a.sizes[0]; i += share.stride) {
      const std::int64_t first = i / units, unit = i % units, own = row(first);
      if (own < 0 || (first > 0 && row(first - 1) == own)) continue;
      T sum{0};
      for (std::int64_t k = first; k < count && row(k) == own; ++k)
        sum += input<T>(a, 3)[element_of(order, k) * units + unit];
      output<T>(a, 0)[own * units + unit] = sum;
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
