// SPDX-License-Identifier: Apache-2.0
#include "schedule/stream_program.h"

#include <fmt/core.h>

#include <algorithm>
#include <compare>
#include <utility>

#include "farandole/core/error.h"

namespace farandole {
namespace {

/// Places the steps in program order, each as early as its dependencies allow.
class StreamPlanner {
 public:
  explicit StreamPlanner(const Schedule& schedule) : schedule_(schedule), places_(schedule.steps.size()) {
    program_.stages.resize(static_cast<std::size_t>(schedule.rounds) + 1);
    program_.is_bounced.resize(schedule.steps.size(), false);
  }

  StreamProgram plan() {
    // In program order a step comes after its dependencies, whatever their rounds.
    for (std::size_t index = 0; index < schedule_.steps.size(); ++index) {
      const Step& step = schedule_.steps[index];
      if (step.is_message()) {
        place_message(static_cast<int>(index));
      } else {
        places_[index] = after_all(step, 0);
        add_to_batch(static_cast<int>(index));
      }
    }
    return std::move(program_);
  }

 private:
  /// Point of the program at which a step is complete: the end of batch `batch` of stage `stage`. Batch -1 stands for
  /// the end of the previous stage's group of messages.
  struct Point {
    int stage = 0;
    int batch = -1;
    auto operator<=>(const Point&) const = default;
  };

  /// First batch, in `stage` or a later stage, that comes after all dependencies of the step.
  Point after_all(const Step& step, int stage) const {
    Point latest{stage, -1};
    for (const int before : step.after) latest = std::max(latest, places_[static_cast<std::size_t>(before)]);
    return {latest.stage, latest.batch + 1};
  }

  void add_to_batch(int index) {
    const Point place = places_[static_cast<std::size_t>(index)];
    auto& batches = program_.stages[static_cast<std::size_t>(place.stage)].batches;
    const auto batch = static_cast<std::size_t>(place.batch);
    if (batches.size() <= batch) batches.resize(batch + 1);
    batches[batch].push_back(index);
  }

  void place_message(int index) {
    const Step& step = schedule_.steps[static_cast<std::size_t>(index)];
    program_.stages[static_cast<std::size_t>(step.round)].messages.push_back(index);
    const Point done{step.round + 1, -1};  // the end of the round's group
    const bool waits_for_group = std::any_of(step.after.begin(), step.after.end(), [&](int before) {
      return places_[static_cast<std::size_t>(before)].stage > step.round;
    });
    if (step.kind == StepKind::kSend && waits_for_group) {
      throw InternalError(
          fmt::format("{} waits for a message of its own round or a later one", describe(schedule_, index)));
    }
    places_[static_cast<std::size_t>(index)] = done;
    if (step.kind != StepKind::kRecvReduce && !waits_for_group) return;
    program_.is_bounced[static_cast<std::size_t>(index)] = true;
    const Point unpacked = after_all(step, done.stage);
    if (unpacked.stage > done.stage) {
      throw InternalError(fmt::format("{} waits for a later round", describe(schedule_, index)));
    }
    places_[static_cast<std::size_t>(index)] = unpacked;
    add_to_batch(index);
  }

  const Schedule& schedule_;
  StreamProgram program_;
  std::vector<Point> places_;  // by step
};

}  // namespace

StreamProgram make_stream_program(const Schedule& schedule) {
  return StreamPlanner(schedule).plan();
}

}  // namespace farandole
