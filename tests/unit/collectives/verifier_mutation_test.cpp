// SPDX-License-Identifier: Apache-2.0
// Breaks one thing in the schedules of every algorithm; the verifier must refuse the result.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "farandole/collectives/algorithms.h"
#include "farandole/collectives/verifier.h"

namespace farandole {
namespace {

/// Whether `earlier` is complete before `later` starts.
bool ordered(const Schedule& schedule, int earlier, int later) {
  const std::vector<int>& after = schedule.steps[static_cast<std::size_t>(later)].after;
  return std::any_of(after.begin(), after.end(), [&](int before) {
    return before == earlier || (before > earlier && ordered(schedule, earlier, before));
  });
}

class EveryMutant : public testing::TestWithParam<Algorithm> {
 protected:
  using Schedules = std::vector<Schedule>;

  /// Calls visit(schedules, rank, step) for every step of the first, a middle and the last rank, at several sizes. The
  /// visitor may change the schedules and must put them back.
  void for_each_step(const std::function<void(Schedules&, Schedule&, std::size_t)>& visit) {
    const Algorithm& algorithm = GetParam();
    for (const int size : {2, 3, 4, 5, 8}) {
      for (const int segments : {1, 2}) {
        if (!algorithm.supports(size)) {
          continue;
        }
        const int root = is_rooted(algorithm.collective) ? size / 2 : 0;
        Schedules schedules;
        for (int rank = 0; rank < size; ++rank) {
          schedules.push_back(algorithm.make({rank, size, root}, segments));
        }
        ASSERT_TRUE(verify(algorithm.collective, schedules).correct);
        for (const int rank : std::vector<int>{0, size / 2, size - 1}) {
          Schedule& schedule = schedules[static_cast<std::size_t>(rank)];
          for (std::size_t step = 0; step < schedule.steps.size(); ++step) {
            visit(schedules, schedule, step);
          }
        }
      }
    }
  }

  void expect_refused(const Schedules& schedules, const Schedule& original, std::size_t step, const char* change) {
    const Verdict verdict = verify(GetParam().collective, schedules);
    EXPECT_FALSE(verdict.correct) << change << ": rank " << original.place.rank << " of " << original.place.size << ", "
                                  << original.segments << " segments, " << describe(original, static_cast<int>(step));
    EXPECT_FALSE(!verdict.correct && verdict.fault.empty());
    ++mutants_;
  }

  /// Changes one step by `change`, asks that the result is refused, and puts the step back.
  void expect_step_refused(Schedules& schedules, Schedule& schedule, std::size_t step, const char* what,
                           const std::function<void(Step&)>& change) {
    const Schedule original = schedule;
    change(schedule.steps[step]);
    expect_refused(schedules, original, step, what);
    schedule = original;
  }

