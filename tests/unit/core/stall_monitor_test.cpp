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

/// Returns the event due at `seconds` for a waiter that has polled every half second since `from`. Checks that nothing
/// is due earlier.
Due due_at(StallMonitor& stall, double from, double seconds) {
  for (double time = from; time < seconds - 0.5; time += 0.5)
    EXPECT_EQ(stall.take_due(at(time)), Due::kNothing) << time;
  return stall.take_due(at(seconds));
}

TEST(StallMonitor, WarningsComeAfterTwiceAsLongEachAndOnce) {
  StallMonitor stall = monitor(10, 0);
  EXPECT_EQ(due_at(stall, 0, 9.9), Due::kNothing);
  EXPECT_EQ(stall.take_due(at(10)), Due::kWarning);
  EXPECT_EQ(stall.take_due(at(10)), Due::kNothing);
  EXPECT_EQ(due_at(stall, 10, 29.9), Due::kNothing);
  EXPECT_EQ(stall.take_due(at(30)), Due::kWarning);
  // A late poll postpones the following warnings.
  EXPECT_EQ(due_at(stall, 30, 69.5), Due::kNothing);
  EXPECT_EQ(stall.take_due(at(70.4)), Due::kWarning);
  EXPECT_EQ(due_at(stall, 70.4, 150.3), Due::kNothing);
  EXPECT_EQ(stall.take_due(at(150.4)), Due::kWarning);
}

TEST(StallMonitor, TheErrorIsDueFromItsTimeOnAndGoesBeforeAWarning) {
  StallMonitor stall = monitor(10, 10);
  EXPECT_EQ(due_at(stall, 0, 9.9), Due::kNothing);
  EXPECT_EQ(stall.take_due(at(10)), Due::kError);
  EXPECT_EQ(stall.take_due(at(11)), Due::kError);
}

TEST(StallMonitor, WithoutATimeoutThereIsNoError) {
  StallMonitor stall = monitor(1, 0);
  EXPECT_EQ(due_at(stall, 0, 1), Due::kWarning);
  EXPECT_EQ(due_at(stall, 1, 3), Due::kWarning);
  EXPECT_EQ(due_at(stall, 3, 6.9), Due::kNothing);
}

TEST(StallMonitor, AnotherWaitStartsAnewAndTheSameGoesOn) {
  StallMonitor stall = monitor(10, 100);
  EXPECT_EQ(due_at(stall, 0, 10), Due::kWarning);
  stall.watch(at(0));
  EXPECT_EQ(due_at(stall, 10, 20), Due::kNothing) << "the second warning is due after 30 s";
  stall.watch(at(15));
  EXPECT_DOUBLE_EQ(stall.waited(at(20.5)).count(), 5.5);
  EXPECT_EQ(due_at(stall, 20.5, 24), Due::kNothing);
  EXPECT_EQ(stall.take_due(at(25)), Due::kWarning);
  EXPECT_EQ(due_at(stall, 25, 45), Due::kWarning);
  EXPECT_EQ(due_at(stall, 45, 85), Due::kWarning);
  EXPECT_EQ(due_at(stall, 85, 114.9), Due::kNothing);
  EXPECT_EQ(stall.take_due(at(115)), Due::kError);
}

TEST(StallMonitor, SaysWhenSomethingIsNear) {
  StallMonitor stall = monitor(10, 32);
  EXPECT_EQ(due_at(stall, 0, 8.9), Due::kNothing);
  EXPECT_FALSE(stall.is_near(at(8.9)));
  EXPECT_TRUE(stall.is_near(at(9.1)));
  ASSERT_EQ(due_at(stall, 9, 10), Due::kWarning);
  EXPECT_FALSE(stall.is_near(at(10)));
  ASSERT_EQ(due_at(stall, 10, 29.1), Due::kNothing);
  EXPECT_TRUE(stall.is_near(at(29.1)));
  ASSERT_EQ(stall.take_due(at(30)), Due::kWarning);
  EXPECT_FALSE(stall.is_near(at(30.9)));
  ASSERT_EQ(stall.take_due(at(30.9)), Due::kNothing);
  EXPECT_TRUE(stall.is_near(at(31.1))) << "the error comes before the next warning";
  // For short intervals, "near" is the last quarter of the interval.
  StallMonitor quick = monitor(1, 0);
  EXPECT_FALSE(quick.is_near(at(0.7)));
  EXPECT_TRUE(quick.is_near(at(0.8)));
}

