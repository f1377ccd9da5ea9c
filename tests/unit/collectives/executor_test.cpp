// SPDX-License-Identifier: Apache-2.0
// The executor of schedules over a network that the test controls: messages in many orders, empty pieces, lost
// messages.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <numeric>
#include <random>
#include <vector>

#include "farandole/collectives/algorithms.h"
#include "messages/scheduled_collective.h"
#include "schedule/layout.h"
#include "schedule/schedule_cache.h"
#include "scripted_network.h"

namespace farandole {
namespace {

using test::ScriptedNetwork;
using testing::Each;
using testing::ElementsAre;

/// The ranks of one allreduce (f32, sum). Element i of rank r is r + i.
class Job {
 public:
  Job(ScriptedNetwork& network, const Algorithm& algorithm, int size, std::size_t count, int segments)
      : network_(network) {
    const Place first{0, size, 0};
    const Schedule& shape = ScheduleCache::of_process().get(algorithm, first, segments)->schedule;
    const Offsets offsets = balanced_offsets(count, shape.chunks, segments, 1);
    std::vector<int> members(static_cast<std::size_t>(size));
    std::iota(members.begin(), members.end(), 0);
    for (int rank = 0; rank < size; ++rank) {
      Group& group = groups_.emplace_back(std::make_unique<Group>()).operator*();
      group.id = 3;
      group.rank = rank;
      group.members = members;
      group.transport = &network;
      std::vector<float>& input = inputs_.emplace_back(count);
      std::iota(input.begin(), input.end(), static_cast<float>(rank));
      outputs_.emplace_back(count);
    }
    for (int rank = 0; rank < size; ++rank) {
      const auto index = static_cast<std::size_t>(rank);
      Execution execution;
      execution.prepared = ScheduleCache::of_process().get(algorithm, {rank, size, 0}, segments);
      execution.offsets = offsets;
      execution.input = reinterpret_cast<std::uintptr_t>(inputs_[index].data());
      execution.data = reinterpret_cast<std::uintptr_t>(outputs_[index].data());
      execution.dtype = DType::kF32;
      execution.result_pieces = shape.pieces();
      executors_.push_back(std::make_unique<Executor>(*groups_[index], std::move(execution)));
      done_.push_back(false);
    }
  }

  /// Moves ranks and messages on, one at a time, in an order that the generator draws. False: nothing moves any more.
  bool run(std::mt19937& random) {
    for (;;) {
      std::vector<std::size_t> open;
      for (std::size_t rank = 0; rank < executors_.size(); ++rank) {
        if (!done_[rank]) open.push_back(rank);
      }
      if (open.empty()) return true;
      const std::size_t rank = open[random() % open.size()];
      const Operation::State state = executors_[rank]->advance();
      done_[rank] = state == Operation::State::kDone;
      const std::size_t deliverable = network_.deliverable();
      if (deliverable > 0 && random() % 2 == 0) network_.deliver(random() % deliverable);
      if (deliverable == 0 && state == Operation::State::kWaiting && !moves_any(open)) return false;
    }
  }

  Executor& executor(std::size_t rank) { return *executors_[rank]; }
  const std::vector<std::vector<float>>& outputs() const { return outputs_; }

 private:
  bool moves_any(const std::vector<std::size_t>& open) {
    bool moved = false;
    for (const std::size_t rank : open) {
      const Operation::State state = executors_[rank]->advance();
      done_[rank] = state == Operation::State::kDone;
      moved = moved || state != Operation::State::kWaiting;
    }
    return moved || network_.deliverable() > 0;
  }

