// SPDX-License-Identifier: Apache-2.0
// Teams of OpenMP that have all their threads.
#pragma once

#include <omp.h>

#include <algorithm>

namespace farandole::trainer {

/// Sees that OpenMP starts as many threads as `omp_get_max_threads` says, by which oneDNN plans: with fewer threads
/// oneDNN leaves parts of a matrix out, or waits for ever. OpenMP may start fewer with OMP_DYNAMIC=true on a busy
/// machine, and under OMP_THREAD_LIMIT. The destructor restores the old settings.
class FullTeams {
 public:
  FullTeams() : former_dynamic_(omp_get_dynamic()), former_threads_(omp_get_max_threads()) {
    omp_set_dynamic(0);
    omp_set_num_threads(std::min(former_threads_, omp_get_thread_limit()));
  }
  ~FullTeams() {
    omp_set_num_threads(former_threads_);
    omp_set_dynamic(former_dynamic_);
  }
  FullTeams(const FullTeams&) = delete;
  FullTeams& operator=(const FullTeams&) = delete;

 private:
  const int former_dynamic_, former_threads_;
};

}  // namespace farandole::trainer
