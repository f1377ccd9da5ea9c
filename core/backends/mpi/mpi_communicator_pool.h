// SPDX-License-Identifier: Apache-2.0
// Pool of unused MPI communicators.
#pragma once

#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <list>
#include <mutex>
#include <vector>

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

}  // namespace farandole::mpi
