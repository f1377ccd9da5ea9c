// SPDX-License-Identifier: Apache-2.0
// Collectives at sequence numbers that overflow narrower integer fields, step by step: two ranks on one thread.
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <vector>

#include "communicator_probe.h"
#include "farandole/core/world.h"

namespace farandole {
namespace {

/// A communicator of all ranks of `world`, as `rank` has it, which moves on only when the test asks it to.
Communicator rank_of(World& world, int rank, std::uint64_t first_sequence) {
  return CommunicatorProbe::starting_at(Communicator::of_world(world, rank), first_sequence,
                                        CommunicatorOptions::Progress::kInCalls);
}

/// One allreduce. Rank 1 enters it, and then rank 0 moves on as far as it can before rank 1 takes a step.
void reduce_with_a_slow_rank(std::array<Communicator, 2>& ranks, double prescale) {
  constexpr std::size_t kCount = 300'000;
  std::vector<float> fast_values(kCount, 2), slow_values(kCount, 4);
  Work slow = ranks[1].allreduce_async(slow_values, ReduceOp::kSum, {prescale});
  Work fast = ranks[0].allreduce_async(fast_values, ReduceOp::kSum, {prescale});
  for (int i = 0; i < 100; ++i) ASSERT_FALSE(fast.test()) << "rank 0 does not wait for rank 1";
  bool is_done = false;
  for (int i = 0; i < 1000 && !is_done; ++i) {
    const bool is_slow_done = slow.test();
    is_done = fast.test() && is_slow_done;
  }
  ASSERT_TRUE(is_done) << "the ranks wait for each other";
  const std::vector<float> wanted(kCount, static_cast<float>(6 * prescale));
  ASSERT_EQ(fast_values, wanted);
  ASSERT_EQ(slow_values, wanted);
}

TEST(SequenceNumbers, RanksWaitForPeersAtEverySequenceNumber) {
  constexpr std::uint64_t kBefore = 4;
  // Ten years of 5 million collectives a second are 2^51.
  for (const int bits : {3, 28, 32, 35, 36, 39, 40, 51, 52, 59}) {
    const std::uint64_t first = (std::uint64_t{1} << bits) - kBefore;
    WorldOptions options;
    options.replicas = 2;
    World world(options);
    std::array<Communicator, 2> ranks{rank_of(world, 0, first), rank_of(world, 1, first)};
    for (std::uint64_t call = 0; call < 3 * kBefore; ++call) {
      SCOPED_TRACE(testing::Message() << "sequence number 2^" << bits << " - " << kBefore << " + " << call);
      // Scaled data is staged and passes in several slices; unscaled data is read and written in the peers' memory.
      reduce_with_a_slow_rank(ranks, call % 2 == 0 ? 1.0 : 0.5);
      if (HasFatalFailure()) return;
    }
  }
}

}  // namespace
}  // namespace farandole
