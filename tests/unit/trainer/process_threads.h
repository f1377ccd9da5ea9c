// SPDX-License-Identifier: Apache-2.0
// The threads of this process, as the kernel counts them.
#pragma once

#include <signal.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

namespace farandole::trainer::test {

struct ProcessThreads {
  long count = 0;
  long takers_of_sigterm = 0;  ///< threads that SIGTERM may be handed to
};

inline ProcessThreads threads() {
  ProcessThreads threads;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::ifstream status(task.path() / "status");
    unsigned long blocked = ~0UL;  // of a thread that has ended
    for (std::string word; status >> word;) {
      if (word == "SigBlk:") status >> std::hex >> blocked;
    }
    ++threads.count;
    threads.takers_of_sigterm += (blocked >> (SIGTERM - 1) & 1) == 0;
  }
  return threads;
}

/// Waits until the process has so many threads: a thread that was joined keeps its entry for a moment. The test
/// program's watchdog ends a wait without end.
inline void await_thread_count(long count) {
  while (threads().count != count) std::this_thread::yield();
}

/// The threads after those that earlier tests have joined are gone: as soon as many reads give the same number.
inline ProcessThreads threads_at_rest() {
  ProcessThreads last = threads();
  for (int same = 0; same < 200; ++same) {
    const ProcessThreads now = threads();
    if (now.count != last.count) same = 0;
    last = now;
  }
  return last;
}

}  // namespace farandole::trainer::test
