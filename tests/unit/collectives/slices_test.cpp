// SPDX-License-Identifier: Apache-2.0
// The division of vectors: chunks cover the vector exactly once, and slices cover each chunk exactly once.
#include "shared_memory/slices.h"

#include <gtest/gtest.h>

#include <vector>

namespace farandole {
namespace {

Call floats_call(Collective collective, std::size_t count, int root = -1) {
  Call call;
  call.collective = collective;
  call.root = root;
  call.input = {nullptr, count, DType::kF32};
  call.output = {nullptr, count, DType::kF32};
  return call;
}

TEST(Slices, FreeChunksCoverTheVectorInWholeLines) {
  constexpr std::size_t kLine = kLineBytes / sizeof(float);
  for (const int size : {1, 2, 3, 5, 8}) {
    for (const std::size_t count : {std::size_t{0}, std::size_t{1}, kLine - 1, kLine, kLine + 1, std::size_t{1003}}) {
      const Slices slices(PreparedCall(floats_call(Collective::kAllreduce, count), size), size, {});
      std::size_t end = 0;
      for (int owner = 0; owner < size; ++owner) {
        const Extent chunk = slices.chunk(owner);
        EXPECT_EQ(chunk.first, end) << count << " elements, " << size << " ranks, chunk " << owner;
        EXPECT_TRUE(chunk.count == 0 || chunk.first % kLine == 0) << "two ranks write to one line";
        end = chunk.first + chunk.count;
      }
      EXPECT_EQ(end, count) << size << " ranks";
    }
  }
}

TEST(Slices, ChunksFollowTheCounts) {
  const std::vector<std::size_t> firsts{0, 3, 3, 10};
  const Slices slices(PreparedCall(floats_call(Collective::kAllgather, 3), 3), 3, firsts);
  EXPECT_EQ(slices.chunk(1).count, 0U);
  EXPECT_EQ(slices.chunk(2).first, 3U);
  EXPECT_EQ(slices.chunk(2).count, 7U);
}

TEST(Slices, TheRootOfABroadcastHasTheOnlyChunk) {
  const Slices slices(PreparedCall(floats_call(Collective::kBroadcast, 100, 2), 3), 3, {});
  EXPECT_EQ(slices.chunk(0).count, 0U);
  EXPECT_EQ(slices.chunk(2).count, 100U);
}

TEST(Slices, AlltoallChunksFollowTheReceiveCounts) {
  const std::vector<std::size_t> to{1, 2}, from{4, 5};
  Call call = floats_call(Collective::kAlltoall, 3);
  call.counts = to;
  call.recv_counts = from;
  const std::vector<std::size_t> firsts{0, 1, 3};
  const Slices slices(PreparedCall(call, 2), 2, firsts);
  EXPECT_EQ(slices.chunk(1).count, 2U);
  EXPECT_EQ(slices.received_from(1).first, 4U);
  EXPECT_EQ(slices.received_from(1).count, 5U);
}

TEST(Slices, SlicesCoverAChunkAndFitTheirSlot) {
  constexpr std::size_t kFittedSlot = 4096;
  for (const bool share_slot : {false, true}) {
    const int size = 3;
    Slices slices(PreparedCall(floats_call(Collective::kAllreduce, 20'000), size), size, {});
    slices.fit(kFittedSlot, share_slot);
    const std::size_t in_slot = share_slot ? 3 : 1;
    EXPECT_LE(slices.bytes(slices.granularity()) * in_slot, kFittedSlot);
    EXPECT_EQ(slices.bytes(slices.granularity()) % kLineBytes, 0U);
    const Extent chunk = slices.chunk(2);
    std::size_t end = chunk.first;
    const std::size_t count = slices.count_of(chunk.count);
    for (std::size_t slice = 0; slice < count; ++slice) {
      const Extent part = slices.slice_of(chunk, slice);
      EXPECT_EQ(part.first, end);
      EXPECT_GT(part.count, 0U);
      end += part.count;
    }
    EXPECT_EQ(end, chunk.first + chunk.count);
    EXPECT_EQ(slices.slice_of(chunk, count).count, 0U) << "past the end";
  }
}

}  // namespace
}  // namespace farandole
