// SPDX-License-Identifier: Apache-2.0
// Threads that compute a replica's layers.
#pragma once

#include <omp.h>

#include <algorithm>
#include <atomic>

#include "farandole/internal/library_thread.h"
#include "farandole/internal/limits.h"
#include "farandole/trainer/trainer.h"
#include "full_teams.h"

namespace farandole::trainer {

/// Number of threads per replica, within the limit that OMP_THREAD_LIMIT sets for all threads of a process.
inline int kernel_threads(const TrainerOptions& options, const Communicator& communicator) {
  const int replicas = communicator.placement().local_size;
  const int limit = std::max(1, omp_get_thread_limit() / replicas);
  if (options.kernel_threads > 0) return std::min(options.kernel_threads, limit);
  return options.deterministic ? 1 : std::clamp(usable_cores() / replicas, 1, limit);
}

/// Sets the number of OpenMP threads of the calling thread, and has OpenMP start all of them; the destructor restores
/// the old settings.
class KernelThreads {
 public:
  explicit KernelThreads(int threads) : former_(omp_get_max_threads()) {
    omp_set_num_threads(threads);
    // OpenMP starts its threads in the first parallel region and keeps them: start them here, with signals blocked.
    const SignalsBlocked for_threads_of_openmp;
    std::atomic<int> started{0};
#pragma omp parallel
    started.fetch_add(1, std::memory_order_relaxed);
  }
  ~KernelThreads() {
    omp_set_num_threads(former_);
  }
  KernelThreads(const KernelThreads&) = delete;
  KernelThreads& operator=(const KernelThreads&) = delete;

 private:
  const FullTeams full_teams_;
  const int former_;
};

}  // namespace farandole::trainer
