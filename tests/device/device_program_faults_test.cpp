// SPDX-License-Identifier: Apache-2.0
// Mistakes planted into random programs of several communicators in the caller's order (random_program.h). Each program
// makes its job fail. PROGRAM_SEED sets the first seed, PROGRAM_COUNT the number of programs.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "direct_communicator.h"
#include "farandole/core/error.h"
#include "farandole/internal/endpoint.h"
#include "on_device.h"
#include "random_program.h"

namespace farandole::test {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;

enum class Kind { kExchanged, kOtherCount, kLeftOut, kLeaves };

/// A mistake in the calls of one group, made by one of its ranks.
struct Mistake {
  Kind kind = Kind::kExchanged;
  int culprit = 0;
  std::size_t group = 0;
  std::vector<std::size_t> places;  ///< of the group's calls in the program
  std::size_t call = 1;             ///< number of the first wrong call; a group's call before the program has number 0
};

struct WrongProgram {
  std::vector<PlannedCall> calls;
  Mistake mistake;
};

/// Right calls, and the mistake to make in them. A call that is left out is the last of the program.
WrongProgram plan(RandomProgram& program, Kind kind) {
  std::vector<std::size_t> callers;
  for (std::size_t i = 0; i < program.groups().size(); ++i) {
    if (program.groups()[i].is_caller()) callers.push_back(i);
  }
  WrongProgram wrong;
  Mistake& mistake = wrong.mistake;
  mistake.kind = kind;
  mistake.group = callers[program.below(callers.size())];
  const auto& members = program.groups()[mistake.group].members;
  mistake.culprit = members[program.below(members.size())];
  const std::size_t count = 8 + program.below(8);
  for (std::size_t i = 0; i < count; ++i) {
    // At least two calls, and the last one, are the group's.
    const bool is_mistaken = i < 2 || i + 1 == count;
    const std::size_t group = is_mistaken ? mistake.group : callers[program.below(callers.size())];
    if (group == mistake.group) mistake.places.push_back(i);
    wrong.calls.push_back(program.direct_call(group));
  }
  const bool is_last = kind == Kind::kLeftOut || kind == Kind::kLeaves;
  // The root of a broadcast may end it without the others.
  if (is_last) wrong.calls.back().collective = Collective::kAllreduce;
  mistake.call = is_last ? mistake.places.size() : 1 + program.below(mistake.places.size() - 1);
  return wrong;
}

/// The calls that `rank` makes.
std::vector<PlannedCall> calls_of_rank(const WrongProgram& wrong, int rank) {
  std::vector<PlannedCall> calls = wrong.calls;
  const Mistake& mistake = wrong.mistake;
  if (rank != mistake.culprit) return calls;
  PlannedCall& call = calls[mistake.places[mistake.call - 1]];
  if (mistake.kind == Kind::kExchanged) {
    std::swap(call, calls[mistake.places[mistake.call]]);
  } else if (mistake.kind == Kind::kOtherCount) {
    ++call.count;
  } else {
    calls.pop_back();
  }
  return calls;
}

/// The fault of the job. Waits for it.
std::string fault_of(Communicator& ranks) {
  EndpointFaults& faults = internals(ranks).endpoint().faults();
  wait_for_fault(faults);
  try {
    faults.check();
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

/// Runs the calls, which are valid but differ among ranks. Returns the fault; empty on a rank that leaves.
std::string run_wrong(ProgramRank& rank, const std::vector<PlannedGroup>& groups, const WrongProgram& wrong) {
  std::vector<std::unique_ptr<ProgramCall>> calls;
  for (const PlannedCall& plan : calls_of_rank(wrong, rank.rank())) {
    if (rank.is_in(plan.group)) calls.push_back(std::make_unique<ProgramCall>(rank, groups[plan.group], plan));
  }
  rank.ranks().barrier();  // memory is there before a stream may hang
  std::string fault;
  try {
    for (const auto& call : calls) call->start();
    const bool leaves = wrong.mistake.kind == Kind::kLeaves && rank.rank() == wrong.mistake.culprit;
    if (!leaves) fault = fault_of(rank.ranks());
  } catch (const Error& error) {
    fault = error.what();
  }
  // The program's own copies to the buffers of `calls` end before these are released. After a fault NCCL is aborted, so
  // that the streams go on.
  rank.synchronize();
  return fault;
}

void run_program(Communicator& ranks, unsigned seed, Kind kind) {
  RandomProgram program(seed, ranks.size());
  const WrongProgram wrong = plan(program, kind);
  ProgramRank rank(ranks, program.groups(), program_streams(ranks));
  for (std::size_t i = 0; i < program.groups().size(); ++i) {
    // A first call, which goes through the queue and connects all ranks.
    PlannedCall first = program.direct_call(i);
    first.collective = Collective::kAllreduce;
    if (!rank.is_in(i)) continue;
    ProgramCall call(rank, program.groups()[i], first);
    call.start();
    rank.synchronize();
  }
  const std::string fault = run_wrong(rank, program.groups(), wrong);
  const Mistake& mistake = wrong.mistake;
  if (kind == Kind::kLeaves && ranks.rank() == mistake.culprit) return;
  EXPECT_THAT(fault, AllOf(HasSubstr(fmt::format("call {} in the caller's device order", mistake.call)),
                           HasSubstr(fmt::format("rank {} ", mistake.culprit)),
                           HasSubstr(fmt::format("communicator 'group {}'", mistake.group))));
  if (kind == Kind::kLeftOut || kind == Kind::kLeaves) {
    EXPECT_THAT(fault, AnyOf(HasSubstr("not in it yet: "), HasSubstr("has left the job without call")));
  } else {
    EXPECT_THAT(fault, AllOf(HasSubstr(" called "), HasSubstr("but rank ")));
  }
}

void run_programs(Kind kind) {
  const char* const given = std::getenv("PROGRAM_COUNT");
  const auto programs = static_cast<unsigned>(given == nullptr ? 4 : std::strtoul(given, nullptr, 10));
  const unsigned first = first_seed(1);
  for (unsigned seed = first; seed < first + programs; ++seed) {
    for_each_device_group({static_cast<int>(2 + seed % 3)}, [&](Communicator& ranks) {
      SCOPED_TRACE(fmt::format("PROGRAM_SEED={} PROGRAM_COUNT=1, {} ranks", seed, ranks.size()));
      run_program(ranks, seed, kind);
    });
  }
}

TEST(ProgramFaults, ExchangedCallsAreNamed) {
  run_programs(Kind::kExchanged);
}

TEST(ProgramFaults, AnotherCountIsNamed) {
  run_programs(Kind::kOtherCount);
}

TEST(ProgramFaults, ALeftOutCallIsNamed) {
  run_programs(Kind::kLeftOut);
}

TEST(ProgramFaults, ARankThatLeavesIsNamed) {
  run_programs(Kind::kLeaves);
}

}  // namespace
}  // namespace farandole::test
