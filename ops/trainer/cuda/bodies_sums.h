// SPDX-License-Identifier: Apache-2.0
// Bodies of sums in double, over a fixed number of partial sums: partial sum p adds the values p, p + partials, p + 2
// partials, …
#pragma once

#include <cstdint>

#include "body_arguments.h"

namespace farandole::trainer::cuda {

/// Operands: partial sums, values. Sizes: partials, values.
template <class T>
struct SumSquares {
  FARANDOLE_HOST_DEVICE static void run(const Arguments& a, Share share) {
    const T* values = input<T>(a, 1);
    for (std::int64_t p = share.first; p < a.sizes[0]; p += share.stride) {
      double sum = 0;
      for (std::int64_t i = p; i < a.sizes[1]; i += a.sizes[0]) {
        sum += static_cast<double>(values[i]) * static_cast<double>(values[i]);
      }
      output<double>(a, 0)[p] = sum;
    }
  }
};

/// Operands: partial sums, values in double. Sizes: partials, values, 1 to add to the old value of the partial sums.
template <class T>
struct SumDoubles {
  FARANDOLE_HOST_DEVICE static void run(const Arguments& a, Share share) {
    const auto* values = input<double>(a, 1);
    auto* sums = output<double>(a, 0);
    for (std::int64_t p = share.first; p < a.sizes[0]; p += share.stride) {
      double sum = 0;
      for (std::int64_t i = p; i < a.sizes[1]; i += a.sizes[0]) sum += values[i];
      sums[p] = a.sizes[2] == 1 ? sums[p] + sum : sum;
    }
  }
};

/// Operands: a number, a factor or null. Numbers: what to add, times the factor.
template <class T>
struct AddNumber {
  FARANDOLE_HOST_DEVICE static void run(const Arguments& a, Share share) {
    if (share.first != 0) return;
    const auto* factor = input<double>(a, 1);
    *output<double>(a, 0) += factor == nullptr ? a.numbers[0] : a.numbers[0] * *factor;
  }
};

/// The sum of a column of partial sums: operand 1, {partials, columns}. Sizes: columns, partials.
FARANDOLE_HOST_DEVICE inline double sum_of_partials(const Arguments& a, std::int64_t column) {
  double sum = 0;
  for (std::int64_t p = 0; p < a.sizes[1]; ++p) sum += input<double>(a, 1)[p * a.sizes[0] + column];
  return sum;
}

/// Operands: sums, partial sums. Sizes: as sum_of_partials. Adds the partial sums of each column.
template <class T>
struct AddPartials {
  FARANDOLE_HOST_DEVICE static void run(const Arguments& a, Share share) {
    for (std::int64_t column = share.first; column < a.sizes[0]; column += share.stride) {
      output<double>(a, 0)[column] += sum_of_partials(a, column);
    }
  }
};

/// As AddPartials, but sets the result, which has type T.
template <class T>
struct StorePartials {
  FARANDOLE_HOST_DEVICE static void run(const Arguments& a, Share share) {
    for (std::int64_t column = share.first; column < a.sizes[0]; column += share.stride) {
      output<T>(a, 0)[column] = static_cast<T>(sum_of_partials(a, column));
    }
  }
};

}  // namespace farandole::trainer::cuda
