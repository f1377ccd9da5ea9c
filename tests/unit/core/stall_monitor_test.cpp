// SPDX-License-Identifier: Apache-2.0
#include "farandole/internal/stall_monitor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace farandole {
namespace {

using Due = StallMonitor::Due;

// A clock of the test's own: nothing here waits.
Clock::time_point at(double seconds) {
  return Clock::time_point(std::chrono::hours(1)) + std::chrono::duration_cast<Clock::duration>(Seconds(seconds));
}

StallMonitor monitor(double warn_after, double timeout) {
  return {Seconds(warn_after), Seconds(timeout), at(0)};
}

TEST(StallMonitor, WarningsComeAfterTwiceAsLongEachAndOnce) {
  StallMonitor stall = monitor(10, 0);
  EXPECT_EQ(stall.take_due(at(9.9)), Due::kNothing);
  EXPECT_EQ(stall.take_due(at(10)), Due::kWarning);
  EXPECT_EQ(stall.take_due(at(10)), Due::kNothing);
  EXPECT_EQ(stall.take_due(at(29.9)), Due::kNothing);
  EXPECT_EQ(stall.take_due(at(30)), Due::kWarning);
  // A look that comes late puts off what follows.
  EXPECT_EQ(stall.take_due(at(100)), Due::kWarning);
  EXPECT_EQ(stall.take_due(at(179.9)), Due::kNothing);
  EXPECT_EQ(stall.take_due(at(180)), Due::kWarning);
}

TEST(StallMonitor, TheErrorIsDueFromItsTimeOnAndGoesBeforeAWarning) {
  StallMonitor stall = monitor(10, 10);
  EXPECT_EQ(stall.take_due(at(9.9)), Due::kNothing);
  EXPECT_EQ(stall.take_due(at(10)), Due::kError);
  EXPECT_EQ(stall.take_due(at(11)), Due::kError);
}

TEST(StallMonitor, WithoutATimeoutThereIsNoError) {
  StallMonitor stall = monitor(1, 0);
  EXPECT_EQ(stall.take_due(at(1e7)), Due::kWarning);
  EXPECT_EQ(stall.take_due(at(1e7)), Due::kNothing);
}

TEST(StallMonitor, AnotherWaitStartsAnewAndTheSameGoesOn) {
  StallMonitor stall = monitor(10, 100);
  EXPECT_EQ(stall.take_due(at(10)), Due::kWarning);
  stall.watch(at(0));
  EXPECT_EQ(stall.take_due(at(20)), Due::kNothing) << "the second warning is due after 30 s";
  stall.watch(at(5));
  EXPECT_DOUBLE_EQ(stall.waited(at(14)).count(), 9);
  EXPECT_EQ(stall.take_due(at(14)), Due::kNothing);
  EXPECT_EQ(stall.take_due(at(15)), Due::kWarning);
  EXPECT_EQ(stall.take_due(at(104)), Due::kWarning);
  EXPECT_EQ(stall.take_due(at(105)), Due::kError);
}

TEST(StallMonitor, SaysWhenSomethingIsNear) {
  StallMonitor stall = monitor(10, 32);
  EXPECT_FALSE(stall.is_near(at(8.9)));
  EXPECT_TRUE(stall.is_near(at(9.1)));
  ASSERT_EQ(stall.take_due(at(10)), Due::kWarning);
  EXPECT_FALSE(stall.is_near(at(10)));
  EXPECT_TRUE(stall.is_near(at(29.1)));
  ASSERT_EQ(stall.take_due(at(30)), Due::kWarning);
  EXPECT_FALSE(stall.is_near(at(30.9)));
  EXPECT_TRUE(stall.is_near(at(31.1))) << "the error comes before the next warning";
  // Of short intervals it is a quarter.
  StallMonitor quick = monitor(1, 0);
  EXPECT_FALSE(quick.is_near(at(0.7)));
  EXPECT_TRUE(quick.is_near(at(0.8)));
}

TEST(StallMonitor, ChecksByLoggingAndThrowing) {
  configure_log(LogLevel::kWarning, "rank 0 host");
  StallMonitor stall = monitor(10, 20);
  const auto logged = [&](double seconds) {
    testing::internal::CaptureStderr();
    stall.check([] { return "rank 1 waits for rank 2"; }, at(seconds));
    return testing::internal::GetCapturedStderr();
  };
  EXPECT_EQ(logged(9), "");
  EXPECT_THAT(logged(10), testing::HasSubstr("rank 1 waits for rank 2\n"));
  EXPECT_EQ(logged(11), "");
  try {
    stall.check([] { return "rank 1 waits for rank 2"; }, at(20));
    FAIL() << "the deadline has passed";
  } catch (const Timeout& error) {
    EXPECT_STREQ(error.what(), "the deadline of 20 s (FARANDOLE_TIMEOUT) has passed: rank 1 waits for rank 2");
  }
}

}  // namespace
}  // namespace farandole
