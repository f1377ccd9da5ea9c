// SPDX-License-Identifier: Apache-2.0
// Calls on device memory as programs make them: streams, asynchronous calls, several communicators, wrong arguments.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "driver_function.h"
#include "farandole/core/error.h"
#include "graph_capture.h"
#include "groups.h"
#include "message_of.h"
#include "on_device.h"

namespace farandole::test {
namespace {

using ::testing::HasSubstr;

Buffer filled(Communicator& ranks, std::size_t count, float value) {
  const std::vector<float> host(count, value);
  return to_device(ranks, host);
}

float first_of(Communicator& ranks, const Buffer& buffer) {
  Buffer host = to_host(ranks, buffer.view());
  return host.as<float>()[0];
}

float sum_of_ranks(const Communicator& ranks) {
  return static_cast<float>(ranks.size() * (ranks.size() + 1)) / 2;
}

/// Keeps the stream busy for some milliseconds, so that work which does not wait for the stream overtakes it.
void keep_busy(Device& device, BufferView values, StreamView stream) {
  constexpr int kItems = 500;
  for (int i = 0; i < kItems; ++i) device.fill_zero(values.data, values.size_in_bytes(), stream);
}

TEST(DeviceCalls, CallIsOrderedAfterEarlierWorkInTheStream) {
  for_each_device_group({2, 3}, [](Communicator& ranks) {
    Device& device = device_of(ranks);
    const StreamView stream = device.make_stream();
    constexpr std::size_t kCount = 5000;
    const Buffer own = filled(ranks, kCount, static_cast<float>(ranks.rank() + 1));
    for (const bool waits_on : {false, true}) {
      Buffer values = ranks.allocate(kCount, DType::kF32, ranks.device());
      std::vector<float> result(kCount);
      keep_busy(device, values.view(), stream);
      device.copy(values.view().data, own.view().data, kCount * sizeof(float), stream);
      CallOptions options;
      options.stream = stream;
      if (waits_on) {
        Work work = ranks.allreduce_async(values.view(), ReduceOp::kSum, options);
        work.wait_on(stream);
      } else {
        ranks.allreduce(values.view(), ReduceOp::kSum, options);
      }
      device.copy(result.data(), values.view().data, kCount * sizeof(float), stream);
      device.synchronize(stream);
      EXPECT_EQ(result, std::vector<float>(kCount, sum_of_ranks(ranks)));
      ranks.barrier();
    }
  });
}

TEST(DeviceCalls, AllocationAvoidsMemoryOfUnfinishedOperations) {
  FARANDOLE_SKIP_WITHOUT_DEVICES();
  for_each_device_group({2, 3}, [](Communicator& ranks) {
    Device& device = device_of(ranks);
    const StreamView stream = device.make_stream();
    constexpr std::size_t kCount = 3000;
    const Buffer own = filled(ranks, kCount, 2 * static_cast<float>(ranks.rank() + 1));
    for (const char* const algorithm : {"ring", "vendor"}) {
      Buffer values = ranks.allocate(kCount, DType::kF32, ranks.device());
      keep_busy(device, values.view(), stream);
      device.copy(values.view().data, own.view().data, kCount * sizeof(float), stream);
      CallOptions options;
      options.stream = stream;
      options.algorithm = algorithm;
      options.prescale = 0.5;  // both need memory of their own
      Work work = ranks.allreduce_async(values.view(), ReduceOp::kSum, options);
      work.wait_on(stream);  // it is enqueued
      std::vector<Buffer> others;
      for (std::size_t bytes = 512; bytes <= 8 * kCount; bytes += 512) {
        others.push_back(ranks.allocate(bytes, DType::kU8, ranks.device()));
      }
      work.wait();
      for (const Buffer& other : others) {
        Buffer host = to_host(ranks, other.view());
        const auto* const bytes = host.as<std::uint8_t>();
        EXPECT_TRUE(std::all_of(bytes, bytes + host.count(), [](std::uint8_t byte) { return byte == 0; })) << algorithm;
      }
      EXPECT_EQ(first_of(ranks, values), sum_of_ranks(ranks));
    }
  });
}

TEST(DeviceCalls, RanksMayUseCommunicatorsInDifferentOrders) {
  for_each_device_group({2, 3, 4}, [](Communicator& ranks) {
    Communicator other = ranks.duplicate();
    Communicator third = ranks.split(0, -ranks.rank());
    std::vector<Communicator*> order{&ranks, &other, &third};
    std::rotate(order.begin(), order.begin() + ranks.rank() % 3, order.end());
    for (int repetition = 0; repetition < 20; ++repetition) {
      std::vector<Buffer> buffers;
      std::vector<Work> works;
      for (Communicator* each : order) {
        buffers.push_back(filled(ranks, 1000, static_cast<float>(ranks.rank() + 1)));
        works.push_back(each->allreduce_async(buffers.back().view(), ReduceOp::kSum));
      }
      for (Work& work : works) work.wait();
      for (const Buffer& buffer : buffers) ASSERT_EQ(first_of(ranks, buffer), sum_of_ranks(ranks));
    }
  });
}

TEST(DeviceCalls, ManyAreInFlightAndCommunicatorsAreMadeMeanwhile) {
  for_each_device_group({2, 3}, [](Communicator& ranks) {
    std::vector<Buffer> buffers;
    std::vector<Work> works;
    for (int i = 0; i < 12; ++i) {
      buffers.push_back(filled(ranks, 3000, static_cast<float>(ranks.rank() + 1)));
      CallOptions options;
      if (i % 2 == 1) options.algorithm = "ring";
      works.push_back(ranks.allreduce_async(buffers.back().view(), ReduceOp::kSum, options));
    }
    Communicator half = ranks.split(ranks.rank() % 2);
    Buffer own = filled(ranks, 10, 1);
    half.allreduce(own.view(), ReduceOp::kSum);
    EXPECT_EQ(first_of(ranks, own), static_cast<float>(half.size()));
    for (Work& work : works) work.wait();
    for (const Buffer& buffer : buffers) EXPECT_EQ(first_of(ranks, buffer), sum_of_ranks(ranks));
  });
}

TEST(DeviceCalls, HostMemoryOnOnlyOneRankIsAMismatch) {
  for_each_device_group({2, 3}, [](Communicator& ranks) {
    Buffer device = filled(ranks, 100, 1);
    std::vector<float> host(100, 1);
    const std::string text = message_of<Mismatch>(
        [&] { ranks.allreduce(ranks.rank() == 0 ? device.view() : BufferView(host), ReduceOp::kSum); });
    EXPECT_NE(text.find("device memory"), std::string::npos) << text;
    EXPECT_EQ(first_of(ranks, device), 1);
    ranks.allreduce(device.view(), ReduceOp::kSum);
    EXPECT_EQ(first_of(ranks, device), static_cast<float>(ranks.size()));
  });
}

TEST(DeviceCalls, WrongMemorySpaceOfAViewIsRefusedOnAllRanks) {
  for_each_device_group({2}, [](Communicator& ranks) {
    Buffer device = filled(ranks, 100, 1);
    std::vector<float> host(100, 1);
    const BufferView wrong_host(host.data(), host.size(), DType::kF32, ranks.device());
    EXPECT_NE(message_of<InvalidArgument>([&] { ranks.allreduce(wrong_host, ReduceOp::kSum); }).find("host memory"),
              std::string::npos);
    const BufferView wrong_device(device.view().data, device.count(), DType::kF32);
    EXPECT_NE(message_of<InvalidArgument>([&] { ranks.allreduce(wrong_device, ReduceOp::kSum); }).find("CUDA device"),
              std::string::npos);
    MemorySpace other = ranks.device();
    other.ordinal = static_cast<std::uint16_t>(other.ordinal + 1);
    const BufferView other_device(device.view().data, device.count(), DType::kF32, other);
    EXPECT_NE(message_of<InvalidArgument>([&] {
                ranks.allreduce(other_device, ReduceOp::kSum);
              }).find("the device of this rank"),
              std::string::npos);
    // One rank is wrong, and all learn of it.
    if (ranks.rank() == 0) {
      EXPECT_THROW(ranks.allreduce(wrong_device, ReduceOp::kSum), InvalidArgument);
    } else {
      EXPECT_THROW(ranks.allreduce(device.view(), ReduceOp::kSum), Mismatch);
    }
    ranks.allreduce(device.view(), ReduceOp::kSum);
    EXPECT_EQ(first_of(ranks, device), static_cast<float>(ranks.size()));
  });
}

/// @param call  on the rank that is wrong   @param right  on its peers, to whom it is a mismatch
template <class Call>
void expect_refused_by_rank_0(Communicator& ranks, BufferView right, const std::string& text, const Call& call) {
  if (ranks.rank() == 0) {
    EXPECT_THAT(message_of<InvalidArgument>(call), HasSubstr(text));
  } else {
    EXPECT_THROW(ranks.allreduce(right, ReduceOp::kSum), Mismatch);
  }
}

TEST(DeviceCalls, InvalidViewIsRefusedBeforeTheDeviceReadsIt) {
  for_each_device_group({2}, [](Communicator& ranks) {
    constexpr std::size_t kCount = 10'000;
    Buffer values = ranks.allocate(kCount, DType::kF32, ranks.device());
    void* const data = values.view().data;
    const auto refused = [&](const std::string& text, const BufferView& view) {
      expect_refused_by_rank_0(ranks, values.view(), text, [&] { ranks.allreduce(view, ReduceOp::kSum); });
      ranks.allreduce(values.view(), ReduceOp::kSum);
    };
    // The count is in bytes where elements are expected. The view would reach beyond its allocation.
    refused("a number of elements, not of bytes", {data, std::size_t{1} << 40, DType::kF32, ranks.device()});
    refused("at a multiple of 4 bytes", {static_cast<std::byte*>(data) + 2, kCount - 1, DType::kF32, ranks.device()});
    // Memory that the program has freed.
    Device& device = device_of(ranks);
    device.bind_thread();
    auto* const allocate = find_in_driver<int(std::uint64_t*, std::size_t)>("cuMemAlloc_v2");
    auto* const release = find_in_driver<int(std::uint64_t)>("cuMemFree_v2");
    std::uint64_t memory = 0;
    ASSERT_EQ(allocate(&memory, kCount * sizeof(float)), 0);
    ASSERT_EQ(release(memory), 0);
    refused("its address is in host memory",
            {reinterpret_cast<void*>(memory), kCount, DType::kF32, ranks.device()});  // NOLINT: CUDA's addresses
    EXPECT_THAT(
        message_of<InvalidArgument>([&] { (void)ranks.allocate(std::size_t{1} << 62, DType::kF32, ranks.device()); }),
        HasSubstr("does not fit in the address space"));
  });
}

TEST(DeviceCalls, EmptyOrIgnoredViewsNeedNoDeviceMemory) {
  for_each_device_group({2, 3}, [](Communicator& ranks) {
    constexpr std::size_t kEach = 100;
    const auto size = static_cast<std::size_t>(ranks.size());
    const bool is_last = ranks.rank() + 1 == ranks.size();
    Buffer own = filled(ranks, kEach, static_cast<float>(ranks.rank() + 1));
    Buffer all = ranks.allocate(kEach * size, DType::kF32, ranks.device());
    std::vector<std::size_t> counts(size, kEach);
    counts.back() = 0;
    const BufferView nothing(nullptr, 0, DType::kF32);
    ranks.allgather(is_last ? nothing : own.view(), all.view().part(0, kEach * (size - 1)), counts);
    EXPECT_EQ(first_of(ranks, all), 1);
    ranks.reduce_scatter(all.view().part(0, kEach * (size - 1)), is_last ? nothing : own.view(), ReduceOp::kSum,
                         counts);
    // The output passed by a rank that is not the root is ignored, in whatever memory the output lies.
    std::vector<float> ignored(kEach * size, 7);
    ranks.gather(own.view(), is_last ? all.view() : BufferView(ignored), ranks.size() - 1);
    ranks.reduce(own.view(), is_last ? all.view().part(0, kEach) : BufferView(ignored), ReduceOp::kMax,
                 ranks.size() - 1);
    EXPECT_EQ(ignored, std::vector<float>(kEach * size, 7));
  });
}

TEST(DeviceCalls, AStreamThatIsCapturedIntoAGraphIsRefused) {
  for_each_device_group({2}, [](Communicator& ranks) {
    Device& device = device_of(ranks);
    device.bind_thread();
    Buffer values = filled(ranks, 100, 1);
    auto* const make_stream = find_in_driver<int(void**, unsigned)>("cuStreamCreate");
    void* blocking = nullptr;  // one that the default stream waits for
    ASSERT_EQ(make_stream(&blocking, 0), 0);
    for (const StreamView captured : {device.make_stream(), StreamView(blocking, ranks.device())}) {
      std::optional<StreamCapture> capture;
      if (ranks.rank() == 0) capture.emplace(device, captured);
      CallOptions options;
      options.stream = captured;
      expect_refused_by_rank_0(ranks, values.view(), "the stream is captured into a graph, where this call cannot be",
                               [&] { ranks.allreduce(values.view(), ReduceOp::kSum, options); });
      if (captured.handle == blocking) {
        expect_refused_by_rank_0(ranks, values.view(), "work of the device's default stream is captured",
                                 [&] { ranks.allreduce(values.view(), ReduceOp::kSum); });
      }
      if (capture) {
        EXPECT_EQ(capture->end()->nodes(), 0U);
      }
      ranks.allreduce(values.view(), ReduceOp::kSum, options);
    }
    device.synchronize(StreamView(blocking, ranks.device()));
  });
}

TEST(DeviceCalls, AStreamMayBeCapturedWhileOtherStreamsAreUsed) {
  for_each_device_group({2}, [](Communicator& ranks) {
    Device& device = device_of(ranks);
    const StreamView captured = device.make_stream(), stream = device.make_stream();
    std::optional<StreamCapture> capture;
    if (ranks.rank() == 0) capture.emplace(device, captured);
    ranks.barrier();
    for (const std::size_t count : {100, 5000, 70'000}) {
      Buffer values = filled(ranks, count, 1);
      Buffer zeroed = ranks.allocate(count, DType::kF32, ranks.device());
      keep_busy(device, zeroed.view(), stream);
      CallOptions options;
      options.stream = stream;
      options.prescale = 2;
      ranks.allreduce_async(values.view(), ReduceOp::kSum, options).wait();
      EXPECT_EQ(first_of(ranks, values), static_cast<float>(2 * ranks.size()));
    }
    ranks.barrier();
    if (capture) {
      EXPECT_EQ(capture->end()->nodes(), 0U);
    }
  });
}

/// A vendor's communicator takes memory of the device, and long to make.
TEST(DeviceCalls, CommunicatorsOfTheSameRanksShareGroupAndContext) {
  FARANDOLE_SKIP_WITHOUT_DEVICES();
  auto* const calls_of = find_in_driver<unsigned long(const char*)>("fake_device_calls");
  if (calls_of == nullptr) GTEST_SKIP() << "only the double counts calls";
  if (is_launched()) GTEST_SKIP() << "counts the calls of all ranks";
  const unsigned long groups = calls_of("ncclCommInitRankConfig"), streams = calls_of("cuStreamCreate");
  for_each_device_group({3}, [](Communicator& ranks) {
    for (int repetition = 0; repetition < 3; ++repetition) {
      // Nothing but this one uses the device, which stays open all the same.
      Communicator same = ranks.duplicate();
      Buffer values = filled(same, 100, static_cast<float>(ranks.rank() + 1));
      same.allreduce(values.view(), ReduceOp::kSum);
      EXPECT_EQ(first_of(same, values), sum_of_ranks(ranks));
      Communicator reversed = ranks.split(0, -ranks.rank());
      reversed.broadcast(values.view(), 0);
      EXPECT_EQ(first_of(reversed, values), sum_of_ranks(ranks));
    }
  });
  EXPECT_EQ(calls_of("ncclCommInitRankConfig") - groups, 2U * 3U);
  EXPECT_EQ(calls_of("cuStreamCreate") - streams, 2U * 3U);
}

TEST(DeviceCalls, OnlySchedulesConnectRanks) {
  FARANDOLE_SKIP_WITHOUT_DEVICES();
  auto* const calls_of = find_in_driver<unsigned long(const char*)>("fake_device_calls");
  if (calls_of == nullptr) GTEST_SKIP() << "only the double counts calls";
  if (is_launched()) GTEST_SKIP() << "counts the calls of all ranks";
  const unsigned long before = calls_of("ncclSend");
  const auto run = [](const char* algorithm) {
    for_each_device_group({3}, [algorithm](Communicator& ranks) {
      for (const char* each : {algorithm, "vendor"}) {
        Buffer values = filled(ranks, 100, 1);
        CallOptions options;
        options.algorithm = each;
        ranks.allreduce(values.view(), ReduceOp::kSum, options);
        EXPECT_EQ(first_of(ranks, values), static_cast<float>(ranks.size()));
      }
    });
  };
  run("vendor");
  EXPECT_EQ(calls_of("ncclSend"), before);
  run("ring");
  const unsigned long messages = 3 * 4;  // of each rank 2 (P - 1)
  EXPECT_EQ(calls_of("ncclSend"), before + messages + 3 * 2);
}

TEST(DeviceCalls, TheDriverIsNotAskedAboutWindows) {
  FARANDOLE_SKIP_WITHOUT_DEVICES();
  auto* const calls_of = find_in_driver<unsigned long(const char*)>("fake_device_calls");
  if (calls_of == nullptr) GTEST_SKIP() << "only the double counts calls";
  std::atomic<unsigned long> before{0};
  for_each_device_group({2}, [&](Communicator& ranks) {
    (void)ranks.device();
    Buffer window = ranks.allocate(100, DType::kF32);
    ranks.barrier();
    if (ranks.rank() == 0) before = calls_of("cuPointerGetAttribute");
    ranks.barrier();
    ranks.allreduce(window.view(), ReduceOp::kSum);
    ranks.barrier();
    if (ranks.rank() == 0) {
      EXPECT_EQ(calls_of("cuPointerGetAttribute"), before);
    }
    ranks.barrier();
  });
}

TEST(DeviceCalls, AStreamOfAnotherPlaceDoesNotWait) {
  for_each_device_group({2}, [](Communicator& ranks) {
    Buffer values = filled(ranks, 100, 1);
    MemorySpace other = ranks.device();
    other.ordinal = static_cast<std::uint16_t>(other.ordinal + 1);
    Work work = ranks.allreduce_async(values.view(), ReduceOp::kSum);
    for (const StreamView stream : {StreamView(), StreamView(nullptr, other)}) {
      EXPECT_NE(message_of<InvalidArgument>([&] { work.wait_on(stream); }).find("the device of this rank"),
                std::string::npos);
    }
    work.wait();
    EXPECT_EQ(first_of(ranks, values), static_cast<float>(ranks.size()));
  });
}

TEST(DeviceCalls, AStreamDoesNotWaitForHostMemory) {
  for_each_device_group({2}, [](Communicator& ranks) {
    std::vector<float> host(10, 1);
    Work work = ranks.allreduce_async(host, ReduceOp::kSum);
    EXPECT_THROW(work.wait_on(StreamView(nullptr, ranks.device())), InvalidArgument);
    work.wait();
    CallOptions options;
    options.stream = StreamView(nullptr, ranks.device());
    EXPECT_THROW(ranks.allreduce(host, ReduceOp::kSum, options), InvalidArgument);
  });
}

}  // namespace
}  // namespace farandole::test