TEST(StallMonitor, TimeInWhichTheProcessWasStoppedDoesNotCount) {
  StallMonitor stall = monitor(2, 5);
  EXPECT_EQ(due_at(stall, 0, 1.5), Due::kNothing);
  // Stopped from 1.5 to 101.5: of that a waiter's own sleep counts.
  EXPECT_NEAR(stall.waited(at(101.5)).count(), 1.6, 1e-6);
  EXPECT_EQ(stall.take_due(at(101.5)), Due::kNothing);
  EXPECT_NEAR(stall.waited(at(101.5)).count(), 1.6, 1e-6);
  EXPECT_EQ(stall.take_due(at(102)), Due::kWarning);
  EXPECT_EQ(due_at(stall, 102, 104.8), Due::kNothing);
  EXPECT_EQ(stall.take_due(at(105)), Due::kError);
}

TEST(StallMonitor, TimeInWhichNobodyWasToLookCounts) {
  StallMonitor stall = monitor(2, 5);
  EXPECT_EQ(due_at(stall, 0, 0.5), Due::kNothing);
  stall.count_gap(at(1.9));
  EXPECT_EQ(stall.take_due(at(1.9)), Due::kNothing);
  stall.count_gap(at(3.4));
  EXPECT_EQ(stall.take_due(at(3.4)), Due::kWarning);
  // Stopped from then on.
  EXPECT_EQ(stall.take_due(at(63.4)), Due::kNothing);
  stall.count_gap(at(64.9));
  EXPECT_NEAR(stall.waited(at(64.9)).count(), 5.0, 1e-6);
  EXPECT_EQ(stall.take_due(at(65)), Due::kError);
}

TEST(StallMonitor, AStopCountsForNoWaitThatBeganBeforeIt) {
  StallMonitor stall = monitor(100, 0);
  EXPECT_EQ(due_at(stall, 0, 5), Due::kNothing);
  EXPECT_EQ(stall.take_due(at(35)), Due::kNothing);
  stall.watch(at(3));
  EXPECT_NEAR(stall.waited(at(36)).count(), 33 - 29.9, 1e-6);
  stall.watch(at(35.5));
  EXPECT_NEAR(stall.waited(at(36)).count(), 0.5, 1e-6) << "it began after the stop";
  stall.watch(at(200));
  EXPECT_NEAR(stall.waited(at(200.5)).count(), 0.5, 1e-6) << "nothing was watched before it";
}

TEST(Deadline, TimeInWhichTheProcessWasStoppedDoesNotCount) {
  const auto start = Clock::now();
  const Deadline deadline = Deadline::after(Seconds(3));
  const auto passed = [&](double seconds) { return deadline.passed(start + (at(seconds) - at(0))); };
  EXPECT_FALSE(passed(0.9));
  EXPECT_FALSE(passed(60.9));
  EXPECT_FALSE(passed(61.8));
  EXPECT_FALSE(passed(62.7));
  EXPECT_TRUE(passed(63.6));
  EXPECT_FALSE(Deadline::never().passed(start + (at(1e6) - at(0))));
}

TEST(StallMonitor, ChecksByLoggingAndThrowing) {
  configure_log(LogLevel::kWarning, "rank 0 host");
  StallMonitor stall = monitor(10, 20);
  double from = 0;
  const auto logged = [&](double seconds) {
    testing::internal::CaptureStderr();
    for (double time = from; time < seconds; time += 0.5) stall.check([] { return "too early"; }, at(time));
    stall.check([] { return "rank 1 waits for rank 2"; }, at(seconds));
    from = seconds;
    return testing::internal::GetCapturedStderr();
  };
  EXPECT_EQ(logged(9), "");
  EXPECT_THAT(logged(10), testing::HasSubstr("rank 1 waits for rank 2\n"));
  EXPECT_EQ(logged(19.5), "");
  try {
    stall.check([] { return "rank 1 waits for rank 2"; }, at(20));
    FAIL() << "the deadline has passed";
  } catch (const Timeout& error) {
    EXPECT_STREQ(error.message(), "the deadline of 20 s (FARANDOLE_TIMEOUT) has passed: rank 1 waits for rank 2");
  }
  const StallMonitor own(Seconds(10), Seconds(5), at(0), "the timeout of the communicator");
  EXPECT_EQ(own.describe_error("x"), "the deadline of 5 s (the timeout of the communicator) has passed: x");
}

}  // namespace
}  // namespace farandole
