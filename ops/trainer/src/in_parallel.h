// SPDX-License-Identifier: Apache-2.0
// Loops on the threads that compute a replica's layers.
#pragma once

#include <omp.h>

#include <cstdint>

namespace farandole::trainer {

/// Calls compute(k) for each k < count, on `threads` threads.
template <class Compute>
void in_parallel(int threads, std::int64_t count, const Compute& compute) {
  if (threads == 1) {
    for (std::int64_t k = 0; k < count; ++k) compute(k);
    return;
  }
#pragma omp parallel for num_threads(threads) schedule(static)
  for (std::int64_t k = 0; k < count; ++k) compute(k);
}

}  // namespace farandole::trainer
