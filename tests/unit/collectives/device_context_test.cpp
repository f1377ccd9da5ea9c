// SPDX-License-Identifier: Apache-2.0
#include "device/device_context.h"

#include <gtest/gtest.h>

#include "farandole/core/error.h"
#include "message_of.h"

namespace farandole::test {
namespace {

TEST(DeviceOfRank, IsItsLocalRankOrWhatTheSettingSays) {
  EXPECT_EQ(device_of_rank("auto", 1, 2, 4), 1);
  EXPECT_EQ(device_of_rank("auto", 3, 4, 1), 0);
  EXPECT_EQ(device_of_rank("2", 0, 4, 4), 2);
  EXPECT_EQ(device_of_rank("0,0,3,1", 2, 4, 4), 3);
  EXPECT_NE(message_of<InvalidArgument>([] { device_of_rank("auto", 2, 3, 2); }).find("3 ranks and 2 devices"),
            std::string::npos);
  EXPECT_NE(message_of<InvalidArgument>([] { device_of_rank("5", 0, 1, 2); }).find("this process sees 2"),
            std::string::npos);
  EXPECT_THROW(device_of_rank("0,1", 2, 3, 4), InvalidArgument);
  EXPECT_THROW(device_of_rank("first", 0, 1, 4), InvalidArgument);
  EXPECT_THROW(device_of_rank("-1", 0, 1, 4), InvalidArgument);
}

}  // namespace
}  // namespace farandole::test
