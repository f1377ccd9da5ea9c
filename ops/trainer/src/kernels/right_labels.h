// SPDX-License-Identifier: Apache-2.0
// The place of a label among the classes, ordered by their logits, and the class with the largest logit.
#pragma once

#include <cstdint>

#include "farandole/internal/host_device.h"

namespace farandole::trainer {

/// Returns how many of the other classes are before the label's: those with a larger logit, and those with an equal one
/// and a lower number. All of them if the label's logit is NaN.
template <class Scalar>
FARANDOLE_HOST_DEVICE inline std::int64_t number_of_larger(const Scalar* row, std::int64_t classes,
                                                           std::int32_t label) {
  const Scalar own = row[label];
  std::int64_t larger = 0;
  for (std::int64_t c = 0; c < label; ++c) larger += !(row[c] < own);
  for (std::int64_t c = label + 1; c < classes; ++c) larger += !(row[c] <= own);
  return larger;
}

/// Returns the class of the largest logit, the first of equal ones: the label's only if it counts as right. NaN is less
/// than every number, but the label's NaN is less than every other NaN.
template <class Scalar>
FARANDOLE_HOST_DEVICE inline std::int64_t predicted_class(const Scalar* row, std::int64_t classes, std::int64_t label) {
  std::int64_t best = label;
  for (std::int64_t c = classes; c-- > 0;) {
    if (c == label) continue;
    const bool is_larger = c < best ? !(row[c] < row[best]) : row[c] > row[best];
    if (row[best] != row[best] || (row[c] == row[c] && is_larger)) best = c;
  }
  return best;
}

}  // namespace farandole::trainer
