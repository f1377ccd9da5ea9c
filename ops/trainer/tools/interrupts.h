// SPDX-License-Identifier: Apache-2.0
// Turns SIGINT, SIGTERM and SIGUSR1 into a request to end a training cleanly.
#pragma once

#include <array>
#include <csignal>
#include <mutex>
#include <vector>

namespace farandole::trainer {

/// Turns the first SIGINT, SIGTERM or SIGUSR1 of this process into a request to end after the current training step. A
/// second signal ends the process immediately, as without a handler. A signal less than half a second after the first
/// is ignored, because launchers forward signals that the terminal has also sent to the process directly.
///
/// A signal that the process ignores stays ignored.
///
/// Signals keep their former effect until `watch` is called, so a job that still waits for ranks ends immediately. The
/// destructor restores the former effect. One object at a time per process. Thread-safe.
class Interrupts {
 public:
  Interrupts() = default;
  Interrupts(const Interrupts&) = delete;
  Interrupts& operator=(const Interrupts&) = delete;
  ~Interrupts();

  /// Handles the signals from now on; later calls are no-ops.
  /// @param announces  print a line about the first signal, and what it does, on standard error
  void watch(bool announces);
  /// Returns the first signal that arrived; 0 if none did.
  static int received();

 private:
  std::mutex mutex_;
  bool watches_ = false;                      // guarded by mutex_
  std::array<struct sigaction, 3> former_{};  // in the order of the handled signals
};

/// Alternate stack for signal handlers of the calling thread, until the destructor. Every thread that computes needs a
/// SignalStack while an `Interrupts` watches: the matrix product of oneDNN 2.6 points the stack pointer into buffers of
/// the heap, and a handler without an alternate stack would overwrite them.
class SignalStack {
 public:
  SignalStack();
  SignalStack(const SignalStack&) = delete;
  SignalStack& operator=(const SignalStack&) = delete;
  ~SignalStack();

 private:
  std::vector<char> memory_;
  stack_t former_{};
};

}  // namespace farandole::trainer
