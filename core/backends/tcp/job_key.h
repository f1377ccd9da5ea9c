// SPDX-License-Identifier: Apache-2.0
// The secret of a job: a process that has it is one of the job's.
#pragma once

#include <array>

namespace farandole::tcp {

/// 256 bits. It travels by the launcher's or MPI's way only, and never over a connection that it authenticates.
using JobKey = std::array<unsigned char, 32>;

/// From the kernel's random numbers. @throws TransportError  the kernel has none
std::array<unsigned char, 32> random_256_bits();

inline JobKey make_job_key() {
  return random_256_bits();
}

}  // namespace farandole::tcp
