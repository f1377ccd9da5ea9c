// SPDX-License-Identifier: Apache-2.0
// Teams of OpenMP that have all their threads.
#pragma once

#include <omp.h>

namespace farandole::trainer {

/// Forbids OpenMP to start a team of fewer threads than the calling thread's number, as it may with OMP_DYNAMIC=true on
/// a busy machine: oneDNN would wait for the others for ever. The destructor restores the old setting.
class FullTeams {
 public:
  FullTeams() : former_(omp_get_dynamic()) { omp_set_dynamic(0); }
  ~FullTeams() { omp_set_dynamic(former_); }
  FullTeams(const FullTeams&) = delete;
  FullTeams& operator=(const FullTeams&) = delete;

 private:
  const int former_;
};

}  // namespace farandole::trainer
