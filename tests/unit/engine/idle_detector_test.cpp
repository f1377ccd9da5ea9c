// SPDX-License-Identifier: Apache-2.0
// Detection of idle ranks. The tests set the wall-clock time and the CPU time.
#include "idle_detector.h"

#include <gtest/gtest.h>

#include <chrono>

namespace farandole::testing {
namespace {

using std::chrono::milliseconds;

/// A rank that waits, and looks every tenth of a second.
class WaitingRank {
 public:
  /// @returns  true if it has come to stand still
  bool wait(milliseconds time, double processors = 0.0) {
    bool comes = false;
    for (milliseconds passed{0}; passed < time; passed += kBetweenLooks) {
      now_ += kBetweenLooks;
      used_ += std::chrono::duration_cast<IdleDetector::ProcessorTime>(processors * kBetweenLooks);
      comes = update() || comes;
    }
    return comes;
  }
  bool update() { return idle_.update(happened, now_); }
  bool is_idle() const { return idle_.is_idle(happened); }
  void sleep(milliseconds time) { now_ += time; }

  std::uint64_t happened = 1;
  int samples = 0;

 private:
  static constexpr milliseconds kBetweenLooks{100};
  Clock::time_point now_{std::chrono::hours(1)};
  IdleDetector::ProcessorTime used_{std::chrono::minutes(5)};
  IdleDetector idle_{Seconds(5), [this] {
                       ++samples;
                       return used_;
                     }};
};

TEST(IdleDetector, RankIsIdleAfterLongWithoutEvents) {
  WaitingRank rank;
  EXPECT_FALSE(rank.wait(milliseconds(5000)));
  EXPECT_TRUE(rank.wait(milliseconds(500)));
  EXPECT_TRUE(rank.is_idle());
  EXPECT_FALSE(rank.wait(milliseconds(60000))) << "it has come already";
  EXPECT_TRUE(rank.is_idle());
}

TEST(IdleDetector, IsOverWhenSomethingHappens) {
  WaitingRank rank;
  EXPECT_TRUE(rank.wait(milliseconds(6000)));
  ++rank.happened;
  EXPECT_FALSE(rank.is_idle());
  EXPECT_FALSE(rank.wait(milliseconds(4000)));
  ++rank.happened;
  EXPECT_FALSE(rank.wait(milliseconds(4000)));
  EXPECT_TRUE(rank.wait(milliseconds(2000)));
}

TEST(IdleDetector, ComputingRankIsNotIdle) {
  WaitingRank rank;
  EXPECT_FALSE(rank.wait(milliseconds(60000), 1.0));
  EXPECT_FALSE(rank.wait(milliseconds(60000), 0.1)) << "or reads a file, decodes images";
  EXPECT_TRUE(rank.wait(milliseconds(60000), 0.01)) << "the threads of an idle process";
}

/// Another negotiation confirms a standstill 300 ms after it has come.
TEST(IdleDetector, IsOverWhenTheRankBeginsToCompute) {
  WaitingRank rank;
  EXPECT_TRUE(rank.wait(milliseconds(6000)));
  rank.wait(milliseconds(400), 1.0);
  EXPECT_FALSE(rank.is_idle());
  EXPECT_TRUE(rank.wait(milliseconds(6000)));
}

/// Stopped, or on a machine that has no processor for it.
TEST(IdleDetector, TimeWhileStoppedDoesNotCount) {
  WaitingRank rank;
  EXPECT_FALSE(rank.wait(milliseconds(4000)));
  rank.sleep(milliseconds(3000));
  EXPECT_FALSE(rank.wait(milliseconds(4000)));
  EXPECT_TRUE(rank.wait(milliseconds(2000)));
}

TEST(IdleDetector, MakesNoSystemCallsWhileAllGoesWell) {
  WaitingRank rank;
  for (int step = 0; step < 100; ++step) {
    ++rank.happened;
    rank.update();
    rank.sleep(milliseconds(20));
    rank.update();
  }
  EXPECT_EQ(rank.samples, 0);
}

}  // namespace
}  // namespace farandole::testing
