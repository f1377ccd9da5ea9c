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

/// Number of parts of each row of a matrix (bodies_rows.h): a warp's threads at least, and more while the device has
/// threads to spare; 1 for short rows.
inline std::int64_t parts_of_row(std::int64_t rows, std::int64_t columns) {
  constexpr std::int64_t kThreads = 65536, kWarp = 32, kMostParts = 256;
  if (rows == 0 || columns < 2 * kWarp) return 1;
  const std::int64_t most = std::min(kMostParts, columns / kWarp * kWarp);
  return std::clamp(kThreads / rows / kWarp * kWarp, kWarp, most);
}

/// Adds `count` values to `*sum`, in stages of fewer and fewer partial sums.
template <class Scalar>
void sum_doubles(const Launcher& launcher, Workspace& workspace, std::int64_t count, const double* values,
                 double* sum) {
  constexpr std::int64_t kMany = 16384, kFew = 128;
  Workspace::Scope scope(workspace);
  for (const std::int64_t most : {kMany, kFew}) {
    if (count <= most) continue;
    double* const partial = scope.take<double>(static_cast<std::size_t>(most)).data();
    launcher.launch<Scalar>(Kernel::kSumDoubles, most, {writes(partial, most), reads(values, count)}, {most, count, 0});
    values = partial;
    count = most;
  }
  launcher.launch<Scalar>(Kernel::kSumDoubles, 1, {writes(sum, 1), reads(values, count)}, {1, count, 1});
}

}  // namespace farandole::trainer::cuda
