// SPDX-License-Identifier: Apache-2.0
// Allreduce over several hosts: the bytes that cross hosts. Runs if the job has several hosts; FARANDOLE_HOST_ID can
// simulate them.
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "farandole/internal/communicator_access.h"
#include "groups.h"
#include "values.h"

namespace farandole::test {
namespace {

/// Bytes that all processes of two hosts send for one allreduce: each host's sum crosses once in each direction. The
/// comparison of calls comes on top: 64 bytes from the first rank of each host.
std::uint64_t expected_bytes(const Communicator& ranks, std::size_t count) {
  const std::uint64_t comparison = internals(ranks).settings().collectives.check != "off" ? 2 * 64 : 0;
  return 2 * count * sizeof(float) + comparison;
}

TEST(Hierarchy, BytesAcrossHostsEqualFormulaAndResultsAreExact) {
  for_each_group({1}, [](Communicator& ranks) {
    if (ranks.placement().host_count != 2 ||
        internals(ranks).choose(Collective::kAllreduce, 1 << 20) != "hierarchical") {
      GTEST_SKIP() << "needs two hosts of several ranks";
    }
    // Small vectors go by the leaders, large ones by parts.
    for (const std::size_t count : {1, 1000, 100'000, 1'000'003}) {
      Buffer data = values(ranks.rank(), 0, count, DType::kF32, ReduceOp::kSum);
      ranks.barrier();
      const std::uint64_t before = internals(ranks).sent_bytes();
      ranks.allreduce(data.view(), ReduceOp::kSum, {1.0, 1.0, "hierarchical", 0});
      std::vector<std::int64_t> sent{static_cast<std::int64_t>(internals(ranks).sent_bytes() - before)};
      ranks.allreduce(sent, ReduceOp::kSum);
      EXPECT_EQ(static_cast<std::uint64_t>(sent[0]), expected_bytes(ranks, count)) << count;
      EXPECT_EQ(first_difference(data.view(),
                                 [&](std::size_t i) { return reduced(ranks.size(), i, DType::kF32, ReduceOp::kSum); }),
                "");
    }
  });
}

}  // namespace
}  // namespace farandole::test
