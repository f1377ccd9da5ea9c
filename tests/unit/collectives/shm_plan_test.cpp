// SPDX-License-Identifier: Apache-2.0
// Plans of collectives in shared memory, simulated for all ranks: every step runs once, no deadlock, and no slot is
// overwritten while a peer reads it.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "shared_memory/shm_group.h"
#include "shared_memory/shm_plan.h"

namespace farandole {
namespace {

constexpr Collective kAll[] = {Collective::kAllreduce, Collective::kReduce,    Collective::kReduceScatter,
                               Collective::kBroadcast, Collective::kAllgather, Collective::kGather,
                               Collective::kScatter,   Collective::kAlltoall};

std::string describe(const ShmFacts& facts, std::size_t parts) {
  return fmt::format("{} among {}, root {}, reaches inputs {}, outputs {}, copies {}, {} parts", name(facts.collective),
                     facts.size, facts.root, facts.reaches_inputs, facts.reaches_outputs, facts.copies_inputs, parts);
}

/// All facts, with parts that can occur.
template <class Body>
void for_each_plan(const std::vector<int>& sizes, const std::vector<std::size_t>& parts, const Body& body) {
  for (const Collective collective : kAll) {
    for (const int size : sizes) {
      for (int root = 0; root < (is_rooted(collective) ? size : 1); ++root) {
        for (int reach = 0; reach < 6; ++reach) {
          ShmFacts facts{collective, size, is_rooted(collective) ? root : -1, false, false, false};
          facts.reaches_inputs = reach == 1 || reach == 3;
          facts.reaches_outputs = reach == 2 || reach == 3 || reach == 5;
          facts.copies_inputs = reach >= 4;
          for (const std::size_t count : parts) body(facts, count);
        }
      }
    }
  }
}

TEST(ShmPlan, VisitsEveryStepOnceAndCountsThem) {
  for_each_plan({2, 3}, {1, 2, 3, 4, 17}, [](const ShmFacts& facts, std::size_t parts) {
    SCOPED_TRACE(describe(facts, parts));
    ShmPlan plan(facts);
    plan.set_slices(parts);
    std::set<std::pair<ShmStage, std::size_t>> visited;
    ShmPlan::Step step = plan.first();
    for (std::uint64_t done = 1; done <= plan.steps(); ++done, step = plan.after(step)) {
      EXPECT_TRUE(plan.uses(step.stage));
      EXPECT_LT(step.slice, parts);
      EXPECT_TRUE(visited.emplace(step.stage, step.slice).second) << "visited twice";
      EXPECT_EQ(plan.done_after(step.stage, step.slice), done);
    }
    std::size_t used = 0;
    for (const ShmStage stage : {ShmStage::kCopyIn, ShmStage::kReduce, ShmStage::kCopyOut}) used += plan.uses(stage);
    EXPECT_EQ(visited.size(), used * parts);
  });
}

TEST(ShmPlan, ASlicePassesTheStagesInOrder) {
  for_each_plan({2}, {3, 9}, [](const ShmFacts& facts, std::size_t parts) {
    ShmPlan plan(facts);
    plan.set_slices(parts);
    for (const auto& [early, late] :
         {std::pair(ShmStage::kCopyIn, ShmStage::kReduce), std::pair(ShmStage::kReduce, ShmStage::kCopyOut)}) {
      if (!plan.uses(early) || !plan.uses(late)) continue;
      for (std::size_t slice = 0; slice < parts; ++slice) {
        EXPECT_LT(plan.done_after(early, slice), plan.done_after(late, slice)) << describe(facts, parts);
      }
    }
  });
}

struct Rules {
  bool waits_for_readers = true, waits_for_writers = true, waits_at_end = true;
};

/// Simulates all ranks under the waiting rules of Pipeline, in every interleaving. A step has a beginning and an end,
/// so that steps of other ranks can run in between.
class Simulation {
 public:
  Simulation(const ShmFacts& facts, std::size_t parts, const Rules& rules)
      : facts_(facts), plan_(facts), rules_(rules) {
    plan_.set_slices(parts);
    ShmPlan::Step step = plan_.first();
    for (std::uint64_t i = 0; i < plan_.steps(); ++i, step = plan_.after(step)) steps_.push_back(step);
  }

  /// Describes the first error; empty if there is none.
  std::string run() {
    std::vector<State> open{State(static_cast<std::size_t>(facts_.size), 0)};
    std::set<State> seen{open.front()};
    while (!open.empty()) {
      const State state = open.back();
      open.pop_back();
      bool moved = false, finished = true;
      for (int rank = 0; rank < facts_.size; ++rank) {
        finished = finished && state[index(rank)] == left();
        if (!may_move(state, rank)) continue;
        moved = true;
        if (std::string error = check(state, rank); !error.empty()) return error;
        State next = state;
        ++next[index(rank)];
        if (seen.insert(next).second) open.push_back(std::move(next));
      }
      if (!moved && !finished) return "all ranks wait";
    }
    return {};
  }

 private:
  /// Per rank: twice the steps it has ended, plus one while it is in the next one; in the end `left()`.
  using State = std::vector<int>;
  static std::size_t index(int rank) { return static_cast<std::size_t>(rank); }
  int left() const { return static_cast<int>(2 * steps_.size()) + 1; }
  static bool is_in_step(int position) { return position % 2 == 1; }
  static std::uint64_t ended(int position) { return static_cast<std::uint64_t>(position / 2); }

