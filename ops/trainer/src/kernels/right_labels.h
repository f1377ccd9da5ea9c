// SPDX-License-Identifier: Apache-2.0
// The place of a label among the classes, ordered by their logits, and the class with the largest logit.
#pragma once

#include <cstdint>

#include "farandole/internal/host_device.h"

namespace farandole::trainer {

/// Returns how many of the other classes are before the label's: those with a larger logit, and those with an equal one
/// and a lower number. All of them if the label's logit is NaN. Counts the classes first, first + step, … only.
template <class Scalar>
FARANDOLE_HOST_DEVICE inline std::int64_t number_of_larger(const Scalar* row, std::int64_t classes, std::int32_t label,
                                                           std::int64_t first = 0, std::int64_t step = 1) {
  const Scalar own = row[label];
  std::int64_t larger = 0, c = first;
  for (; c < label; c += step) larger += !(row[c] < own);
  for (; c < classes; c += step) larger += c != label && !(row[c] <= own);
  return larger;
}

/// True if class `c` is predicted rather than class `other`: it has the larger logit, or an equal one and the lower
/// number. NaN is less than every number, but the label's NaN is less than every other NaN.
template <class Scalar>
FARANDOLE_HOST_DEVICE inline bool is_predicted_before(const Scalar* row, std::int64_t label, std::int64_t c,
                                                      std::int64_t other) {
  const Scalar own = row[c], compared = row[other];
  const bool is_nan = own != own;
  if (is_nan || compared != compared) {
    if (!is_nan || compared == compared) return !is_nan;
    return other == label || (c != label && c < other);
  }
  return own > compared || (own == compared && c < other);
}

/// Returns the class of the largest logit, the first of equal ones: the label's only if it counts as right. Compares
/// the classes first, first + step, … only, as is_predicted_before. @pre  first < classes
template <class Scalar>
FARANDOLE_HOST_DEVICE inline std::int64_t predicted_class(const Scalar* row, std::int64_t classes, std::int64_t label,
                                                          std::int64_t first = 0, std::int64_t step = 1) {
  std::int64_t best = first;
  for (std::int64_t c = first + step; c < classes; c += step) {
    best = is_predicted_before(row, label, c, best) ? c : best;
  }
  return best;
}

}  // namespace farandole::trainer
