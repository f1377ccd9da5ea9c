// SPDX-License-Identifier: Apache-2.0
// The World that all front ends of a process share: the engine and the communicators of the C header.
#pragma once

#include <memory>
#include <mutex>

#include "farandole/collectives/communicator.h"
#include "farandole/core/world.h"

namespace farandole {

/// The job of this process. Each front end holds a shared pointer; the process leaves the job when the last holder
/// releases it. Thread-safe.
class SharedWorld {
 public:
  /// Joins the job, or returns the World in which this process is already. Collective over the job if it joins; blocks.
  /// @throws Error  as World's constructor; InvalidArgument also if the World has another size or place than `options`
  /// expects
  static std::shared_ptr<SharedWorld> join(const WorldOptions& options);
  /// Returns the World in which this process is; null if there is none.
  static std::shared_ptr<SharedWorld> current();

  explicit SharedWorld(const WorldOptions& options) : world_(options), all_(Communicator::of_world(world_)) {}
  SharedWorld(const SharedWorld&) = delete;
  SharedWorld& operator=(const SharedWorld&) = delete;

  World& world() { return world_; }
  int rank() const { return all_.rank(); }
  int size() const { return all_.size(); }
  bool shares_memory() const { return all_.shares_memory(); }
  /// Returns a new communicator of all ranks. Collective over the job, in the same order on all ranks; blocks.
  /// @throws  as Communicator::duplicate
  Communicator make_communicator(const CommunicatorOptions& options = {});
  /// Allocates a window of bytes. @throws  as Communicator::allocate
  Buffer allocate(std::size_t bytes) { return all_.allocate(bytes, DType::kU8); }

 private:
  World world_;
  std::mutex mutex_;  // held while a communicator is made
  Communicator all_;
};

}  // namespace farandole
