// SPDX-License-Identifier: Apache-2.0
// Communicators of MPI that nothing uses at present.
#pragma once

#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <list>
#include <mutex>
#include <vector>

namespace farandole::mpi {

/// What a communicator of MPI was made for.
struct CommunicatorKey {
  std::uint16_t id = 0;        ///< of our communicator
  std::vector<int> processes;  ///< in the order of their ranks
  bool operator==(const CommunicatorKey&) const = default;
};

/// Making a communicator costs tens of milliseconds in Open MPI, and MPICH has room for 2045. So those of communicators
/// that have ended wait here, to be taken by later ones with the same id and processes: such an id is free on all its
/// ranks, so none of them uses its old communicator any more. Thread-safe.
class CommunicatorPool {
 public:
  static constexpr std::size_t kMaxKept = 64;

  /// Null if there is none.
  MPI_Comm take(const CommunicatorKey& key);
  /// Frees the one that came first, where there are too many.
  void put(CommunicatorKey key, MPI_Comm communicator);
  void free_all();

 private:
  struct Kept {
    CommunicatorKey key;
    MPI_Comm communicator;
  };
  std::mutex mutex_;
  std::list<Kept> kept_;  // guarded by mutex_; the oldest first
};

}  // namespace farandole::mpi
