// SPDX-License-Identifier: Apache-2.0
// State of a joined job in MPI: communicators in use and unused, the locking of MPI's calls, and whether MPI may still
// be called.
#pragma once

#include <mpi.h>
#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <string_view>
#include <vector>

#include "farandole/sdk/backend.h"
#include "mpi_runtime.h"

namespace farandole::mpi {

/// Identifies the purpose of an MPI communicator.
struct CommunicatorKey {
  std::uint16_t id = 0;        ///< id of Farandole's communicator
  std::vector<int> processes;  ///< in the order of their ranks
  bool operator==(const CommunicatorKey&) const = default;
};

/// Keeps the MPI communicators of Farandole's ended communicators for reuse, because making a communicator takes tens
/// of milliseconds in Open MPI, and MPICH has at most 2045. A later communicator reuses the MPI communicator of the
/// same id and processes. That is safe: an id is recycled only after all its ranks have released the id, so no rank
/// still uses the MPI communicator.
///
/// Thread-safe.
class CommunicatorPool {
 public:
  static constexpr std::size_t kMaxKept = 64;

  /// Removes and returns a communicator; MPI_COMM_NULL if the pool has none with this key.
  MPI_Comm take(const CommunicatorKey& key);
  /// Adds a communicator. Frees the oldest if the pool then holds more than kMaxKept.
  void put(CommunicatorKey key, MPI_Comm communicator);
  void free_all();

 private:
  struct Kept {
    CommunicatorKey key;
    MPI_Comm communicator;
  };
  std::mutex mutex_;
  std::list<Kept> kept_;  // oldest first; guarded by mutex_
};

/// Guards all use of MPI by a job. Every call of MPI is made while the result of `enter` or `lock` is held.
///
/// Sessions are never destroyed: a transfer that is destroyed late, or a late callback of MPI, still finds its session,
/// which then makes no call of MPI.
///
/// Threads: with MPI_THREAD_MULTIPLE any thread may call MPI. With MPI_THREAD_SERIALIZED all calls are made under one
/// process-wide lock, and no call blocks. With a lower level only the main thread calls MPI. Const after construction
/// except `state_` (atomic), the kept memory (mutex) and `pool_` (thread-safe).
class MpiSession {
 public:
  /// Duplicates the parent communicator twice, for messages and for control messages. Collective over the parent's
  /// processes; blocks.
  static MpiSession& open(const Runtime& runtime);
  MpiSession(const MpiSession&) = delete;
  MpiSession& operator=(const MpiSession&) = delete;

  int process() const { return process_; }
  int process_count() const { return process_count_; }
  const Runtime& runtime() const { return runtime_; }
  MPI_Comm messages() const { return messages_; }
  MPI_Comm control_messages() const { return control_messages_; }
  /// Returns the lock to hold during a call of MPI; an empty lock if the thread level needs none.
  /// @param call  the intended call, for the message
  /// @throws TransportError  the job was left, or the program has finalised MPI
  std::unique_lock<std::mutex> enter(std::string_view call) const;
  /// True if MPI may be called: false in a forked child, and whenever `enter` would throw. Destructors ask this, and
  /// then call `lock` instead of `enter`.
  bool is_usable() const;
  /// `enter` without the check.
  std::unique_lock<std::mutex> lock() const;

  /// Polls a request until complete, and yields or sleeps in between.
  /// @param while_waiting  called after each test; its exceptions are passed on   @throws TransportError
  void wait(MPI_Request& request, std::string_view call, const std::function<void()>& while_waiting = {}) const;
  /// Waits briefly for a request that was cancelled or given up. Returns false if the request is still incomplete: MPI
  /// may then still use the memory, which the caller passes to `keep`. Never throws.
  bool settle(MPI_Request& request);
  /// Keeps memory that MPI may still use, until the process ends.
  void keep(std::unique_ptr<ControlMessage> memory);
  void keep(std::vector<std::byte> memory);
  CommunicatorPool& pool() { return pool_; }

  /// Sets a function to call at the beginning of the program's MPI_Finalize, while MPI still works.
  void set_goodbye(std::function<void()> goodbye) { goodbye_ = std::move(goodbye); }
  /// Stops all use of MPI: `enter` throws afterwards.
  /// @param in_good_order  true: frees the communicators, and finalises MPI if Farandole has initialised MPI. False,
  /// after a fault: does neither, so that nothing can hang, and the launcher notices the failure
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
  // Written once, by the thread that leaves or finalises. Read relaxed: a concurrent call of MPI would be an error
  // anyway.
  std::atomic<State> state_{State::kOpen};
  std::atomic<bool> has_stuck_{false};  // a request did not settle; `settle` no longer waits
  CommunicatorPool pool_;
  std::mutex kept_mutex_;
  std::vector<std::unique_ptr<ControlMessage>> kept_;  // guarded by kept_mutex_
  std::vector<std::vector<std::byte>> kept_buffers_;   // guarded by kept_mutex_
};

}  // namespace farandole::mpi
