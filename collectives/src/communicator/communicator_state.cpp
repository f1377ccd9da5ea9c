// SPDX-License-Identifier: Apache-2.0
#include "communicator/communicator_state.h"

#include "farandole/core/error.h"
#include "farandole/internal/forked_children.h"

namespace farandole {

Communicator::State::State(Group group) : group_(tuned(std::move(group))), queue_(std::make_shared<WorkQueue>(group_)) {
  group_.endpoint->take_id(group_.id);
  group_.endpoint->enter(group_.id, 0);
  group_.endpoint->attach(queue_);
}

Communicator::State::~State() {
  if (queue_->is_forked_child()) {
    keep_until_the_end(queue_);
    return;
  }
  // Collectives that an exception leaves behind will not be joined by this rank any more: the others must not wait.
  if (std::uncaught_exceptions() > exceptions_at_start_ && !queue_->is_empty()) queue_->give_up();
  queue_->close();
  group_.endpoint->release_id(group_.id);
}

std::array<std::size_t, kCollectiveCount> Communicator::State::find_shared_memory_below() const {
  std::array<std::size_t, kCollectiveCount> below{};
  for (int i = 0; i < kCollectiveCount; ++i) {
    const Question asked = question(static_cast<Collective>(i), 0);
    below[static_cast<std::size_t>(i)] = shared_memory_below(asked, group_.endpoint->settings());
  }
  return below;
}

/// What runs, or why this rank can not take part.
std::pair<Choice, std::string> Communicator::State::prepare(const Call& call) {
  std::string refusal;
  Choice choice{Choice::Kind::kSchedule, &algorithms().front(), 1};
  try {
    validate(call, group_);
    // Ranks that exchange uneven parts do not know each other's sizes, and must choose alike: as above every table.
    const bool knows_size = call.collective != Collective::kAlltoall || !call.uneven;
    const std::size_t bytes = total_count(call) * size_in_bytes(call.input.dtype);
    Question asked = question(call.collective, knows_size ? bytes : kUnknownBytes);
    asked.forced = call.algorithm;
    asked.segments = call.segments;
    asked.table_may_say_vendor = vendor_agrees(call.input.dtype, call.op);
    choice = choose(asked);
  } catch (const InvalidArgument& error) {
    // With the check on, the other ranks hear of it in their own call; without it this rank just raises.
    if (group_.size() == 1 || !group_.endpoint->settings().check) throw;
    refusal = error.what();
  }
  return {choice, std::move(refusal)};
}

}  // namespace farandole
