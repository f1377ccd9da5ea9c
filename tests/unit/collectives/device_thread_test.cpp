// SPDX-License-Identifier: Apache-2.0
// The thread that makes a device's blocking calls: order of its work, and errors.
#include "device/device_thread.h"

#include <gtest/gtest.h>

#include <atomic>
#include <latch>

#include "message_of.h"

namespace farandole {
namespace {

TEST(DeviceThread, RunsWorkInOrderAndReportsExceptions) {
  std::atomic<int> rings{0};
  int value = 1;
  {
    DeviceThread thread([&rings] { ++rings; });
    thread.run([&value] { value += 1; }, [&value] { value *= 10; });
    thread.run([&value] { value += 3; });
    const auto check_nothing = [] {};
    EXPECT_EQ(
        test::message_of<DeviceError>([&] { thread.run_now([] { throw DeviceError("no device"); }, check_nothing); }),
        "no device");
    EXPECT_EQ(value, 23);
  }
  EXPECT_EQ(rings, 3);
}

/// Memory that a fault has given back to its owner is not enqueued.
TEST(DeviceThread, AbandonedThreadDropsPreparedWork) {
  std::latch is_preparing(1), may_go_on(1), is_at_the_end(1);
  std::atomic<bool> did_work{false};
  DeviceThread thread([] {});
  thread.run(
      [&] {
        is_preparing.count_down();
        may_go_on.wait();
      },
      [&] { did_work = true; });
  is_preparing.wait();
  thread.abandon();
  may_go_on.count_down();
  thread.run([&] { is_at_the_end.count_down(); });
  is_at_the_end.wait();
  EXPECT_FALSE(did_work);
}

}  // namespace
}  // namespace farandole