  int mutants_ = 0;
};

Schedule without_step(const Schedule& schedule, std::size_t dropped) {
  Schedule changed = schedule;
  const auto gone = static_cast<int>(dropped);
  for (Step& step : changed.steps) {
    if (std::find(step.after.begin(), step.after.end(), gone) != step.after.end()) {
      // Steps that waited for the dropped step inherit its dependencies.
      const std::vector<int>& before = schedule.steps[dropped].after;
      step.after.erase(std::find(step.after.begin(), step.after.end(), gone));
      step.after.insert(step.after.end(), before.begin(), before.end());
    }
    if (step.posted_after == gone) {
      step.posted_after = schedule.steps[dropped].posted_after;
    }
  }
  changed.steps.erase(changed.steps.begin() + gone);
  for (Step& step : changed.steps) {
    for (int& before : step.after) {
      before -= before > gone ? 1 : 0;
    }
    step.posted_after -= step.posted_after > gone ? 1 : 0;
  }
  return changed;
}

TEST_P(EveryMutant, WithADroppedStepIsRefused) {
  for_each_step([&](Schedules& schedules, Schedule& schedule, std::size_t step) {
    const Schedule original = schedule;
    schedule = without_step(original, step);
    expect_refused(schedules, original, step, "dropped");
    schedule = original;
  });
  EXPECT_GT(mutants_, 0);
}

TEST_P(EveryMutant, WithBothEndsOfAMessageDroppedIsRefused) {
  // An allgather after a scatter also sends some ranks pieces that they already have, so that only the messages of the
  // scatter are all necessary.
  const bool scatters_first = GetParam().name == "scatter_allgather";
  for_each_step([&](Schedules& schedules, Schedule& schedule, std::size_t step) {
    const bool allgathers = scatters_first && schedule.steps[step].round >= schedule.rounds / 2;
    if (schedule.steps[step].kind != StepKind::kSend || allgathers) {
      return;
    }
    const Schedules original = schedules;
    const auto to = static_cast<std::size_t>(schedule.steps[step].peer);
    const int rank = schedule.place.rank;
    int position = 0;  // of the message in its channel
    for (std::size_t i = 0; i < step; ++i) {
      position += schedule.steps[i].kind == StepKind::kSend && schedule.steps[i].peer == static_cast<int>(to) ? 1 : 0;
    }
    for (std::size_t i = 0; i < schedules[to].steps.size(); ++i) {
      const Step& other = schedules[to].steps[i];
      if (other.is_message() && other.kind != StepKind::kSend && other.peer == rank && position-- == 0) {
        schedules[to] = without_step(schedules[to], i);
        break;
      }
    }
    schedule = without_step(schedule, step);
    expect_refused(schedules, original[static_cast<std::size_t>(rank)], step, "dropped at both ends");
    schedules = original;
  });
  EXPECT_GT(mutants_, 0);
}

TEST_P(EveryMutant, WithASwappedPeerIsRefused) {
  for_each_step([&](Schedules& schedules, Schedule& schedule, std::size_t step) {
    const int size = schedule.place.size;
    if (size > 2 && schedule.steps[step].is_message()) {
      expect_step_refused(schedules, schedule, step, "peer swapped", [&](Step& changed) {
        do {
          changed.peer = (changed.peer + 1) % size;
        } while (changed.peer == schedule.place.rank);
      });
    }
  });
  EXPECT_GT(mutants_, 0);
}

TEST_P(EveryMutant, WithAMissingDependencyIsRefused) {
  for_each_step([&](Schedules& schedules, Schedule& schedule, std::size_t step) {
    const std::vector<int> after = schedule.steps[step].after;
    for (const int removed : after) {
      const Schedule original = schedule;
      auto& changed = schedule.steps[step].after;
      changed.erase(std::find(changed.begin(), changed.end(), removed));
      if (!ordered(schedule, removed, static_cast<int>(step))) {
        expect_refused(schedules, original, step, "dependency removed");
      }
      schedule = original;
    }
  });
  const std::string_view name = GetParam().name;
  EXPECT_EQ(mutants_ == 0, name == "linear" || name == "pairwise") << "the only ones without dependencies";
}

TEST_P(EveryMutant, WithAShiftedPieceIsRefused) {
  for_each_step([&](Schedules& schedules, Schedule& schedule, std::size_t step) {
    for (Region Step::*region : {&Step::target, &Step::operand, &Step::other}) {
      for (const int shift : {-1, 1}) {
        if ((schedule.steps[step].*region).count > 0) {
          expect_step_refused(schedules, schedule, step, "piece shifted",
                              [&](Step& changed) { (changed.*region).first += shift; });
        }
      }
    }
  });
  EXPECT_GT(mutants_, 0);
}

TEST_P(EveryMutant, WithAllRegionsOfALocalStepShiftedIsRefused) {
  for_each_step([&](Schedules& schedules, Schedule& schedule, std::size_t step) {
    if (!schedule.steps[step].is_message()) {
      expect_step_refused(schedules, schedule, step, "local step shifted", [](Step& changed) {
        ++changed.target.first;
        ++changed.operand.first;
        ++changed.other.first;
      });
    }
  });
}

TEST_P(EveryMutant, WithAnotherRoundIsRefused) {
  for_each_step([&](Schedules& schedules, Schedule& schedule, std::size_t step) {
    for (const int change : {-1, 1}) {
      if (schedule.steps[step].is_message()) {
        expect_step_refused(schedules, schedule, step, "round changed",
                            [&](Step& changed) { changed.round += change; });
      }
    }
  });
  EXPECT_GT(mutants_, 0);
}

TEST_P(EveryMutant, WithAStepOfAnotherKindIsRefused) {
  for_each_step([&](Schedules& schedules, Schedule& schedule, std::size_t step) {
    const Step& original = schedule.steps[step];
    if (original.kind == StepKind::kRecvReduce) {
      expect_step_refused(schedules, schedule, step, "received, not reduced", [](Step& changed) {
        changed.kind = StepKind::kRecv;
        changed.operand = {};
      });
    } else if (original.kind == StepKind::kRecv && original.target.space == Space::kData) {
      expect_step_refused(schedules, schedule, step, "reduced, not received", [](Step& changed) {
        changed.kind = StepKind::kRecvReduce;
        changed.operand = changed.target;
      });
    } else if (original.kind == StepKind::kFinish) {
      expect_step_refused(schedules, schedule, step, "copied, not finished",
                          [](Step& changed) { changed.kind = StepKind::kCopy; });
    }
  });
}

TEST_P(EveryMutant, WithInputAndDataExchangedIsRefused) {
  for_each_step([&](Schedules& schedules, Schedule& schedule, std::size_t step) {
    const Space space = schedule.steps[step].operand.space;
    if (schedule.steps[step].operand.count > 0 && space != Space::kScratch) {
      expect_step_refused(schedules, schedule, step, "input and data exchanged", [&](Step& changed) {
        changed.operand.space = space == Space::kInput ? Space::kData : Space::kInput;
      });
    }
  });
  EXPECT_GT(mutants_, 0);
}

TEST_P(EveryMutant, WithMessagesPostedOutOfOrderIsRefused) {
  for_each_step([&](Schedules& schedules, Schedule& schedule, std::size_t step) {
    if (schedule.steps[step].posted_after >= 0) {
      expect_step_refused(schedules, schedule, step, "posted at any time",
                          [](Step& changed) { changed.posted_after = -1; });
    }
  });
}

INSTANTIATE_TEST_SUITE_P(All, EveryMutant, testing::ValuesIn(algorithms().begin(), algorithms().end()),
                         [](const testing::TestParamInfo<Algorithm>& test) {
                           return std::string(name(test.param.collective)) + "_" + std::string(test.param.name);
                         });

}  // namespace
}  // namespace farandole
