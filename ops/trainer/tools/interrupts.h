// SPDX-License-Identifier: Apache-2.0
// SIGINT and SIGTERM as the wish to end a training in order.
#pragma once

#include <csignal>
#include <mutex>
#include <vector>

namespace farandole::trainer {

/// Takes the first SIGINT or SIGTERM of this process as a wish to end after the training step at hand. A second signal
/// ends the process at once, as if nobody handled signals. Launchers pass on signals that the terminal has sent to the
/// process already, so a signal within half a second counts as the same one.
///
/// A signal that the process ignores stays ignored.
///
/// Signals have their former effect until `watch` is called, so that a job that still waits for ranks ends at once, and
/// again after the destructor. One object at a time per process. Thread-safe.
class Interrupts {
 public:
  Interrupts() = default;
  Interrupts(const Interrupts&) = delete;
  Interrupts& operator=(const Interrupts&) = delete;
  ~Interrupts();

  /// Handles the signals from now on; later calls are no-ops.
  /// @param announces  print on standard error that a signal has come, and what it does
  void watch(bool announces);
  /// The first signal that came; 0 if none did.
  static int received();

 private:
  std::mutex mutex_;
  bool watches_ = false;  // guarded by mutex_
  struct sigaction former_interrupt_ {
  }, former_termination_{};
};

/// Stack for signal handlers in the calling thread, until the destructor. Every thread that computes needs one while an
/// `Interrupts` watches: the matrix product of oneDNN 2.6 points the stack pointer into buffers of the heap, where a
/// handler without a stack of its own would write.
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
