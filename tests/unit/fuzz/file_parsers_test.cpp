// SPDX-License-Identifier: Apache-2.0
// Parsers of files from outside, fed with slightly damaged files.
#include <gtest/gtest.h>

#include "farandole/collectives/tuning.h"
#include "fuzz.h"

namespace farandole::fuzz {
namespace {

TEST(Fuzz, TuningTables) {
  TuningTable table;
  table.shape = {2, 1, "mpi"};
  table.version = "1.2.3";
  TuningTable with_limits = table;
  with_limits.one_shot_bytes = 4096;
  with_limits.slice_bytes = 65536;
  with_limits.of(Collective::kAlltoall, MemoryKind::kCuda) = {{512, "vendor", 1, 20}, {1 << 20, "pairwise", 1, 99.5}};
  table.of(Collective::kAllreduce) = {{64, "recursive_doubling", 0, 3.5}, {1 << 20, "ring", 4, 250}};
  table.of(Collective::kBroadcast) = {{1 << 10, "shared_memory", 0, 1.25}};
  run({.share = 13,
       .corpus = {table.to_json(), with_limits.to_json()},
       .mutate = [](Mutator& mutator, const Corpus& corpus) { return mutator.json(corpus); },
       .parse =
           [](const std::string& input) {
             const TuningTable read = TuningTable::parse(input, "table.json");
             read.check();
             EXPECT_EQ(TuningTable::parse(read.to_json(), "again").to_json(), read.to_json());
           }});
}

}  // namespace
}  // namespace farandole::fuzz
