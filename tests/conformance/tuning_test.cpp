// SPDX-License-Identifier: Apache-2.0
// Selection by a tuning table, read from a file by rank 0 or passed by the program.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <limits>
#include <string>
#include <vector>

#include "farandole/core/error.h"
#include "farandole/internal/communicator_access.h"
#include "groups.h"
#include "trial.h"

namespace farandole::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

/// Shared memory up to 64 bytes, then each algorithm of the collective for a range of sizes, in segments.
TuningTable odd_table(const Communicator& ranks) {
  TuningTable table;
  table.shape = internals(ranks).tuning_shape();
  for (int i = 0; i < kCollectiveCount; ++i) {
    const auto collective = static_cast<Collective>(i);
    std::size_t up_to_bytes = 64;
    int segments = 1;
    if (ranks.shares_memory()) table.of(collective).push_back({up_to_bytes, "shared_memory", 0, 0});
    for (const Algorithm& algorithm : algorithms()) {
      if (algorithm.collective != collective || !algorithm.supports(ranks.size())) continue;
      up_to_bytes *= 8;
      segments += 2;
      table.of(collective).push_back({up_to_bytes, std::string(algorithm.name), segments, 0});
    }
  }
  table.one_shot_bytes = 100;
  table.slice_bytes = 4096 + 128;
  return table;
}

