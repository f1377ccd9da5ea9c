// SPDX-License-Identifier: Apache-2.0
// Results stay right at sequence numbers, and numbers derived from them, that are far larger than in any job.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "communicator_probe.h"
#include "farandole/internal/communicator_access.h"
#include "groups.h"
#include "trial.h"

namespace farandole::test {
namespace {

// Ten years of 5 million collectives a second are 2^51. The others are where a field of 32 bits ends, and one of 40
// bits for a number that a collective has two of.
constexpr int kBorders[] = {32, 39, 51};
constexpr std::uint64_t kBefore = 6;

/// Short and long vectors through every way of shared memory, or by messages.
void try_across(Communicator& ranks, int border) {
  const auto part =
      static_cast<std::size_t>(internals(ranks).settings().shared_memory.slice_bytes) / sizeof(std::int32_t);
  std::vector<std::unique_ptr<Trial<std::int32_t>>> trials;
  for (std::uint64_t call = 0; call < 3 * kBefore; ++call) {
    constexpr Collective kTried[] = {Collective::kAllreduce, Collective::kReduceScatter, Collective::kAlltoall};
    Shape shape{kTried[call / 2 % 3], call % 2 == 0 ? 3 * part + 11 : 10, Spread::kEven, false, 0, call % 4 < 2};
    if (shape.collective == Collective::kAlltoall) shape.spread = Spread::kUneven;
    const Places& places = all_places()[call % all_places().size()];
    trials.push_back(std::make_unique<Trial<std::int32_t>>(ranks, shape, places));
    ASSERT_EQ(shape.blocking ? trials.back()->difference() : "", "")
        << name(shape.collective) << ", call " << call << " from 2^" << border << " - " << kBefore;
  }
  for (const auto& trial : trials) ASSERT_EQ(trial->difference(), "") << "around 2^" << border;
}

TEST(Counters, CollectivesAcrossTheEndsOfNarrowerFields) {
  for_each_group({2, 3}, [](Communicator& ranks) {
    for (const int border : kBorders) {
      Communicator late = CommunicatorProbe::starting_at(ranks.duplicate(), (std::uint64_t{1} << border) - kBefore);
      try_across(late, border);
    }
  });
}

TEST(Counters, EveryAlgorithmAcrossThem) {
  for_each_group({2, 3}, [](Communicator& ranks) {
    for (const int border : {32, 39, 52}) {
      Communicator late = CommunicatorProbe::starting_at(ranks.duplicate(), (std::uint64_t{1} << border) - 1);
      for (const std::string& algorithm : algorithm_names(Collective::kAllreduce, late)) {
        for (const std::size_t count : {1, 100'000}) {
          std::vector<std::int32_t> values(count, ranks.rank() + 1);
          late.allreduce(values, ReduceOp::kSum, {1.0, 1.0, algorithm, 0});
          ASSERT_EQ(values, std::vector<std::int32_t>(count, ranks.size() * (ranks.size() + 1) / 2))
              << algorithm << " of " << count << " elements from 2^" << border << " on";
        }
      }
    }
  });
}

/// The ranks that have lost count of each other are told apart at any number.
TEST(Counters, DisagreementIsSeenAtAnyNumber) {
  for_each_group({2, 3}, [](Communicator& ranks) {
    if (ranks.size() == 1 || internals(ranks).settings().collectives.check == "off") return;
    for (const int border : {39, 52}) {
      Communicator late = CommunicatorProbe::starting_at(ranks.duplicate(), (std::uint64_t{1} << border) - 2);
      for (int call = 0; call < 4; ++call) {
        std::vector<std::int32_t> values(ranks.rank() == 0 ? 200'000 : 200'001, 1);
        EXPECT_THROW(late.allreduce(values, ReduceOp::kSum), Mismatch);
      }
      std::vector<std::int32_t> values(200'000, 1);
      late.allreduce(values, ReduceOp::kSum);
      EXPECT_EQ(values.back(), ranks.size());
    }
  });
}

}  // namespace
}  // namespace farandole::test
