// SPDX-License-Identifier: Apache-2.0
// Counts that do not fit 32 bits.
#include <gtest/gtest.h>

#include <unistd.h>

#include <cstdint>
#include <vector>

#include "groups.h"

namespace farandole::test {
namespace {

constexpr std::size_t kCount = (std::size_t{1} << 31) + 12'345;

bool memory_is_short(std::size_t bytes) {
  const auto available =
      static_cast<std::size_t>(sysconf(_SC_AVPHYS_PAGES)) * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  return available < bytes + (std::size_t{1} << 30);
}

TEST(LargeCount, AllreduceAndBroadcastBeyondTwoToThe31Elements) {
  if (memory_is_short(2 * kCount)) GTEST_SKIP() << "needs " << 2 * kCount << " bytes of memory";
  run_replicas(2, [](Communicator& ranks) {
    Buffer data(kCount, DType::kU8);
    auto* bytes = data.as<std::uint8_t>();
    const std::size_t places[] = {0, (std::size_t{1} << 31) - 1, std::size_t{1} << 31, kCount - 1};
    for (const std::size_t place : places) bytes[place] = static_cast<std::uint8_t>(ranks.rank() + 1);
    ranks.allreduce(data.view(), ReduceOp::kSum);
    for (const std::size_t place : places) EXPECT_EQ(bytes[place], 3) << place;
    EXPECT_EQ(bytes[1], 0);
    if (ranks.rank() == 1) bytes[kCount - 1] = 77;
    ranks.broadcast(data.view(), 1);
    EXPECT_EQ(bytes[kCount - 1], 77);
  });
}

}  // namespace
}  // namespace farandole::test