  bool all_reached(const State& state, int rank, std::uint64_t steps, int only) const {
    for (int other = 0; other < facts_.size; ++other) {
      if (other == rank || (only >= 0 && other != only)) continue;
      if (ended(state[index(other)]) < steps) return false;
    }
    return true;
  }

  bool may_move(const State& state, int rank) const {
    const int position = state[index(rank)];
    if (position == left()) return false;
    if (position == left() - 1) {
      return !rules_.waits_at_end || !plan_.touches_buffers() || all_reached(state, rank, plan_.steps(), -1);
    }
    if (is_in_step(position)) return true;
    const auto [stage, slice] = steps_[ended(position)];
    if (!plan_.is_active(stage, rank)) return true;
    const auto reader = static_cast<ShmStage>(static_cast<int>(stage) + 1);
    const bool reused = stage != ShmStage::kCopyOut && plan_.uses(reader) && slice >= ShmLayout::kSlots;
    if (rules_.waits_for_readers && reused &&
        !all_reached(state, rank, plan_.done_after(reader, slice - ShmLayout::kSlots), -1)) {
      return false;
    }
    if (stage == ShmStage::kCopyIn || !rules_.waits_for_writers) return true;
    const auto writer = static_cast<ShmStage>(static_cast<int>(stage) - 1);
    return !plan_.uses(writer) || all_reached(state, rank, plan_.done_after(writer, slice), plan_.source(stage));
  }

  /// Describes the error that results if `rank` begins its next step now; empty if there is none.
  std::string check(const State& state, int rank) const {
    const int position = state[index(rank)];
    if (position >= left() - 1 || is_in_step(position)) return {};
    const auto [stage, slice] = steps_[ended(position)];
    if (!plan_.is_active(stage, rank)) return {};
    for (int other = 0; other < facts_.size; ++other) {
      if (other == rank) continue;
      const int theirs = state[index(other)];
      const bool uses_buffers = (plan_.reads_inputs() && stage != ShmStage::kCopyIn && !uses_slots(stage)) ||
                                (plan_.writes_outputs() && stage == ShmStage::kReduce);
      if (uses_buffers && theirs == left()) return fmt::format("rank {} has left with its buffers in use", other);
      if (reads_slots_of(stage, other) && !has(theirs, static_cast<ShmStage>(static_cast<int>(stage) - 1), slice)) {
        return fmt::format("rank {} reads a slot of rank {} before it is written", rank, other);
      }
      const auto reader = static_cast<ShmStage>(static_cast<int>(stage) + 1);
      if (stage != ShmStage::kCopyOut && plan_.uses(reader) && slice >= ShmLayout::kSlots &&
          plan_.is_active(reader, other) && reads_slots_of(reader, rank) &&
          !has(theirs, reader, slice - ShmLayout::kSlots)) {
        return fmt::format("rank {} writes a slot that rank {} has not read", rank, other);
      }
    }
    return {};
  }

  bool uses_slots(ShmStage stage) const {
    return stage != ShmStage::kCopyIn && plan_.uses(static_cast<ShmStage>(static_cast<int>(stage) - 1));
  }
  /// True if `stage` reads the slots of `owner`: only the root's slots if the root alone has data.
  bool reads_slots_of(ShmStage stage, int owner) const {
    const bool from_root = facts_.collective == Collective::kBroadcast || facts_.collective == Collective::kScatter;
    return uses_slots(stage) && (!from_root || owner == facts_.root);
  }
  bool has(int position, ShmStage stage, std::size_t slice) const {
    return ended(position) >= plan_.done_after(stage, slice);
  }

  const ShmFacts facts_;
  ShmPlan plan_;
  const Rules rules_;
  std::vector<ShmPlan::Step> steps_;
};

TEST(ShmPlan, NeitherDeadlocksNorOverwritesSlotsInUse) {
  const auto check = [](const ShmFacts& facts, std::size_t parts) {
    EXPECT_EQ(Simulation(facts, parts, {}).run(), "") << describe(facts, parts);
  };
  for_each_plan({2}, {0, 1, 2, 3, 4, 7}, check);
  for_each_plan({3}, {1, 3, 4}, check);
  for_each_plan({4}, {1, 3}, check);
}

TEST(ShmPlan, SimulationFindsMissingWaits) {
  const ShmFacts staged{Collective::kAllreduce, 2, -1, false, false, false};
  Rules rules;
  rules.waits_for_readers = false;
  EXPECT_NE(Simulation(staged, 4, rules).run(), "");
  rules = {};
  rules.waits_for_writers = false;
  EXPECT_NE(Simulation(staged, 1, rules).run(), "");
  for (const auto& [inputs, outputs] : {std::pair(true, false), std::pair(false, true), std::pair(true, true)}) {
    const ShmFacts windows{Collective::kAllreduce, 2, -1, inputs, outputs, false};
    rules = {};
    rules.waits_at_end = false;
    // If results are staged, ranks learn of each other's last slice anyway, but not of the root's last read.
    EXPECT_EQ(Simulation(windows, 3, rules).run().empty(), inputs && !outputs) << inputs << outputs;
  }
}

}  // namespace
}  // namespace farandole
