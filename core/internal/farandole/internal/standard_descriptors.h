// SPDX-License-Identifier: Apache-2.0
// Protects descriptors 0 to 2 of a process that was started with standard input, output or error closed, as by cron and
// daemons. The kernel gives the lowest free number to the next file: a socket of the job would get number 1, and the
// program's next line of output would end up in a message to another rank.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

namespace farandole {

/// Occupies the free numbers among 0 to 2 until the process ends. Called before a job opens any file, so that files of
/// loaded libraries (MPI, drivers) get higher numbers, too. Reading or writing the placeholder fails with EBADF, as
/// with a closed descriptor; executed programs do not inherit the placeholder.
inline void occupy_standard_descriptors() {
  for (int number = STDIN_FILENO; number <= STDERR_FILENO; ++number) {
    if (fcntl(number, F_GETFD) >= 0 || errno != EBADF) continue;
    // The root directory exists even if /dev does not.
    const int occupied = open("/", O_PATH | O_CLOEXEC);
    if (occupied > STDERR_FILENO) close(occupied);  // another thread has taken the free number
  }
}

/// Moves a descriptor away from the numbers 0 to 2, for programs that close these numbers after the job has been
/// joined.
/// @returns  `descriptor`, or a copy with a higher number that is closed on exec; -1 with errno if there is no free
/// number
inline int above_standard_descriptors(int descriptor) {
  if (descriptor < 0 || descriptor > STDERR_FILENO) return descriptor;
  const int moved = fcntl(descriptor, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
  const int error = errno;
  close(descriptor);
  errno = error;
  return moved;
}

}  // namespace farandole
