// SPDX-License-Identifier: Apache-2.0
// Starts threads of the library with signals blocked, so that the program's signal handling is unaffected.
#pragma once

#include <signal.h>

#include <latch>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

namespace farandole {

/// Scope in which the calling thread blocks signals. A thread started in the scope inherits the mask for its lifetime.
/// Signals that a thread raises by its own fault (SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS) are not
/// blocked: their handlers must run on the faulting thread.
///
/// Why: the kernel delivers a signal of the process to any thread that does not block the signal. If a program blocks
/// SIGTERM and waits in sigwait, a library thread that blocks nothing would let SIGTERM end the process. If a program
/// has a signal handler, the handler would run on a thread that the program does not know.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    for (const int own_mistake : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS}) {
      sigdelset(&all, own_mistake);
    }
    pthread_sigmask(SIG_BLOCK, &all, &former_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &former_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t former_{};
};

/// SignalsBlocked for calls of other libraries that start threads and may block for long, such as `MPI_Init` and
/// `cuInit`. A helper thread with the caller's mask receives the process's signals during the scope, so that SIGTERM or
/// Ctrl-C still ends a process that hangs in the call. If the system refuses the helper thread, signals stay unblocked
/// in the caller and in the threads that the call starts.
class SignalsDiverted {
 public:
  SignalsDiverted() {
    try {
      taker_ = std::jthread([this] { over_.wait(); });
    } catch (const std::system_error&) {
      return;
    }
    blocked_.emplace();
  }
  ~SignalsDiverted() {
    blocked_.reset();
    over_.count_down();
  }
  SignalsDiverted(const SignalsDiverted&) = delete;
  SignalsDiverted& operator=(const SignalsDiverted&) = delete;

 private:
  std::latch over_{1};
  std::jthread taker_;
  std::optional<SignalsBlocked> blocked_;
};

/// Starts a thread that blocks signals from its first instruction on. Arguments as for std::jthread.
/// @throws std::system_error  the system refuses a thread
template <class... Arguments>
std::jthread start_library_thread(Arguments&&... arguments) {
  const SignalsBlocked blocked;
  return std::jthread(std::forward<Arguments>(arguments)...);
}

}  // namespace farandole
