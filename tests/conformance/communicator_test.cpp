// SPDX-License-Identifier: Apache-2.0
// Properties of communicators that do not depend on the collective: asynchrony, groups, mismatches, invalid calls.
#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <array>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "communicator/communicator_state.h"
#include "farandole/core/error.h"
#include "farandole/internal/communicator_access.h"
#include "farandole/internal/communicator_ids.h"
#include "farandole/internal/endpoint.h"
#include "groups.h"
#include "message_of.h"

namespace farandole::test {
namespace {

using testing::AllOf;
using testing::AnyOf;
using testing::HasSubstr;

/// The communicator still works.
void expect_usable(Communicator& ranks) {
  std::vector<std::int32_t> one{1};
  ranks.allreduce(one, ReduceOp::kSum);
  EXPECT_EQ(one[0], ranks.size());
}

TEST(Communicator, ATextIsTheRootsOnEveryRank) {
  for_each_group({1, 2, 3, 8}, [](Communicator& ranks) {
    const int root = ranks.size() - 1;
    const std::string own(static_cast<std::size_t>(100 * ranks.rank()), 'x');
    EXPECT_EQ(broadcast_text(ranks, own, root), std::string(static_cast<std::size_t>(100 * root), 'x'));
    EXPECT_EQ(broadcast_text(ranks, "text of " + std::to_string(ranks.rank()), 0), "text of 0");
  });
}

TEST(Communicator, ManyAsynchronousCallsCompleteInAnyOrderOfWaiting) {
  for_each_group({1, 2, 3, 4, 8}, [](Communicator& ranks) {
    constexpr int kCalls = 25;  // more than there are lanes
    std::vector<std::vector<std::int32_t>> data;
    std::vector<Work> works;
    for (int k = 0; k < kCalls; ++k) data.emplace_back(1 + 997 * static_cast<std::size_t>(k % 4), k + ranks.rank());
    for (int k = 0; k < kCalls; ++k)
      works.push_back(ranks.allreduce_async(data[static_cast<std::size_t>(k)], ReduceOp::kMax));
    for (int k = kCalls - 1; k >= 0; --k) {
      works[static_cast<std::size_t>(k)].wait();
      for (const std::int32_t x : data[static_cast<std::size_t>(k)]) ASSERT_EQ(x, k + ranks.size() - 1);
    }
  });
}

/// Over several hosts, the phases before a collective's work inside the host end in any order, and so may the
/// collectives.
TEST(Communicator, ShortCallsInFlightDoNotOvertakeEachOther) {
  for_each_group({4}, [](Communicator& ranks) {
    constexpr int kCalls = 8;
    std::vector<std::vector<std::int32_t>> data(kCalls);
    std::vector<Work> works(kCalls);
    for (int round = 0; round < 300; ++round) {
      for (std::size_t k = 0; k < kCalls; ++k) {
        data[k].assign(1 + 997 * (k % 4), round + ranks.rank());
        works[k] = ranks.allreduce_async(data[k], ReduceOp::kMax);
      }
      for (std::size_t k = kCalls; k-- > 0;) {
        works[k].wait();
        ASSERT_EQ(data[k].back(), round + ranks.size() - 1);
      }
    }
  });
}

TEST(Communicator, BlockingCallsMayBeMixedWithAsynchronousOnes) {
  for_each_group({2, 3, 5}, [](Communicator& ranks) {
    std::vector<double> large(100'003, 1.0), small(3, 2.0);
    Work work = ranks.allreduce_async(large, ReduceOp::kSum);
    ranks.allreduce(small, ReduceOp::kSum);
    EXPECT_EQ(small[2], 2.0 * ranks.size());
    work.wait();
    EXPECT_EQ(large.back(), ranks.size());
  });
}

TEST(Communicator, OppositeOrdersOnTwoCommunicatorsDoNotBlock) {
  for_each_group({2, 4}, [](Communicator& ranks) {
    Communicator other = ranks.duplicate();
    std::vector<float> a(70'001, 1.0F), b(70'001, 2.0F);
    Work first, second;
    if (ranks.rank() % 2 == 0) {
      first = ranks.allreduce_async(a, ReduceOp::kSum);
      second = other.allreduce_async(b, ReduceOp::kSum);
      first.wait();
      second.wait();
    } else {
      second = other.allreduce_async(b, ReduceOp::kSum);
      first = ranks.allreduce_async(a, ReduceOp::kSum);
      second.wait();
      first.wait();
    }
    EXPECT_EQ(a.back(), static_cast<float>(ranks.size()));
    EXPECT_EQ(b.back(), 2 * static_cast<float>(ranks.size()));
  });
}

TEST(Communicator, SplitGroupsByColorAndOrdersByKey) {
  for_each_group({1, 2, 3, 4, 7}, [](Communicator& ranks) {
    const int color = ranks.rank() % 2;
    Communicator half = ranks.split(color, -ranks.rank());
    const int members = (ranks.size() + 1 - color) / 2;
    ASSERT_EQ(half.size(), members);
    EXPECT_EQ(half.rank(), members - 1 - ranks.rank() / 2);
    std::vector<std::int32_t> sum{ranks.rank()};
    half.allreduce(sum, ReduceOp::kSum);
    std::int32_t expected = 0;
    for (int rank = color; rank < ranks.size(); rank += 2) expected += rank;
    EXPECT_EQ(sum[0], expected);
    EXPECT_FALSE(ranks.split(-1).valid());
  });
}

TEST(Communicator, IdsAreRecycled) {
  for_each_group({2}, [](Communicator& ranks) {
    for (int i = 0; i < 300; ++i) {
      Communicator copy = ranks.duplicate();
      expect_usable(copy);
    }
  });
}

std::vector<int> in_reverse(const Communicator& ranks) {
  std::vector<int> reversed;
  for (int rank = ranks.size() - 1; rank >= 0; --rank) reversed.push_back(rank);
  return reversed;
}

/// The ranks have the same key, which no other communicator of this rank has.
void expect_agreed_key(Communicator& ranks, const std::vector<Communicator>& others) {
  const Group& group = internals(ranks).state().group();
  const std::vector<std::uint64_t> key{group.id, group.generation, group.direct ? group.direct->id : 0U};
  std::vector<std::uint64_t> greatest = key;
  ranks.allreduce(greatest, ReduceOp::kMax);
  EXPECT_EQ(key, greatest);
  for (const Communicator& other : others) EXPECT_NE(internals(other).state().group().id, group.id);
}

/// The ranks do not offer the same ids at first, and agree again.
TEST(Communicator, IdsAreFreeOnRanksThatUseDifferentIds) {
  for_each_group({2, 3, 4}, [](Communicator& ranks) {
    std::vector<Communicator> own;
    const std::array self{ranks.rank()};
    const std::vector<int> reversed = in_reverse(ranks);
    for (int round = 0; round < 8; ++round) {
      // At first the first rank uses the most ids, and later the last rank.
      const int more = round < 4 ? ranks.size() - ranks.rank() : ranks.rank();
      for (int i = 0; i < 2 * more && round % 4 == 0; ++i) own.push_back(Communicator::of_members(ranks, self));
      Communicator made[] = {
          ranks.duplicate(), ranks.duplicate({.device_order = CommunicatorOptions::DeviceOrder::kCaller}),
          ranks.split(ranks.rank() % 2), Communicator::of_members(ranks, reversed),
          Communicator::of_members(ranks, reversed, {.device_order = CommunicatorOptions::DeviceOrder::kCaller})};
      for (Communicator& each : made) {
        expect_agreed_key(each, own);
        expect_usable(each);
      }
      EXPECT_FALSE(ranks.split(-1).valid());
      if (!own.empty()) own.erase(own.begin());
    }
  });
}

/// A mismatch of one color does not keep the other ranks from agreeing again.
TEST(Communicator, AMismatchOfOneColorLeavesTheOthers) {
  for_each_group({3, 4, 7}, [](Communicator& ranks) {
    const std::array self{ranks.rank()};
    Communicator own = ranks.rank() == 0 ? Communicator::of_members(ranks, self) : Communicator();
    const int color = ranks.rank() % 2;
    const CommunicatorOptions options{.compare = color == 0 && ranks.rank() == 0};
    if (color == 0 && ranks.size() > 2) {
      EXPECT_THROW((void)ranks.split(color, 0, options), Mismatch);
    } else {
      Communicator half = ranks.split(color, 0, options);
      expect_usable(half);
    }
    expect_usable(ranks);
  });
}

/// Two threads of each rank, which begin in opposite orders on neighbours. Each waits for the thread of its peers.
TEST(Communicator, ThreadsCreateCommunicatorsOfDifferentParents) {
  for_each_group({2, 3}, [](Communicator& ranks) {
    if (!internals(ranks).endpoint().progress().usable_from_any_thread()) GTEST_SKIP() << "MPI has one thread";
    CommunicatorIds& ids = internals(ranks).endpoint().communicator_ids();
    std::array parents{ranks.duplicate(), ranks.duplicate()};
    for (int round = 0; round < 5; ++round) {
      std::array<Communicator, 2> made;
      const auto make = [&](int which) {
        Communicator& parent = parents[static_cast<std::size_t>(which)];
        made[static_cast<std::size_t>(which)] =
            round % 2 == 0 ? parent.duplicate() : Communicator::of_members(parent, in_reverse(parent));
        expect_agreed_key(made[static_cast<std::size_t>(which)], {});
      };
      const std::vector<std::uint8_t> before = ids.used();
      std::thread first([&] { make(ranks.rank() % 2); });
      while (ids.used() == before) std::this_thread::yield();
      make(1 - ranks.rank() % 2);
      first.join();
      EXPECT_NE(internals(made[0]).state().group().id, internals(made[1]).state().group().id);
    }
  });
}

TEST(Communicator, ThreadsCreateAndDestroyManyCommunicators) {
  for_each_group({2, 3}, [](Communicator& ranks) {
    if (ranks.size() == 1) return;
    if (!internals(ranks).endpoint().progress().usable_from_any_thread()) GTEST_SKIP() << "MPI has one thread";
    constexpr int kThreads = 4;
    const std::array self{ranks.rank()};
    std::vector<Communicator> parents;
    for (int i = 0; i < kThreads; ++i) parents.push_back(ranks.duplicate());
    const auto use = [&](int thread) {
      Communicator& parent = parents[static_cast<std::size_t>(thread)];
      std::vector<Communicator> kept;
      for (int round = 0; round < 25; ++round) {
        if ((round + thread) % 3 == ranks.rank()) kept.push_back(Communicator::of_members(parent, self));
        Communicator made;
        if (round % 2 == 0) {
          made = parent.duplicate({.device_order = CommunicatorOptions::DeviceOrder::kCaller});
        } else if (ranks.rank() < 2) {
          made = Communicator::of_members(parent, std::array{1, 0});
        }
        if (made.valid()) expect_agreed_key(made, kept);
        if (kept.size() > 2) kept.clear();
      }
    };
    std::vector<std::thread> threads;
    for (int i = 0; i < kThreads; ++i) threads.emplace_back(use, i);
    for (std::thread& thread : threads) thread.join();
    expect_usable(ranks);
  });
}

TEST(Communicator, DisagreementIsFoundOnEveryRankBeforeDataIsTouched) {
  for_each_group({2, 3, 4, 7}, [](Communicator& ranks) {
    const bool odd_one_out = ranks.rank() == ranks.size() - 1;
    if (ranks.size() == 1) return;
    std::vector<float> data(16, 3.0F);
    const std::vector<float> before = data;
    const auto count = message_of<Mismatch>(
        [&] { ranks.allreduce(BufferView(data.data(), odd_one_out ? 8 : 16, DType::kF32), ReduceOp::kSum); });
    EXPECT_THAT(count, AllOf(HasSubstr("rank 0"), HasSubstr("16 f32"), HasSubstr("8 f32"),
                             HasSubstr(fmt::format("rank {}", ranks.size() - 1))));
    const auto type = message_of<Mismatch>(
        [&] { ranks.allreduce(BufferView(data.data(), 4, odd_one_out ? DType::kI32 : DType::kF32), ReduceOp::kSum); });
    EXPECT_THAT(type, AllOf(HasSubstr("4 f32"), HasSubstr("4 i32")));
    const auto op = message_of<Mismatch>([&] { ranks.allreduce(data, odd_one_out ? ReduceOp::kMax : ReduceOp::kMin); });
    EXPECT_THAT(op, AllOf(HasSubstr("max"), HasSubstr("min")));
    const auto root = message_of<Mismatch>([&] { ranks.broadcast(data, odd_one_out ? 1 : 0); });
    EXPECT_THAT(root, AllOf(HasSubstr("root 0"), HasSubstr("root 1")));
    const auto collective = message_of<Mismatch>([&] { odd_one_out ? ranks.barrier() : ranks.broadcast(data, 0); });
    EXPECT_THAT(collective, AllOf(HasSubstr("barrier"), HasSubstr("broadcast")));
    EXPECT_EQ(data, before);
    expect_usable(ranks);
  });
}

TEST(Communicator, AlltoallCountsThatDoNotFitAreAMismatchEverywhere) {
  for_each_group({2, 3}, [](Communicator& ranks) {
    if (ranks.size() == 1) return;
    const auto p = static_cast<std::size_t>(ranks.size());
    const std::vector<std::size_t> counts(p, 2);
    std::vector<std::size_t> wrong = counts;
    if (ranks.rank() == 0) wrong[1] = 3;
    std::vector<std::int32_t> input(2 * p), output(ranks.rank() == 0 ? 2 * p + 1 : 2 * p);
    const auto text = message_of<Mismatch>([&] { ranks.alltoall(input, output, counts, wrong); });
    if (ranks.rank() == 0) {
      EXPECT_THAT(text, AllOf(HasSubstr("rank 1 sends 2"), HasSubstr("expects 3")));
    }
    expect_usable(ranks);
  });
}

TEST(Communicator, AlltoallDisagreementLeavesCommunicatorUsable) {
  for_each_group({2, 3}, [](Communicator& ranks) {
    if (ranks.size() == 1) return;
    const auto p = static_cast<std::size_t>(ranks.size());
    const bool odd_one_out = ranks.rank() == 0;
    std::vector<std::int32_t> input(4 * p), output(4 * p);
    const std::vector<std::size_t> counts(p, 4);
    // Equal parts of different sizes.
    const std::size_t count = odd_one_out ? 2 * p : 4 * p;
    message_of<Mismatch>([&] {
      ranks.alltoall(BufferView(input.data(), count, DType::kI32), BufferView(output.data(), count, DType::kI32));
    });
    // Equal parts against given ones, and another collective.
    message_of<Mismatch>(
        [&] { odd_one_out ? ranks.alltoall(input, output) : ranks.alltoall(input, output, counts, counts); });
    message_of<Mismatch>(
        [&] { odd_one_out ? ranks.allreduce(input, ReduceOp::kSum) : ranks.alltoall(input, output, counts, counts); });
    expect_usable(ranks);
    EXPECT_THROW(ranks.alltoall(BufferView(input.data(), p, DType::kI32), output), InvalidArgument);
    expect_usable(ranks);
  });
}

TEST(Communicator, TestingWithoutWaitingCompletes) {
  for_each_group({2, 3}, [](Communicator& ranks) {
    std::vector<double> data(10'007, 1.0);
    Work work = ranks.allreduce_async(data, ReduceOp::kSum);
    while (!work.test()) {
    }
    EXPECT_EQ(data.back(), ranks.size());
    work.wait();
  });
}

TEST(Communicator, InvalidCallIsAMismatchOnOtherRanks) {
  for_each_group({2, 3}, [](Communicator& ranks) {
    std::vector<float> input(8), output(8), too_small(7);
    if (ranks.rank() == 0) {
      const auto text = message_of<InvalidArgument>([&] { ranks.allreduce(input, too_small, ReduceOp::kSum); });
      EXPECT_THAT(text, AllOf(HasSubstr("output"), HasSubstr("8"), HasSubstr("7")));
    } else {
      message_of<Mismatch>([&] { ranks.allreduce(input, output, ReduceOp::kSum); });
    }
    expect_usable(ranks);
  });
}

TEST(Communicator, InvalidCallsReportTheExpectedArguments) {
  for_each_group({1, 2, 3}, [](Communicator& ranks) {
    std::vector<std::int32_t> integers(4);
    std::array<std::uint8_t, 4> bools{};
    const BufferView truths(bools.data(), bools.size(), DType::kBool);
    EXPECT_THAT(message_of<InvalidArgument>([&] { ranks.allreduce(truths, truths, ReduceOp::kAverage); }),
                AllOf(HasSubstr("average"), HasSubstr("bool")));
    EXPECT_THAT(message_of<InvalidArgument>([&] { ranks.allreduce(truths, truths, ReduceOp::kMax, {2.0}); }),
                AllOf(HasSubstr("factors"), HasSubstr("bool")));
    for (const DType dtype : {DType::kF16, DType::kBF16, DType::kF32, DType::kF64}) {
      Buffer floats(4, dtype);
      EXPECT_THAT(message_of<InvalidArgument>([&] { ranks.allreduce(floats.view(), ReduceOp::kBitXor); }),
                  HasSubstr(fmt::format("no bit_xor of {}", name(dtype))));
    }
    EXPECT_THAT(message_of<InvalidArgument>([&] { ranks.allreduce(integers, ReduceOp::kBitAnd, {.prescale = 2.0}); }),
                AllOf(HasSubstr("`prescale`"), HasSubstr("bit_and")));
    EXPECT_THAT(message_of<InvalidArgument>([&] { ranks.allreduce(truths, ReduceOp::kBitOr, {.postscale = 2.0}); }),
                AllOf(HasSubstr("`postscale`"), HasSubstr("bit_or")));
    EXPECT_THAT(message_of<InvalidArgument>([&] { ranks.broadcast(integers, ranks.size()); }),
                HasSubstr(fmt::format("0 … {}", ranks.size() - 1)));
    CallOptions options;
    options.algorithm = "rign";
    EXPECT_THAT(message_of<InvalidArgument>([&] { ranks.allreduce(integers, ReduceOp::kSum, options); }),
                AllOf(HasSubstr("rign"), HasSubstr("ring"), HasSubstr("circulant")));
    options.algorithm = "halving_doubling";
    if (ranks.size() == 3) {
      EXPECT_THAT(message_of<InvalidArgument>([&] { ranks.allreduce(integers, ReduceOp::kSum, options); }),
                  HasSubstr("3 ranks"));
    }
    expect_usable(ranks);
  });
}

/// Memory that this processor can neither read nor write, as that of a device.
class DeviceMemory {
 public:
  DeviceMemory() : data_(mmap(nullptr, kBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {}
  ~DeviceMemory() { munmap(data_, kBytes); }
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;
  BufferView floats(std::size_t count) const { return {data_, count, DType::kF32, {MemoryKind::kCuda, 1}}; }

 private:
  static constexpr std::size_t kBytes = std::size_t{1} << 20;
  void* data_;
};

TEST(Communicator, MemoryOfADeviceReachesNoLoopOfTheHost) {
  for_each_group({1, 2, 3}, [](Communicator& ranks) {
    const DeviceMemory memory;
    const auto size = static_cast<std::size_t>(ranks.size());
    for (const std::size_t each : {std::size_t{1}, std::size_t{20'000}}) {
      std::vector<float> host(size * each);
      const BufferView own = memory.floats(each), whole = memory.floats(size * each);
      // On machines with devices, the address belongs to no device, or to another rank's device.
      const auto refuses = [&](auto&& collective) {
        EXPECT_THAT(message_of<InvalidArgument>(collective),
                    AnyOf(HasSubstr("there are no devices"), HasSubstr("memory of CUDA device 1")));
      };
      EXPECT_THAT(message_of<InvalidArgument>([&] { ranks.allreduce(whole, host, ReduceOp::kSum); }),
                  AllOf(HasSubstr("in memory of CUDA device 1"), HasSubstr("got host memory")));
      EXPECT_THAT(message_of<InvalidArgument>([&] { ranks.allreduce(host, whole, ReduceOp::kSum, {2.0}); }),
                  AllOf(HasSubstr("in host memory"), HasSubstr("got memory of CUDA device 1")));
      refuses([&] { ranks.allreduce(whole, whole, ReduceOp::kSum); });
      refuses([&] { ranks.allreduce_async(whole, whole, ReduceOp::kSum).wait(); });
      refuses([&] { ranks.broadcast(whole, 0); });
      refuses([&] { ranks.reduce(whole, whole, ReduceOp::kSum, 0); });
      refuses([&] { ranks.allgather(own, whole); });
      refuses([&] { ranks.reduce_scatter(whole, own, ReduceOp::kSum); });
      refuses([&] { ranks.gather(own, whole, 0); });
      refuses([&] { ranks.scatter(whole, own, 0); });
      refuses([&] { ranks.alltoall(whole, whole); });
    }
    expect_usable(ranks);
  });
}

TEST(Communicator, MemoryOfADeviceOnOneRankOnlyIsAMismatchElsewhere) {
  for_each_group({2, 3}, [](Communicator& ranks) {
    const DeviceMemory memory;
    std::vector<float> host(8);
    if (ranks.rank() == 0) {
      message_of<InvalidArgument>([&] { ranks.allreduce(memory.floats(8), memory.floats(8), ReduceOp::kSum); });
    } else {
      message_of<Mismatch>([&] { ranks.allreduce(host, ReduceOp::kSum); });
    }
    expect_usable(ranks);
  });
}

TEST(Communicator, VendorWithoutMpiIsUnsupported) {
  if (is_launched()) GTEST_SKIP() << "there is an MPI here";
  for_each_group({2}, [](Communicator& ranks) {
    std::vector<float> data(4);
    CallOptions options;
    options.algorithm = "vendor";
    EXPECT_THAT(message_of<Unsupported>([&] { ranks.allreduce(data, ReduceOp::kSum, options); }), HasSubstr("MPI"));
    expect_usable(ranks);
  });
}

TEST(Communicator, ExplainNamesTheChoiceAndTheCandidates) {
  for_each_group({4}, [](Communicator& ranks) {
    const std::string text = internals(ranks).explain(Collective::kAllreduce, 1 << 20);
    EXPECT_THAT(text, AllOf(HasSubstr("allreduce of 1048576 bytes"),
                            HasSubstr(internals(ranks).choose(Collective::kAllreduce, 1 << 20)), HasSubstr("ring"),
                            HasSubstr("cost model")));
  });
}

}  // namespace
}  // namespace farandole::test
