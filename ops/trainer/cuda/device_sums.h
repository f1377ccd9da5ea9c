// SPDX-License-Identifier: Apache-2.0
// Sums on a device, over a number of partial sums that depends on the sizes only.
#pragma once

#include <algorithm>
#include <cstdint>

#include "farandole/trainer/execution.h"
#include "launcher.h"

namespace farandole::trainer::cuda {

/// Number of partial sums of the rows of a matrix, at least 1.
inline std::int64_t partials_of(std::int64_t rows, std::int64_t columns) {
  constexpr std::int64_t kThreads = 65536, kMostPartials = 1024;
  return std::clamp<std::int64_t>(kThreads / columns, 1, std::clamp<std::int64_t>(rows, 1, kMostPartials));
}

/// Adds `count` values to `*sum`.
template <class Scalar>
void sum_doubles(const Launcher& launcher, Workspace& workspace, std::int64_t count, const double* values,
                 double* sum) {
  constexpr std::int64_t kPartials = 128;
  Workspace::Scope scope(workspace);
  const std::int64_t partials = std::min(count, kPartials);
  double* const partial = scope.take<double>(static_cast<std::size_t>(partials)).data();
  launcher.launch<Scalar>(Kernel::kSumDoubles, partials, {writes(partial, partials), reads(values, count)},
                          {partials, count, 0});
  launcher.launch<Scalar>(Kernel::kSumDoubles, 1, {writes(sum, 1), reads(partial, partials)}, {1, partials, 1});
}

}  // namespace farandole::trainer::cuda