  ScriptedNetwork& network_;
  std::vector<std::unique_ptr<Group>> groups_;
  std::vector<std::vector<float>> inputs_, outputs_;
  std::vector<std::unique_ptr<Executor>> executors_;
  std::vector<bool> done_;
};

std::vector<float> sum(int size, std::size_t count) {
  std::vector<float> wanted(count);
  for (std::size_t i = 0; i < count; ++i) {
    for (int rank = 0; rank < size; ++rank) wanted[i] += static_cast<float>(rank) + static_cast<float>(i);
  }
  return wanted;
}

TEST(Executor, GivesTheSumInEveryOrderOfRanksAndMessages) {
  for (const Algorithm& algorithm : algorithms()) {
    if (algorithm.collective != Collective::kAllreduce) continue;
    for (const int size : {2, 3, 4, 5}) {
      if (!algorithm.supports(size)) continue;
      for (unsigned seed = 0; seed < 40; ++seed) {
        std::mt19937 random(seed);
        const std::size_t count = seed % 13;  // from 0 on: with empty pieces
        ScriptedNetwork network(/*fuses=*/seed % 2 == 0);
        Job job(network, algorithm, size, count, /*segments=*/1 + static_cast<int>(seed % 3));
        SCOPED_TRACE(testing::Message() << algorithm.name << ", " << size << " ranks, seed " << seed);
        ASSERT_TRUE(job.run(random)) << "the ranks wait for each other";
        ASSERT_THAT(job.outputs(), Each(sum(size, count)));
        ASSERT_EQ(network.deliverable(), 0U) << "a message was sent that nobody wants";
      }
    }
  }
}

TEST(Executor, SendsNoMessageForAnEmptyPiece) {
  const Algorithm& ring = *find_algorithm(Collective::kAllreduce, "ring");
  ScriptedNetwork network;
  Job job(network, ring, 3, /*count=*/1, /*segments=*/1);
  std::mt19937 random(1);
  ASSERT_TRUE(job.run(random));
  EXPECT_EQ(network.delivered(), 4U) << "the one chunk with an element goes round twice, less one hop each time";
}

TEST(Executor, BoundsTheMemoryForIncomingMessages) {
  const Algorithm& ring = *find_algorithm(Collective::kAllreduce, "ring");
  ScriptedNetwork network;
  Job job(network, ring, 2, /*count=*/64, /*segments=*/16);
  (void)job.executor(0).advance();
  EXPECT_GT(network.receives_of(0), 0U);
  EXPECT_LE(network.receives_of(0), 4U) << "each of them needs memory of its own until it is reduced";
  std::mt19937 random(1);
  ASSERT_TRUE(job.run(random));
  EXPECT_THAT(job.outputs(), Each(sum(2, 64)));
}

TEST(Executor, FailsWithTheTransportAndCanBeWithdrawn) {
  const Algorithm& ring = *find_algorithm(Collective::kAllreduce, "ring");
  for (std::size_t lost_after = 0; lost_after < 4; ++lost_after) {
    ScriptedNetwork network;
    Job job(network, ring, 3, /*count=*/9, /*segments=*/1);
    for (std::size_t rank = 0; rank < 3; ++rank) EXPECT_EQ(job.executor(rank).advance(), Operation::State::kMoved);
    for (std::size_t i = 0; i < lost_after && network.deliverable() > 0; ++i) {
      network.deliver(0);
      for (std::size_t rank = 0; rank < 3; ++rank) (void)job.executor(rank).advance();
    }
    EXPECT_THAT(job.executor(0).waits_for(), testing::IsSubsetOf({1, 2}));
    network.fail("the cable was pulled");
    for (std::size_t rank = 0; rank < 3; ++rank) {
      EXPECT_THROW((void)job.executor(rank).advance(), TransportError);
      const std::size_t before = network.withdrawn();
      EXPECT_EQ(job.executor(rank).withdraw(), BufferHazard::kNone);
      EXPECT_GT(network.withdrawn(), before) << "what is on its way must be given up";
    }
  }
}

/// An operation stays for the sake of the messages whose memory may still be used. Of the others nothing stays.
TEST(Executor, WithdrawReleasesAllMessages) {
  const Algorithm& ring = *find_algorithm(Collective::kAllreduce, "ring");
  ScriptedNetwork network;
  network.keep_withdrawn_sends();
  Job job(network, ring, 3, /*count=*/9, /*segments=*/1);
  for (std::size_t rank = 0; rank < 3; ++rank) (void)job.executor(rank).advance();
  ASSERT_GT(network.held_receives(), 0U);
  for (std::size_t rank = 0; rank < 3; ++rank) EXPECT_EQ(job.executor(rank).withdraw(), BufferHazard::kRead);
  EXPECT_EQ(network.held_receives(), 0U);
  EXPECT_EQ(network.held_sends(), 3U);
}

}  // namespace
}  // namespace farandole
