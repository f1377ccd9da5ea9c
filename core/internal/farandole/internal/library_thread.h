// SPDX-License-Identifier: Apache-2.0
// How the library starts threads of its own.
#pragma once

#include <signal.h>

#include <latch>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

namespace farandole {

/// Blocks signals in the calling thread while it lives, and so for ever in threads that are started meanwhile. Signals
/// that a thread raises by its own mistake (SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS) are not blocked:
/// handlers must see them where they happen.
///
/// The system hands a signal of the process to any thread that does not block it. A program that blocks SIGTERM and
/// waits for it by sigwait would be ended by a library's thread that blocks nothing; one with a handler would find the
/// handler on a thread that it does not know.
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

/// SignalsBlocked around calls of another library that start threads and may not return for long, as `MPI_Init` and
/// `cuInit`: a thread with the caller's mask takes the process's signals meanwhile, so that SIGTERM or Ctrl-C end a
/// process that waits there for ever. Where the system gives no thread, the caller keeps its mask, and so do the
/// threads that are started.
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

/// Starts a thread that blocks signals from its first instruction on. The arguments are those of std::jthread.
/// @throws std::system_error  the system gives no thread
template <class... Arguments>
std::jthread start_library_thread(Arguments&&... arguments) {
  const SignalsBlocked blocked;
  return std::jthread(std::forward<Arguments>(arguments)...);
}

}  // namespace farandole
