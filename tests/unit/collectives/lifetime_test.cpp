// SPDX-License-Identifier: Apache-2.0
// Communicators and Works that are empty, or that outlive their World.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <latch>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "farandole/collectives/communicator.h"
#include "farandole/core/error.h"
#include "farandole/internal/communicator_access.h"
#include "message_of.h"

namespace farandole {
namespace {

using test::message_of;
using testing::HasSubstr;

/// Every collective, blocking and not, and every way to make another communicator.
std::vector<std::function<void()>> collectives_of(Communicator& ranks, std::vector<float>& data) {
  const auto sum = ReduceOp::kSum;
  return {
      [&, sum] { ranks.allreduce(data, sum); },
      [&, sum] { ranks.allreduce(data, sum, {.algorithm = "ring"}); },
      [&, sum] { (void)ranks.allreduce_async(data, sum); },
      [&] { ranks.broadcast(data, 0); },
      [&] { (void)ranks.broadcast_async(data, 0); },
      [&, sum] { ranks.reduce(data, data, sum, 0); },
      [&, sum] { (void)ranks.reduce_async(data, data, sum, 0); },
      [&] { ranks.allgather(data, data); },
      [&] { (void)ranks.allgather_async(data, data); },
      [&, sum] { ranks.reduce_scatter(data, data, sum); },
      [&, sum] { (void)ranks.reduce_scatter_async(data, data, sum); },
      [&] { ranks.gather(data, data, 0); },
      [&] { (void)ranks.gather_async(data, data, 0); },
      [&] { ranks.scatter(data, data, 0); },
      [&] { (void)ranks.scatter_async(data, data, 0); },
      [&] { ranks.alltoall(data, data); },
      [&] { (void)ranks.alltoall_async(data, data); },
      [&] { ranks.barrier(); },
      [&] { (void)ranks.barrier_async(); },
      [&] { (void)ranks.split(0); },
      [&] { (void)ranks.split(-1); },
      [&] { (void)ranks.duplicate(); },
      [&] { (void)ranks.allocate(4, DType::kF32); },
  };
}

std::vector<std::function<void()>> questions_to(Communicator& ranks) {
  return {
      [&] { (void)ranks.rank(); },
      [&] { (void)ranks.size(); },
      [&] { (void)ranks.placement(); },
      [&] { (void)ranks.describe(0); },
      [&] { (void)internals(ranks).settings(); },
      [&] { (void)internals(ranks).peer_has_started_next(); },
      [&] { (void)internals(ranks).describe_missing(); },
      [&] { (void)internals(ranks).endpoint(); },
      [&] { (void)ranks.shares_memory(); },
      [&] { (void)internals(ranks).explain(Collective::kAllreduce, 4); },
      [&] { (void)internals(ranks).choose(Collective::kAllreduce, 4); },
      [&] { (void)internals(ranks).transport(); },
      [&] { (void)internals(ranks).tuning_shape(); },
      [&] { (void)internals(ranks).sent_bytes(); },
      [&] { ranks.abort("nothing to abort"); },
  };
}

void expect_empty(Communicator& ranks) {
  std::vector<float> data(4, 1.0F);
  EXPECT_FALSE(ranks.valid());
  for (const auto& call : collectives_of(ranks, data))
    EXPECT_THAT(message_of<InvalidArgument>(call), HasSubstr("refers to no ranks"));
  for (const auto& call : questions_to(ranks))
    EXPECT_THAT(message_of<InvalidArgument>(call), HasSubstr("refers to no ranks"));
  EXPECT_EQ(data, std::vector<float>(4, 1.0F));
}

TEST(EmptyCommunicator, EveryCallRaises) {
  Communicator ranks;
  expect_empty(ranks);
}

TEST(EmptyCommunicator, MovedFromCommunicatorIsEmpty) {
  run_replicas(1, [](Communicator& ranks) {
    Communicator other = ranks.duplicate();
    const Communicator moved = std::move(other);
    EXPECT_TRUE(moved.valid());
    expect_empty(other);  // NOLINT(bugprone-use-after-move): that is what is tested
  });
}

TEST(EmptyWork, EveryCallRaises) {
  Work work;
  EXPECT_FALSE(work.valid());
  EXPECT_THAT(message_of<InvalidArgument>([&] { work.wait(); }), HasSubstr("does not refer to a collective"));
  EXPECT_THAT(message_of<InvalidArgument>([&] { (void)work.test(); }), HasSubstr("does not refer to a collective"));
  run_replicas(1, [](Communicator& ranks) {
    Work first = ranks.barrier_async();
    Work second = std::move(first);
    second.wait();
    const auto wait = [&] { first.wait(); };  // NOLINT(bugprone-use-after-move): that is what is tested
    EXPECT_THAT(message_of<InvalidArgument>(wait), HasSubstr("does not refer to a collective"));
  });
}

/// A World of replicas whose communicators outlive it.
class Outlived {
 public:
  explicit Outlived(int replicas, const std::function<void(Communicator&)>& body = {}) {
    WorldOptions options;
    options.replicas = replicas;
    options.alone = true;
    world_.emplace(options);
    communicators.resize(static_cast<std::size_t>(replicas));
    run_replicas(*world_, [&](Communicator& ranks) {
      communicators[static_cast<std::size_t>(ranks.rank())] = ranks;
      if (body) body(ranks);
    });
  }
  void end_world() { world_.reset(); }

