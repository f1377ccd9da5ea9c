// SPDX-License-Identifier: Apache-2.0
// The choice between temporal and non-temporal stores, by the outputs that were written recently.
#include "shared_memory/recent_outputs.h"

#include <gtest/gtest.h>

#include <array>
#include <cstddef>

namespace farandole {
namespace {

constexpr std::size_t kCached = 1600;

class RecentOutputsTest : public testing::Test {
 protected:
  RecentOutputs outputs_{kCached};
  std::array<char, 64> places_{};  // addresses to tell apart
};

TEST_F(RecentOutputsTest, OutputLargerThanTheCachesIsNonTemporal) {
  EXPECT_FALSE(outputs_.note(&places_[0], kCached));
  EXPECT_TRUE(outputs_.note(&places_[0], kCached + 1));
}

TEST_F(RecentOutputsTest, RepeatedlyWrittenOutputStaysInTheCaches) {
  for (int call = 0; call < 100; ++call) EXPECT_FALSE(outputs_.note(&places_[0], kCached / 2)) << call;
}

TEST_F(RecentOutputsTest, OutputsThatFitStayInTheCaches) {
  for (int step = 0; step < 10; ++step) {
    for (std::size_t k = 0; k < 16; ++k) EXPECT_FALSE(outputs_.note(&places_[k], kCached / 16)) << step << ' ' << k;
  }
}

TEST_F(RecentOutputsTest, OutputsThatDoNotFitBecomeNonTemporal) {
  for (int step = 0; step < 10; ++step) {
    for (std::size_t k = 0; k < 17; ++k) {
      EXPECT_EQ(outputs_.note(&places_[k], kCached / 16), step > 0 || k == 16) << step << ' ' << k;
    }
  }
}

TEST_F(RecentOutputsTest, SmallOutputsStayInTheCachesButCount) {
  for (int call = 0; call < 1000; ++call) EXPECT_FALSE(outputs_.note(&places_[1], kCached / 16 - 1));
  EXPECT_TRUE(outputs_.note(&places_[0], kCached / 16));
  EXPECT_FALSE(outputs_.note(&places_[0], kCached / 16));
}

TEST(RecentOutputs, WithoutCachesAllOutputsAreNonTemporal) {
  RecentOutputs outputs(0);
  int place = 0;
  EXPECT_TRUE(outputs.note(&place, 1));
}

}  // namespace
}  // namespace farandole
