// SPDX-License-Identifier: Apache-2.0
// Bodies of embedding and attention.
#pragma once

#include <cmath>
#include <cstdint>

#include "bodies_rows.h"
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

// Softmax of the rows of squares. Sizes: rows, length, parts, 1 if causal. Numbers: scale.

/// Number of positions to which a row attends.
FARANDOLE_HOST_DEVICE inline std::int64_t visible_in(const Arguments& a, std::int64_t row) {
  return a.sizes[3] == 1 ? row % a.sizes[1] + 1 : a.sizes[1];
}

/// Operands: results of the parts {largest value L, sum of exp(scale * (value - L))}, values.
template <class T>
struct SumScores {
  static constexpr std::int64_t kResults = 2;

  FARANDOLE_HOST_DEVICE static void run(const Arguments& a, Share share) {
    const std::int64_t parts = a.sizes[2];
    for_each_part(a.sizes[0], parts, share, [&](std::int64_t row, std::int64_t part) {
      const T* values = input<T>(a, 1) + row * a.sizes[1];
      const std::int64_t visible = visible_in(a, row);
      const double largest = largest_of_part(values, visible, part, parts);
      double sum = 0;
      for (std::int64_t k = part; k < visible; k += parts) {
        sum += static_cast<double>(std::exp((values[k] - static_cast<T>(largest)) * number<T>(a, 0)));
      }
      const auto results = results_of_row<double>(a, 0, row, kResults, parts);
      results.at(0, part) = largest;
      results.at(1, part) = sum;
    });
  }
};

/// Operands: {largest value, 1 / sum of exponentials} of each row, results of SumScores.
template <class T>
struct MergeScores {
  FARANDOLE_HOST_DEVICE static void run(const Arguments& a, Share share) {
    const std::int64_t parts = a.sizes[2];
    for (std::int64_t row = share.first; row < a.sizes[0]; row += share.stride) {
      const auto results = results_of_row<double>(a, 1, row, SumScores<T>::kResults, parts);
      const double largest = largest_of(results, 0);
      double sum = 0;
      for (std::int64_t part = 0; part < parts; ++part) {
        sum += results.at(1, part) * std::exp((results.at(0, part) - largest) * a.numbers[0]);
      }
      output<T>(a, 0)[2 * row] = static_cast<T>(largest);
      output<T>(a, 0)[2 * row + 1] = static_cast<T>(1 / sum);
    }
  }
};

/// Operands: values, results of MergeScores.
template <class T>
struct Softmax {
  FARANDOLE_HOST_DEVICE static void run(const Arguments& a, Share share) {
    const std::int64_t length = a.sizes[1], parts = a.sizes[2];
    for_each_part(a.sizes[0], parts, share, [&](std::int64_t row, std::int64_t part) {
      T* values = output<T>(a, 0) + row * length;
      const T largest = input<T>(a, 1)[2 * row], inverse = input<T>(a, 1)[2 * row + 1];
      const std::int64_t visible = visible_in(a, row);
      for (std::int64_t k = part; k < length; k += parts) {
        values[k] = k < visible ? std::exp((values[k] - largest) * number<T>(a, 0)) * inverse : T{0};
      }
    });
  }
};

/// Operands: sums of gradient * probability of each part, gradients, probabilities.
template <class T>
struct SumScoreGradients {
  FARANDOLE_HOST_DEVICE static void run(const Arguments& a, Share share) {
    const std::int64_t parts = a.sizes[2];
    for_each_part(a.sizes[0], parts, share, [&](std::int64_t row, std::int64_t part) {
      const T *gradient = input<T>(a, 1) + row * a.sizes[1], *p = input<T>(a, 2) + row * a.sizes[1];
      double product = 0;
      for (std::int64_t k = part; k < visible_in(a, row); k += parts) {
        product += static_cast<double>(gradient[k]) * static_cast<double>(p[k]);
      }
      results_of_row<double>(a, 0, row, 1, parts).at(0, part) = product;
    });
  }
};

/// Operands: gradients, probabilities, results of SumScoreGradients.
template <class T>
struct SoftmaxBackward {
  FARANDOLE_HOST_DEVICE static void run(const Arguments& a, Share share) {
    const std::int64_t length = a.sizes[1], parts = a.sizes[2];
    for_each_part(a.sizes[0], parts, share, [&](std::int64_t row, std::int64_t part) {
      const T* p = input<T>(a, 1) + row * length;
      T* gradient = output<T>(a, 0) + row * length;
      const auto mean = static_cast<T>(results_of_row<double>(a, 2, row, 1, parts).sum(0));
      for (std::int64_t k = part; k < length; k += parts) gradient[k] = p[k] * (gradient[k] - mean) * number<T>(a, 0);
    });
  }
};

}  // namespace farandole::trainer::cuda