/// Runs every collective at sizes on both sides of the table's limits.
void try_sizes(Communicator& ranks) {
  for (int i = 0; i < kCollectiveCount; ++i) {
    for (const std::size_t count : {0, 3, 16, 17, 128, 129, 1000, 1025, 9000, 70'000}) {
      Shape shape;
      shape.collective = static_cast<Collective>(i);
      shape.total = count;
      shape.root = ranks.size() - 1;
      // Then ranks send and receive different numbers of bytes in an alltoall.
      if (count % 2 == 1) shape.spread = Spread::kUneven;
      Trial<std::int32_t> trial(ranks, shape, all_places()[count % all_places().size()]);
      ASSERT_EQ(trial.difference(), "") << name(shape.collective) << " of " << count << " elements";
    }
  }
}

TEST(Tuning, ATableChoosesByCollectiveAndSize) {
  for_each_group({2, 3, 4}, [](Communicator& ranks) {
    const TuningTable table = odd_table(ranks);
    Communicator tuned = ranks.duplicate({.table = &table});
    for (int i = 0; i < kCollectiveCount; ++i) {
      const auto collective = static_cast<Collective>(i);
      const std::string& forced = internals(ranks).settings().collectives.allreduce;
      if (collective == Collective::kAllreduce && forced != "auto") continue;
      for (const TuningTable::Entry& entry : table.of(collective)) {
        EXPECT_EQ(internals(tuned).choose(collective, entry.up_to_bytes), entry.algorithm);
      }
    }
    try_sizes(tuned);
    // A duplicate has the same ranks, so the table applies to the duplicate too.
    Communicator again = tuned.duplicate();
    EXPECT_EQ(internals(again).choose(Collective::kAlltoall, 300), internals(tuned).choose(Collective::kAlltoall, 300));
    Communicator alone = tuned.split(tuned.rank());
    // With a single rank, the original communicator is just like the split communicator.
    if (ranks.size() > 1) {
      EXPECT_THAT(internals(alone).explain(Collective::kAlltoall, 300), HasSubstr("is for"));
    }
    try_sizes(alone);
  });
}

TEST(Tuning, ManyCallsOfDifferentWaysInFlight) {
  for_each_group({2, 3, 4}, [](Communicator& ranks) {
    const TuningTable odd = odd_table(ranks);
    Communicator tuned = ranks.duplicate({.table = &odd});
    std::vector<std::vector<std::int64_t>> values;
    for (int k = 0; k < 60; ++k) values.emplace_back(static_cast<std::size_t>(1 << (k % 12)), k + ranks.rank());
    std::vector<Work> works;
    for (int k = 0; k < 60; ++k) {
      std::vector<std::int64_t>& mine = values[static_cast<std::size_t>(k)];
      if (k % 7 == 3) {
        tuned.allreduce(mine, ReduceOp::kMax);
      } else {
        works.push_back(tuned.allreduce_async(mine, ReduceOp::kMax));
      }
    }
    for (Work& work : works) work.wait();
    for (int k = 0; k < 60; ++k) {
      for (const std::int64_t value : values[static_cast<std::size_t>(k)]) ASSERT_EQ(value, k + ranks.size() - 1);
    }
  });
}

TEST(Tuning, DifferentSizesFailWhateverTheTableChooses) {
  for_each_group({2, 3}, [](Communicator& ranks) {
    if (ranks.size() == 1 || internals(ranks).settings().collectives.check == "off")
      GTEST_SKIP() << "needs several ranks that compare their calls";
    const TuningTable odd = odd_table(ranks);
    Communicator tuned = ranks.duplicate({.table = &odd});
    for (const std::size_t other : {5, 40, 300, 5000}) {
      std::vector<std::int32_t> values(ranks.rank() == 0 ? 4 : other, 1);
      EXPECT_THROW(tuned.allreduce(values, ReduceOp::kSum), Mismatch) << other;
    }
    std::vector<std::int32_t> one{1};
    tuned.allreduce(one, ReduceOp::kSum);
    EXPECT_EQ(one[0], ranks.size());
  });
}

TEST(Tuning, DifferentOrWrongTablesAreRefused) {
  for_each_group({2, 3}, [](Communicator& ranks) {
    TuningTable table = odd_table(ranks);
    table.of(Collective::kAlltoall)[0].algorithm = "rumour";
    EXPECT_THROW(ranks.duplicate({.table = &table}), InvalidArgument);
    table = odd_table(ranks);
    if (ranks.size() == 1) return;
    if (ranks.rank() == 1) table.of(Collective::kAlltoall).clear();
    EXPECT_THROW(ranks.duplicate({.table = &table}), Mismatch);
  });
}

TEST(CommunicatorOptions, RanksOfOneColorMustAgreeOnWhetherCallsAreCompared) {
  for_each_group({2, 3}, [](Communicator& ranks) {
    if (ranks.size() == 1) return;
    const bool is_last = ranks.rank() == ranks.size() - 1;
    try {
      (void)ranks.duplicate({.compare = is_last});
      ADD_FAILURE() << "nothing was raised";
    } catch (const Mismatch& error) {
      EXPECT_THAT(error.what(),
                  AllOf(HasSubstr("rank 0 and rank " + std::to_string(ranks.size() - 1)), HasSubstr("`compare`")));
    }
    Communicator part = ranks.split(is_last ? 1 : 0, 0, {.compare = is_last});
    std::vector<std::int32_t> one{1};
    part.allreduce(one, ReduceOp::kSum);
    EXPECT_EQ(one[0], part.size());
  });
}

TEST(Tuning, ATableForOtherRanksChangesNothing) {
  for_each_group({1, 2, 3}, [](Communicator& ranks) {
    TuningTable table = odd_table(ranks);
    ++table.shape.ranks;
    for (auto& entries : table.entries) entries.clear();
    table.of(Collective::kAlltoall) = {{1000, "pairwise", 3, 0}};
    table.slice_bytes = 4096;
    Communicator other = ranks.duplicate({.table = &table});
    const std::string text = internals(other).explain(Collective::kAlltoall, 8);
    EXPECT_THAT(text, HasSubstr("chosen by Farandole, because the table"));
    EXPECT_THAT(text, HasSubstr("is for"));
    try_sizes(other);
  });
}

// Its run by CTest sets the variable on rank 0 only.
TEST(Tuning, TheFileOfRankZeroHoldsOnAllRanks) {
  for_each_group({1}, [](Communicator& ranks) {
    if (internals(ranks).settings().collectives.tuning.empty()) GTEST_SKIP() << "FARANDOLE_TUNING is not set";
    const std::string text = internals(ranks).explain(Collective::kAllreduce, 41);
    EXPECT_THAT(text, HasSubstr("chosen by the table " + internals(ranks).settings().collectives.tuning +
                                ": 3 us were measured for up to 47"));
    EXPECT_EQ(internals(ranks).choose(Collective::kAllreduce, 40), "double_tree");
    EXPECT_EQ(internals(ranks).choose(Collective::kAllreduce, 400), "vendor");
    EXPECT_THAT(internals(ranks).explain(Collective::kAllreduce, 1000), HasSubstr("in parts of 4224 bytes"));
    try_sizes(ranks);
    // Sums of small integers wrap round, whatever the vendor's would do.
    std::vector<std::uint8_t> large(200, 200);
    ranks.allreduce(large, ReduceOp::kSum);
    EXPECT_EQ(large[199], static_cast<std::uint8_t>(200 * ranks.size()));
    // A NaN anywhere is the minimum and the maximum, whatever the vendor's would be.
    for (int rank = 0; rank < ranks.size(); ++rank) {
      for (const ReduceOp op : {ReduceOp::kMin, ReduceOp::kMax}) {
        std::vector<float> values(100, ranks.rank() == rank ? std::numeric_limits<float>::quiet_NaN() : 1.0F);
        ranks.allreduce(values, op);
        EXPECT_TRUE(std::isnan(values.front()) && std::isnan(values.back())) << name(op) << ", NaN on rank " << rank;
      }
    }
  });
}

}  // namespace
}  // namespace farandole::test
