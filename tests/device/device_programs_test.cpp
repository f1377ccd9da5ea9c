// SPDX-License-Identifier: Apache-2.0
// Random programs that mix communicators in the caller's and in the agreed device order. PROGRAM_SEED sets the first
// seed, PROGRAM_COUNT the number of programs.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "on_device.h"
#include "random_program.h"

namespace farandole::test {
namespace {

/// Two sequences of calls. All ranks make the ordered calls, of all kinds, in the same order. Each rank makes the free
/// calls in an order of its own: asynchronous calls in the agreed order, and between them direct calls, whose order is
/// the same on all ranks. Free calls do not block, because ranks that block in different calls wait for each other.
struct Phase {
  std::vector<PlannedCall> ordered;
  std::vector<std::vector<PlannedCall>> free;  // the order inside each is the same on all ranks
};

Phase plan_phase(RandomProgram& program) {
  Phase phase;
  const std::size_t groups = program.groups().size();
  // The first call of a communicator goes through the queue.
  for (std::size_t group = 0; group < groups; ++group) phase.ordered.push_back(program.direct_call(group));
  for (std::size_t i = 4 + program.below(5); i > 0; --i) {
    phase.ordered.push_back(program.any_call(program.below(groups)));
  }
  phase.free.emplace_back();
  for (std::size_t group = 0; group < groups; ++group) {
    // At most four calls of a communicator are in flight: a fifth would wait for other ranks.
    const bool is_caller = program.groups()[group].is_caller();
    std::vector<PlannedCall>& calls = is_caller ? phase.free.front() : phase.free.emplace_back();
    for (std::size_t i = 1 + program.below(4); i > 0; --i) {
      calls.push_back(program.direct_call(group));
      if (is_caller) continue;
      calls.back().way = program.below(2) == 0 ? PlannedCall::Way::kAsync : PlannedCall::Way::kAsyncInStream;
    }
  }
  return phase;
}

/// This rank's order of free calls. Every rank draws other numbers.
std::vector<PlannedCall> merge(const std::vector<std::vector<PlannedCall>>& sources, std::mt19937& random) {
  std::vector<std::size_t> turns;
  for (std::size_t i = 0; i < sources.size(); ++i) turns.insert(turns.end(), sources[i].size(), i);
  std::shuffle(turns.begin(), turns.end(), random);
  std::vector<PlannedCall> merged;
  std::vector<std::size_t> next(sources.size());
  for (const std::size_t source : turns) merged.push_back(sources[source][next[source]++]);
  return merged;
}

/// Makes the calls that this rank takes part in, waits for them in random order, and looks at the results.
void run_calls(ProgramRank& rank, const std::vector<PlannedGroup>& groups, const std::vector<PlannedCall>& plans,
               std::mt19937& random) {
  std::vector<ProgramCall> calls;
  calls.reserve(plans.size());  // calls do not move
  for (const PlannedCall& plan : plans) {
    if (rank.is_in(plan.group)) calls.emplace_back(rank, groups[plan.group], plan);
  }
  for (ProgramCall& call : calls) call.start();
  std::vector<std::size_t> waits(calls.size());
  for (std::size_t i = 0; i < waits.size(); ++i) waits[i] = i;
  std::shuffle(waits.begin(), waits.end(), random);
  for (const std::size_t i : waits) calls[i].wait();
  rank.synchronize();
  for (const ProgramCall& call : calls) EXPECT_EQ(call.difference(), "");
}

void run_program(Communicator& ranks, unsigned seed, const std::vector<StreamView>& streams) {
  RandomProgram program(seed, ranks.size());
  ProgramRank rank(ranks, program.groups(), streams);
  std::mt19937 own(seed + 1000U * static_cast<unsigned>(ranks.rank() + 1));
  for (int phase = 0; phase < 2; ++phase) {
    const Phase plan = plan_phase(program);
    run_calls(rank, program.groups(), plan.ordered, own);
    run_calls(rank, program.groups(), merge(plan.free, own), own);
  }
}

TEST(DevicePrograms, MixedOrdersAndSubgroupsGiveRightValues) {
  const char* const given = std::getenv("PROGRAM_COUNT");
  const auto programs = static_cast<unsigned>(given == nullptr ? 42 : std::strtoul(given, nullptr, 10));
  const unsigned first = first_seed(1);
  for_each_device_group({2, 3, 4}, [&](Communicator& ranks) {
    const std::vector<StreamView> streams = program_streams(ranks);
    for (unsigned i = 0; i < (programs + 2) / 3; ++i) {
      SCOPED_TRACE(fmt::format("PROGRAM_SEED={} PROGRAM_COUNT=1, {} ranks", first + i, ranks.size()));
      run_program(ranks, first + i, streams);
    }
  });
}

}  // namespace
}  // namespace farandole::test
