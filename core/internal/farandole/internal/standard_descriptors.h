// SPDX-License-Identifier: Apache-2.0
// Numbers 0 to 2 of a process that was started with closed standard input, output or error, as by cron and daemons.
// The system gives the lowest free number: a socket of a job would get it, and the program's next line of output would
// go into a message of another rank.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

namespace farandole {

/// Occupies those of the numbers 0 to 2 that are free, for as long as the process lives. Called before a job opens
/// anything, so that files of the libraries that it loads (MPI, drivers) get other numbers, too. Reading from what is
/// put there, or writing to it, fails with EBADF, as with a closed descriptor; programs that are executed do not
/// inherit it.
inline void occupy_standard_descriptors() {
  for (int number = STDIN_FILENO; number <= STDERR_FILENO; ++number) {
    if (fcntl(number, F_GETFD) >= 0 || errno != EBADF) continue;
    // The root directory is there even where /dev is not.
    const int occupied = open("/", O_PATH | O_CLOEXEC);
    if (occupied > STDERR_FILENO) close(occupied);  // another thread has taken the number
  }
}

/// Moves a descriptor away from the numbers 0 to 2, for programs that close them when the job is joined already.
/// @returns  the descriptor, or its copy, which is closed on exec; -1 with errno where there can be no more
inline int above_standard_descriptors(int descriptor) {
  if (descriptor < 0 || descriptor > STDERR_FILENO) return descriptor;
  const int moved = fcntl(descriptor, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
  const int error = errno;
  close(descriptor);
  errno = error;
  return moved;
}

}  // namespace farandole
