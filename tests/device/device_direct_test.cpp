// SPDX-License-Identifier: Apache-2.0
// Direct calls: collectives that the calling thread enqueues (CommunicatorOptions::DeviceOrder::kCaller).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <vector>

#include "direct_communicator.h"
#include "double_calls.h"
#include "farandole/core/error.h"
#include "groups.h"
#include "message_of.h"
#include "on_device.h"
#include "values.h"

namespace farandole::test {
namespace {

using ::testing::HasSubstr;

TEST(DirectCalls, GiveTheBitsOfAgreedCalls) {
  for_each_device_group({1, 2, 3, 4}, [](Communicator& ranks) {
    Communicator caller = direct(ranks);
    const StreamView stream = device_of(ranks).make_stream();
    for (const char* const algorithm : {"", "ring", "recursive_doubling"}) {
      for (const std::size_t count : {1UL, 1000UL, 40'009UL}) {
        for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMax}) {
          const std::vector<float> host = values_of(ranks, count, 8);
          Buffer agreed = to_device(ranks, host), mine = to_device(ranks, host);
          ranks.allreduce(agreed.view(), op, {.algorithm = algorithm});
          for (int repetition = 0; repetition < 3; ++repetition) {
            copy_now(device_of(ranks), mine.view().data, host.data(), count * sizeof(float));
            caller.allreduce(mine.view(), op, {.algorithm = algorithm, .stream = stream});
            device_of(ranks).synchronize(stream);
            ASSERT_EQ(to_vector(ranks, mine), to_vector(ranks, agreed)) << algorithm << " " << count;
          }
        }
      }
    }
  });
}

TEST(DirectCalls, AverageAndMultiplyWithoutAKernelOfTheirOwn) {
  for_each_device_group({2, 4}, [](Communicator& ranks) {
    Communicator caller = direct(ranks);
    const StreamView stream = device_of(ranks).make_stream();
    Buffer values = to_device(ranks, values_of(ranks, 1000, 4));
    const auto average = [&](Communicator& by, StreamView in) {
      copy_now(device_of(ranks), values.view().data, values_of(ranks, 1000, 4).data(), 4000);
      by.allreduce(values.view(), ReduceOp::kAverage, {.postscale = 4, .stream = in});
      device_of(ranks).synchronize(stream);
    };
    average(caller, stream);
    ranks.barrier();
    const unsigned long launches = calls_of("cuLaunchKernel"), reductions = calls_of("ncclAllReduce");
    const bool is_counted = reductions > 0;
    ranks.barrier();
    average(caller, stream);
    ranks.barrier();
    EXPECT_EQ(calls_of("cuLaunchKernel"), launches);
    if (is_counted) {
      EXPECT_EQ(calls_of("ncclAllReduce") - reductions, static_cast<unsigned long>(is_launched() ? 1 : ranks.size()));
    }
    float expected = 0;
    for (int rank = 0; rank < ranks.size(); ++rank) expected += 4 * static_cast<float>(rank + 1) + 10;
    EXPECT_FLOAT_EQ(to_vector(ranks, values)[10], 4 * expected / static_cast<float>(ranks.size()));
  });
}

/// What is in the reduction itself is the same on all ranks, and exact; the rest are kernels.
TEST(DirectCalls, FactorsMayDifferAndTypesMayBeShort) {
  for_each_device_group({2, 3}, [](Communicator& ranks) {
    Communicator caller = direct(ranks);
    const StreamView stream = device_of(ranks).make_stream();
    for (const DType dtype : {DType::kF16, DType::kBF16, DType::kF32, DType::kF64}) {
      Buffer host(1000, dtype);
      for (std::size_t i = 0; i < host.count(); ++i) store(host.view(), i, static_cast<double>(8 * (ranks.rank() + 1)));
      Buffer values = to_device(ranks, host.view());
      const double own = 0.5 * (ranks.rank() + 1);
      for (int repetition = 0; repetition < 3; ++repetition) {
        copy_now(device_of(ranks), values.view().data, host.view().data, host.view().size_in_bytes());
        caller.allreduce(values.view(), ReduceOp::kAverage,
                         {.prescale = own, .postscale = 6, .algorithm = "vendor", .stream = stream});
        device_of(ranks).synchronize(stream);
      }
      double sum = 0;
      for (int rank = 0; rank < ranks.size(); ++rank) sum += 0.5 * (rank + 1) * 8 * (rank + 1);
      const Buffer came = to_host(ranks, values.view());
      const double expected = sum * 6 / ranks.size();
      EXPECT_NEAR(load(came.view(), 7), expected, expected * (size_in_bytes(dtype) == 2 ? 1.0 / 128 : 1e-6))
          << name(dtype);
    }
  });
}

/// After the first calls, a call only enqueues: nothing is sent or allocated.
TEST(DirectCalls, SendNothingAndAllocateNothing) {
  for_each_device_group({2, 3}, [](Communicator& ranks) {
    Communicator caller = direct(ranks);
    const StreamView stream = device_of(ranks).make_stream();
    Buffer values = to_device(ranks, values_of(ranks, 1000, 1));
    for (const char* const algorithm : {"vendor", "ring"}) {
      const auto call = [&](int times) {
        for (int i = 0; i < times; ++i) {
          caller.allreduce(values.view(), ReduceOp::kSum, {.prescale = 0.5, .algorithm = algorithm, .stream = stream});
        }
        device_of(ranks).synchronize(stream);
      };
      call(3);
      ranks.barrier();
      const std::uint64_t sent = internals(caller).sent_bytes();
      const unsigned long allocations = calls_of("cuMemAlloc"), events = calls_of("cuEventCreate");
      ranks.barrier();
      const std::uint64_t sent_by_barrier = internals(caller).sent_bytes() - sent;
      call(30);
      EXPECT_LE(internals(caller).sent_bytes() - sent, 2 * sent_by_barrier) << algorithm;
      ranks.barrier();
      EXPECT_EQ(calls_of("cuMemAlloc"), allocations) << algorithm;
      EXPECT_EQ(calls_of("cuEventCreate"), events) << algorithm;
      ranks.barrier();
    }
  });
}

TEST(DirectCalls, AreOrderedInTheCallersStreams) {
  for_each_device_group({2, 3}, [](Communicator& ranks) {
    Communicator caller = direct(ranks);
    Device& device = device_of(ranks);
    const StreamView first = device.make_stream(), second = device.make_stream();
    const auto moved = device.make_event(DeviceEvent::Use::kStreams);
    constexpr std::size_t kCount = 5000;
    Buffer values = ranks.allocate(kCount, DType::kF32, ranks.device());
    const std::vector<float> ones(kCount, 1);
    const Buffer source = to_device(ranks, ones);
    for (int repetition = 0; repetition < 10; ++repetition) {
      for (const char* const algorithm : {"vendor", "ring"}) {
        // The plan of the ring has memory of its own, which the next stream must not overwrite.
        device.copy(values.view().data, source.view().data, kCount * sizeof(float), first);
        caller.allreduce(values.view(), ReduceOp::kSum, {.algorithm = algorithm, .stream = first});
        device.record(*moved, first);
        device.wait(second, *moved);
        caller.allreduce(values.view(), ReduceOp::kSum, {.algorithm = algorithm, .stream = second});
        device.synchronize(second);
        const auto size = static_cast<float>(ranks.size());
        ASSERT_EQ(to_vector(ranks, values), std::vector<float>(kCount, size * size)) << algorithm;
      }
    }
  });
}

/// Every rank is in the communicator of all, and in one, two or three further ones.
TEST(DirectCalls, RanksMayHaveDifferentNumbersOfCommunicators) {
  for_each_device_group({3, 4}, [](Communicator& ranks) {
    Communicator all = direct(ranks);
    const CommunicatorOptions caller{.device_order = CommunicatorOptions::DeviceOrder::kCaller};
    Communicator front = ranks.split(ranks.rank() < 2 ? 0 : -1, 0, caller);
    Communicator back = ranks.split(ranks.rank() >= 1 ? 0 : -1, 0, caller);
    const StreamView stream = device_of(ranks).make_stream();
    for (int repetition = 0; repetition < 10; ++repetition) {
      Buffer values = to_device(ranks, std::vector<float>(100, 1));
      const auto sum = [&](Communicator& members) {
        if (members.valid()) members.allreduce(values.view(), ReduceOp::kSum, {.stream = stream});
      };
      sum(front);
      sum(back);
      sum(all);
      device_of(ranks).synchronize(stream);
      std::vector<float> expected(static_cast<std::size_t>(ranks.size()), 1);
      const auto sum_from = [&](std::size_t first, std::size_t end) {
        const float total = std::accumulate(expected.begin() + static_cast<std::ptrdiff_t>(first),
                                            expected.begin() + static_cast<std::ptrdiff_t>(end), 0.0F);
        std::fill(expected.begin() + static_cast<std::ptrdiff_t>(first),
                  expected.begin() + static_cast<std::ptrdiff_t>(end), total);
      };
      sum_from(0, 2);
      sum_from(1, expected.size());
      sum_from(0, expected.size());
      ASSERT_EQ(to_vector(ranks, values)[0], expected[0]);
    }
  });
}

/// Calls that go through the queue, and calls that do not, of one communicator.
TEST(DirectCalls, MixWithCallsOfTheQueue) {
  for_each_device_group({2, 3}, [](Communicator& ranks) {
    Communicator caller = direct(ranks);
    const StreamView stream = device_of(ranks).make_stream();
    const auto size = static_cast<float>(ranks.size());
    for (int repetition = 0; repetition < 5; ++repetition) {
      Buffer values = to_device(ranks, std::vector<float>(1000, 1));
      Buffer integers = to_device(ranks, std::vector<std::int32_t>(1000, 7));
      caller.allreduce(values.view(), ReduceOp::kSum, {.stream = stream});
      caller.allreduce(integers.view(), ReduceOp::kAverage, {.stream = stream});
      Work later = caller.allreduce_async(values.view(), ReduceOp::kSum, {.stream = stream});
      later.wait_on(stream);
      caller.allreduce(values.view(), ReduceOp::kSum, {.stream = stream});
      caller.barrier();
      device_of(ranks).synchronize(stream);
      ASSERT_EQ(to_vector(ranks, values)[999], size * size * size);
      Buffer host = to_host(ranks, integers.view());
      ASSERT_EQ(host.as<std::int32_t>()[0], 7);
    }
  });
}

/// NCCL gets the calls of a communicator in the program's order, whether or not they go through the queue.
TEST(DirectCalls, AreEnqueuedAfterEarlierCallsOfTheQueue) {
  for_each_device_group({2, 3}, [](Communicator& ranks) {
    Communicator caller = direct(ranks);
    const StreamView stream = device_of(ranks).make_stream();
    const double size = ranks.size();
    for (int repetition = 0; repetition < 5; ++repetition) {
      Buffer values = to_device(ranks, std::vector<std::int32_t>(1000, ranks.rank() + 1));
      Work largest = caller.allreduce_async(values.view(), ReduceOp::kMax, {.algorithm = "vendor", .stream = stream});
      caller.allreduce(values.view(), ReduceOp::kSum, {.algorithm = "vendor", .stream = stream});
      largest.wait();
      device_of(ranks).synchronize(stream);
      const Buffer host = to_host(ranks, values.view());
      ASSERT_EQ(first_difference(host.view(), [&](std::size_t) { return size * size; }), "");
    }
  });
}

TEST(DirectCalls, InvalidCallIsRefusedOnItsRankOnly) {
  for_each_device_group({2}, [](Communicator& ranks) {
    Communicator caller = direct(ranks);
    const StreamView stream = device_of(ranks).make_stream();
    Buffer values = to_device(ranks, std::vector<float>(10, 1));
    caller.allreduce(values.view(), ReduceOp::kSum, {.stream = stream});
    if (ranks.rank() == 0) {
      EXPECT_THAT(message_of<InvalidArgument>([&] {
                    caller.allreduce(values.view(), ReduceOp::kSum, {.algorithm = "no such one", .stream = stream});
                  }),
                  HasSubstr("no such one"));
    }
    caller.allreduce(values.view(), ReduceOp::kSum, {.stream = stream});
    device_of(ranks).synchronize(stream);
    EXPECT_EQ(to_vector(ranks, values)[0], static_cast<float>(ranks.size() * ranks.size()));
  });
}

TEST(DirectCalls, ACommunicatorMayOutliveItsWorld) {
  FARANDOLE_SKIP_WITHOUT_DEVICES();
  if (is_launched()) GTEST_SKIP() << "the job of the processes goes on";
  Communicator caller;
  {
    World world;
    Communicator ranks = Communicator::of_world(world);
    caller = direct(ranks);
    Buffer values = to_device(ranks, std::vector<float>(10, 1));
    for (int i = 0; i < 3; ++i) {
      caller.allreduce(values.view(), ReduceOp::kSum,
                       {.algorithm = "ring", .stream = StreamView(nullptr, ranks.device())});
    }
  }
  EXPECT_THROW(caller.barrier(), InvalidArgument);
}
TEST(DirectCalls, OrderMustBeTheSameOnAllRanks) {
  for_each_device_group({2}, [](Communicator& ranks) {
    using Order = CommunicatorOptions::DeviceOrder;
    EXPECT_THAT(message_of<Mismatch>([&] {
                  (void)ranks.duplicate({.device_order = ranks.rank() == 0 ? Order::kCaller : Order::kAgreed});
                }),
                HasSubstr("values of `device_order`"));
  });
}

}  // namespace
}  // namespace farandole::test
