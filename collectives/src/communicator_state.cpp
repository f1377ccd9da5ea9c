#include "communicator_state.h"

#include "farandole/core/error.h"

namespace farandole {

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
