// SPDX-License-Identifier: Apache-2.0
#include "cuda/launch_shape.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>

namespace farandole::cuda {
namespace {

constexpr unsigned kMultiprocessors = 132;  // of an H100
constexpr std::uint64_t kPassBytes = 8192;  // 128 threads, 4 packets of 16 bytes each

unsigned blocks(std::uint64_t longest_bytes, unsigned tasks, unsigned multiprocessors = kMultiprocessors) {
  return launch_shape(longest_bytes, tasks, multiprocessors).blocks_per_task;
}

TEST(LaunchShape, ShortTasksGetAsManyBlocksAsOnePassTakes) {
  EXPECT_EQ(blocks(0, 1), 1U);
  EXPECT_EQ(blocks(1, 1), 1U);
  EXPECT_EQ(blocks(kPassBytes, 1), 1U);
  EXPECT_EQ(blocks(kPassBytes + 1, 1), 2U);
  EXPECT_EQ(blocks(100 * kPassBytes, 1), 100U);
  EXPECT_EQ(blocks(kPassBytes / 2, 64), 1U);
  EXPECT_EQ(launch_shape(1, 1, 1).block_threads, 128U);
}

TEST(LaunchShape, LongTasksGetAllResidentBlocks) {
  EXPECT_EQ(blocks(std::uint64_t{1} << 30, 1), 6 * kMultiprocessors);
  EXPECT_EQ(blocks(std::uint64_t{1} << 30, 1, 40), 240U);
  EXPECT_EQ(blocks(std::numeric_limits<std::uint64_t>::max(), 1), 6 * kMultiprocessors);
}

TEST(LaunchShape, ManyTasksShareEightTimesTheResidentBlocks) {
  EXPECT_EQ(blocks(std::uint64_t{1} << 30, 8), 6 * kMultiprocessors);
  EXPECT_EQ(blocks(std::uint64_t{1} << 30, 64), 6 * kMultiprocessors / 8);
  EXPECT_EQ(blocks(10 * kPassBytes, 64), 10U);
  EXPECT_EQ(blocks(std::uint64_t{1} << 30, 64, 1), 1U) << "never none";
}

}  // namespace
}  // namespace farandole::cuda
