// SPDX-License-Identifier: Apache-2.0
// Reductions of the rows of a matrix by bodies without barriers. A row has parts, each of which is the work of one
// thread: part p has the elements p, p + parts, p + 2 parts, …, so neighbouring threads read neighbouring elements. A
// second kernel merges the results of a row's parts in their order. The number of parts depends on the sizes only
// (parts_of_row), so results do not depend on the number of blocks.
#pragma once

#include <cfloat>
#include <cstdint>

#include "body_arguments.h"

namespace farandole::trainer::cuda {

/// Calls use(row, part) for each part of a thread's share.
template <class Use>
FARANDOLE_HOST_DEVICE inline void for_each_part(std::int64_t rows, std::int64_t parts, Share share, const Use& use) {
  for (std::int64_t i = share.first; i < rows * parts; i += share.stride) use(i / parts, i % parts);
}

/// Some results of each part of a row, of a matrix {rows, results, parts}.
template <class Number>
struct PartResults {
  Number* first;
  std::int64_t parts;

  FARANDOLE_HOST_DEVICE Number& at(std::int64_t result, std::int64_t part) const {
    return first[result * parts + part];
  }
  /// The sum of a result over the parts.
  FARANDOLE_HOST_DEVICE Number sum(std::int64_t result) const {
    Number sum{0};
    for (std::int64_t part = 0; part < parts; ++part) sum += at(result, part);
    return sum;
  }
};
template <class Number>
FARANDOLE_HOST_DEVICE inline PartResults<Number> results_of_row(const Arguments& a, int operand, std::int64_t row,
                                                                std::int64_t results, std::int64_t parts) {
  return {output<Number>(a, operand) + row * results * parts, parts};
}

/// The lowest number of a type. It is finite, so the distance from it to the largest element of another part is no NaN.
template <class T>
inline constexpr double kLowest = sizeof(T) == sizeof(double) ? -DBL_MAX : -FLT_MAX;

/// Returns the largest element of a part, and at least kLowest. Ignores NaN.
template <class T>
FARANDOLE_HOST_DEVICE inline double largest_of_part(const T* row, std::int64_t count, std::int64_t part,
                                                    std::int64_t parts) {
  double largest = kLowest<T>;
  for (std::int64_t k = part; k < count; k += parts) {
    const auto value = static_cast<double>(row[k]);
    largest = value > largest ? value : largest;
  }
  return largest;
}

/// Returns the largest of a result of all parts.
FARANDOLE_HOST_DEVICE inline double largest_of(const PartResults<double>& results, std::int64_t result) {
  double largest = results.at(result, 0);
  for (std::int64_t part = 1; part < results.parts; ++part) {
    largest = results.at(result, part) > largest ? results.at(result, part) : largest;
  }
  return largest;
}

}  // namespace farandole::trainer::cuda
