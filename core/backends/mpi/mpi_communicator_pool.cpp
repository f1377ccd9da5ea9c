// SPDX-License-Identifier: Apache-2.0
#include "mpi_communicator_pool.h"

#include <algorithm>
#include <utility>

namespace farandole::mpi {

MPI_Comm CommunicatorPool::take(const CommunicatorKey& key) {
  const std::lock_guard lock(mutex_);
  const auto found = std::find_if(kept_.begin(), kept_.end(), [&](const Kept& kept) { return kept.key == key; });
  if (found == kept_.end()) return MPI_COMM_NULL;
  const MPI_Comm communicator = found->communicator;
  kept_.erase(found);
  return communicator;
}

void CommunicatorPool::put(CommunicatorKey key, MPI_Comm communicator) {
  const std::lock_guard lock(mutex_);
  kept_.push_back({std::move(key), communicator});
  if (kept_.size() <= kMaxKept) return;
  MPI_Comm_free(&kept_.front().communicator);
  kept_.pop_front();
}

void CommunicatorPool::free_all() {
  const std::lock_guard lock(mutex_);
  for (Kept& kept : kept_) MPI_Comm_free(&kept.communicator);
  kept_.clear();
}

}  // namespace farandole::mpi
