// SPDX-License-Identifier: Apache-2.0
// What one joined job shares: our duplicates of its communicator, the rule for threads, and whether MPI may still be
// used.
#pragma once

#include <mpi.h>
#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <string_view>
#include <vector>

#include "farandole/sdk/backend.h"
#include "mpi_communicator_pool.h"
#include "mpi_runtime.h"

namespace farandole::mpi {

/// Sessions live as long as the process, so that a transfer or a callback of MPI that comes late finds one that says
/// no.
///
/// Threads: with MPI_THREAD_SERIALIZED every call is made under one lock of the process, and none of them blocks; with
/// MPI_THREAD_MULTIPLE any thread calls MPI, and with less only the main thread does. Const after construction
/// except `state_` (atomic), `kept_` (mutex) and `pool_`.
class MpiSession {
 public:
  /// Duplicates the parent communicator twice: for messages and for control messages. Collective over its processes,
  /// blocks.
  static MpiSession& open(const Runtime& runtime);
  MpiSession(const MpiSession&) = delete;
  MpiSession& operator=(const MpiSession&) = delete;

  int process() const { return process_; }
  int process_count() const { return process_count_; }
  const Runtime& runtime() const { return runtime_; }
  MPI_Comm messages() const { return messages_; }
  MPI_Comm control_messages() const { return control_messages_; }
  /// To be held around each call of MPI; an empty lock where none is needed.
  /// @throws TransportError  the job was left, or the program has finalised MPI; `call` is what was about to be done
  std::unique_lock<std::mutex> enter(std::string_view call) const;
  /// The same for destructors: false in a forked child and where `enter` would throw.
  bool is_usable() const;
  std::unique_lock<std::mutex> lock() const;

  /// Tests until complete, resting in between. @throws TransportError, and what `look` throws, which is called
  /// meanwhile
  void wait(MPI_Request& request, std::string_view call, const std::function<void()>& look = {}) const;
  /// Gives a request that was cancelled or will not be waited for a moment to end. False if it has not: MPI may still
  /// use its memory, which the caller then hands to `keep`. Never throws.
  bool settle(MPI_Request& request);
  /// Keeps memory that MPI may still use until the process ends.
  void keep(std::unique_ptr<ControlMessage> memory);
  void keep(std::vector<std::byte> memory);
  CommunicatorPool& pool() { return pool_; }

  /// Called from the program's MPI_Finalize, while MPI still works.
  void set_goodbye(std::function<void()> goodbye) { goodbye_ = std::move(goodbye); }
  /// Stops all use of MPI: after this `enter` throws. `in_good_order`: frees the communicators, and finalises MPI if we
  /// have initialised it; otherwise neither, so that the launcher notices and nothing can hang.
  void close(bool in_good_order);

 private:
  enum class State { kOpen, kLeft, kFinalized };

  explicit MpiSession(const Runtime& runtime);
  MPI_Comm duplicate_parent() const;
  void watch_finalize();
  void mpi_is_being_finalized();
  friend int on_finalize(MPI_Comm, int, void*, void*);

  const Runtime runtime_;
  const pid_t pid_;
  MPI_Comm messages_ = MPI_COMM_NULL;
  MPI_Comm control_messages_ = MPI_COMM_NULL;
  int process_ = 0;
  int process_count_ = 1;
  int keyval_ = MPI_KEYVAL_INVALID;
  std::function<void()> goodbye_;
  // Written once by the thread that leaves or finalises; relaxed, because using MPI after that is an error either way.
  std::atomic<State> state_{State::kOpen};
  std::atomic<bool> has_stuck_{false};  // a request did not settle: later ones are not waited for
  CommunicatorPool pool_;
  std::mutex kept_mutex_;
  std::vector<std::unique_ptr<ControlMessage>> kept_;  // guarded by kept_mutex_
  std::vector<std::vector<std::byte>> kept_buffers_;   // guarded by kept_mutex_
};

}  // namespace farandole::mpi
