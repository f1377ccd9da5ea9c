// SPDX-License-Identifier: Apache-2.0
#include "farandole/internal/shared_world.h"

#include <fmt/format.h>

#include "farandole/core/error.h"
#include "farandole/internal/forked_children.h"

namespace farandole {
namespace {

struct WorldSlot {
  std::weak_ptr<SharedWorld> world;
  bool is_joining = false;
};

/// In a forked child the World, or a join in progress, is the parent's.
void become_child(WorldSlot& slot) {
  slot = {};
}
using OfThisProcess = ProcessState<WorldSlot, become_child>;

/// Lock of the thread that joins.
using JoinLock = FlagLock<OfThisProcess, &WorldSlot::is_joining>;

/// @throws InvalidArgument  the World has another size, or another place for this process
void check_place(const SharedWorld& world, const WorldOptions& options) {
  const auto refuse = [&](const std::string& expected) {
    throw InvalidArgument(
        fmt::format("this process is rank {} of {} already, but the program asks for {}; pass the same numbers, or "
                    "leave the job first",
                    world.rank(), world.size(), expected));
  };
  if (options.expected_size > 0 && options.expected_size != world.size()) {
    refuse(fmt::format("a job of {} ranks", options.expected_size));
  }
  const auto& own = options.bootstrap;
  if (own && (own->process != world.rank() || own->processes != world.size())) {
    refuse(fmt::format("rank {} of {}", own->process, own->processes));
  }
}

}  // namespace

std::shared_ptr<SharedWorld> SharedWorld::current() {
  return OfThisProcess::access()->world.lock();
}

std::shared_ptr<SharedWorld> SharedWorld::join(const WorldOptions& options) {
  const JoinLock one_at_a_time;
  if (auto world = current()) {
    check_place(*world, options);
    return world;
  }
  auto world = std::make_shared<SharedWorld>(options);
  OfThisProcess::access()->world = world;
  return world;
}

Communicator SharedWorld::make_communicator(const CommunicatorOptions& options) {
  const std::lock_guard one_at_a_time(mutex_);
  return all_.duplicate(options);
}

}  // namespace farandole