  std::vector<Communicator> communicators;

 private:
  std::optional<World> world_;
};

TEST(CommunicatorAfterItsWorld, RaisesInEveryCollective) {
  for (const int replicas : {1, 2}) {
    Outlived job(replicas, [](Communicator& ranks) { ranks.barrier(); });
    job.end_world();
    std::vector<float> data(4, 1.0F);
    for (Communicator& ranks : job.communicators) {
      for (const auto& call : collectives_of(ranks, data))
        EXPECT_THAT(message_of<InvalidArgument>(call), HasSubstr("World"));
    }
    EXPECT_EQ(data, std::vector<float>(4, 1.0F));
  }
}

TEST(CommunicatorAfterItsWorld, KeepsItsRankAndSize) {
  Outlived job(2);
  job.end_world();
  Communicator& ranks = job.communicators[1];
  EXPECT_EQ(ranks.rank(), 1);
  EXPECT_EQ(ranks.size(), 2);
  EXPECT_EQ(ranks.placement().local_size, 2);
  EXPECT_THAT(ranks.describe(0), HasSubstr("rank 0 (host"));
  EXPECT_FALSE(internals(ranks).peer_has_started_next());
  ranks.abort("after the end");
}

TEST(CommunicatorAfterItsWorld, WindowsStayValid) {
  Outlived job(1);
  Buffer window = job.communicators[0].allocate(1000, DType::kF32);
  window.as<float>()[999] = 7.0F;
  job.end_world();
  job.communicators.clear();
  EXPECT_EQ(window.as<float>()[999], 7.0F);
}

TEST(CommunicatorAfterItsWorld, DoesNotDisturbTheNextWorld) {
  Outlived first(2);
  first.end_world();
  Outlived second(2, [](Communicator& ranks) { ranks.barrier(); });
  first.communicators.clear();
  second.end_world();
}

TEST(WorkAfterItsWorld, IsComplete) {
  constexpr std::size_t kCount = 100'000;
  std::vector<std::vector<float>> data(2, std::vector<float>(kCount, 1.0F));
  std::vector<Work> works(2);
  Outlived job(2, [&](Communicator& ranks) {
    const auto self = static_cast<std::size_t>(ranks.rank());
    works[self] = ranks.allreduce_async(data[self], ReduceOp::kSum);
  });
  job.end_world();
  for (std::size_t rank = 0; rank < 2; ++rank) {
    EXPECT_TRUE(works[rank].test());
    works[rank].wait();
    EXPECT_EQ(data[rank], std::vector<float>(kCount, 2.0F));
  }
}

/// It was pending when the World ended, and another rank never came to it.
TEST(WorkAfterItsWorld, RaisesItsFailure) {
  std::vector<float> data(8, 1.0F);
  Work work;
  Outlived job(2, [&](Communicator& ranks) {
    if (ranks.rank() == 0) work = ranks.allreduce_async(data, ReduceOp::kSum);
  });
  job.end_world();
  EXPECT_TRUE(work.test());
  EXPECT_THROW(work.wait(), PeerLost);
  EXPECT_THROW(job.communicators[0].barrier(), PeerLost) << "the first fault is the one that is told";
}

/// Starts a collective while an exception passes, which is none of the collective's.
class Goodbye {
 public:
  Goodbye(Communicator& ranks, std::latch& turn) : ranks_(ranks), turn_(turn) {}
  Goodbye(const Goodbye&) = delete;
  Goodbye& operator=(const Goodbye&) = delete;
  ~Goodbye() {
    if (ranks_.rank() == 1) turn_.wait();
    const Work work = ranks_.barrier_async();
    if (ranks_.rank() == 0) turn_.count_down();
  }

 private:
  Communicator& ranks_;
  std::latch& turn_;
};

TEST(WorkInADestructor, WaitsDuringStackUnwinding) {
  std::latch turn(1);
  run_replicas(2, [&](Communicator& ranks) {
    try {
      const Goodbye goodbye(ranks, turn);
      throw std::runtime_error("caught below");
    } catch (const std::runtime_error&) {
      ranks.barrier();
    }
  });
}

}  // namespace
}  // namespace farandole
