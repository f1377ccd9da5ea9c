// SPDX-License-Identifier: Apache-2.0
#include "farandole/internal/device_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <string>
#include <vector>

#include "farandole/core/error.h"
#include "farandole/core/settings.h"
#include "message_of.h"

namespace farandole {
namespace {

using test::message_of;
using testing::AllOf;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

TEST(DeviceChoice, AutomaticChoiceGivesEachRankItsOwnDevice) {
  EXPECT_EQ(device_of_rank("auto", 0, 4, 4), 0);
  EXPECT_EQ(device_of_rank("auto", 3, 4, 4), 3);
  EXPECT_EQ(device_of_rank("auto", 3, 4, 1), 0) << "the launcher shows each rank its own only";
  EXPECT_THAT(message_of<InvalidArgument>([] { device_of_rank("auto", 2, 3, 2); }), HasSubstr("3 ranks and 2 devices"));
}

TEST(DeviceChoice, ProcessesDivideAllDevicesEvenly) {
  const auto counts = [](int devices, int processes) {
    std::vector<int> result;
    int next = 0;
    for (int index = 0; index < processes; ++index) {
      const DeviceShare share = device_share(devices, processes, index);
      EXPECT_EQ(share.first, next) << devices << " devices, process " << index << " of " << processes;
      result.push_back(share.count);
      next += share.count;
    }
    EXPECT_EQ(next, devices);
    return result;
  };
  EXPECT_THAT(counts(8, 1), ElementsAre(8));
  EXPECT_THAT(counts(8, 8), Each(1));
  EXPECT_THAT(counts(8, 3), ElementsAre(2, 3, 3));
  EXPECT_THAT(counts(2, 4), ElementsAre(0, 1, 0, 1));
  EXPECT_THAT(counts(0, 2), Each(0));
}

TEST(DeviceChoice, NumbersAndListsAreTaken) {
  EXPECT_EQ(device_of_rank("2", 5, 6, 4), 2);
  EXPECT_EQ(device_of_rank("2,0,1", 0, 3, 4), 2);
  EXPECT_EQ(device_of_rank("2,0,1", 2, 3, 4), 1);
  EXPECT_THAT(message_of<InvalidArgument>([] { device_of_rank("2,0,1", 3, 4, 4); }),
              AllOf(HasSubstr("FARANDOLE_DEVICE is '2,0,1'"), HasSubstr("local rank 3")));
  EXPECT_THAT(message_of<InvalidArgument>([] { device_of_rank("5", 0, 1, 2); }), HasSubstr("this process sees 2"));
}

TEST(DeviceChoice, OtherTextsAreRefusedWithTheSettings) {
  for (const char* wrong : {"automatic", "1,", ",1", "1,,2", "-1", "1 2", "0x1", "70000", "1.5"}) {
    const std::array variables{std::string("FARANDOLE_DEVICE=") + wrong};
    EXPECT_THAT(message_of<InvalidArgument>([&] { Settings::parse(variables); }),
                AllOf(HasSubstr("FARANDOLE_DEVICE is '" + std::string(wrong) + "'"), HasSubstr("0,2,1")))
        << wrong;
  }
  const std::array variables{std::string("FARANDOLE_DEVICE=3,1")};
  EXPECT_EQ(Settings::parse(variables).devices.ordinals, "3,1");
}

TEST(DeviceChoice, AProgramsChoiceIsChecked) {
  EXPECT_EQ(checked_device(1, 0, 2), 1);
  EXPECT_THAT(message_of<InvalidArgument>([] { checked_device(2, 3, 2); }),
              HasSubstr("WorldOptions::devices gives replica 3 device 2, but this process sees 2: 0 … 1"));
  EXPECT_THAT(message_of<InvalidArgument>([] { checked_device(-1, 0, 2); }), HasSubstr("sees 2"));
}

}  // namespace
}  // namespace farandole
