// SPDX-License-Identifier: Apache-2.0
// Loading of the plug-in for devices. Each test runs in its own process, because a loaded plug-in stays loaded.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "farandole/core/settings.h"
#include "farandole/sdk/backend.h"
#include "farandole/sdk/device.h"

namespace farandole {
namespace {

using testing::AllOf;
using testing::ExitedWithCode;
using testing::HasSubstr;

class DeviceRuntimeTest : public testing::Test {
 protected:
  void SetUp() override {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    unsetenv("FAKE_DEVICES");
    settings_.process.plugin_directory = FARANDOLE_ACCEPTING_PLUGIN_DIRECTORY;
  }

  static std::string text_of(const DeviceAvailability& devices) {
    return devices.runtime != nullptr ? "found " + devices.runtime->version() : "reason: " + devices.reason;
  }
  void print(const char* who) const {
    std::fprintf(stderr, "%s: %s\n", who, text_of(device_runtime(settings_)).c_str());
  }
  [[noreturn]] void tell(const char* found = nullptr) const {
    if (found != nullptr) setenv("FAKE_DEVICES", found, 1);
    print("here");
    _exit(0);
  }
  /// Prints the devices that a forked child finds.
  int print_in_child() const {
    const pid_t child = fork();
    if (child == 0) {
      print("child");
      _exit(0);
    }
    int status = 1;
    waitpid(child, &status, 0);
    return status;
  }
  [[noreturn]] void tell_and_fork(const char* found) const {
    setenv("FAKE_DEVICES", found, 1);
    print("here");
    _exit(print_in_child());
  }

  Settings settings_;
};

TEST_F(DeviceRuntimeTest, IsOffWhereTheUserSaysSo) {
  settings_.devices.cuda = "off";
  EXPECT_EXIT(tell("one"), ExitedWithCode(0), HasSubstr("here: reason: FARANDOLE_CUDA=off"));
}

TEST_F(DeviceRuntimeTest, PluginIsAvailableWhereItsFileIs) {
  EXPECT_EQ(available_device_plugins(settings_), std::vector<std::string>{"cuda"});
  settings_.devices.cuda = "off";
  EXPECT_EQ(available_device_plugins(settings_), std::vector<std::string>{"cuda"}) << "installed, though switched off";
}

TEST_F(DeviceRuntimeTest, HandsThePathsOfLibrariesOn) {
  settings_.devices.cuda_library = "/a/libcuda.so";
  settings_.devices.nccl_library = "/b/libnccl.so";
  EXPECT_EXIT(tell("one"), ExitedWithCode(0),
              HasSubstr("here: found one, libraries '/a/libcuda.so' and '/b/libnccl.so'"));
}

TEST_F(DeviceRuntimeTest, ReportsThePluginsReason) {
  EXPECT_EXIT(tell("none"), ExitedWithCode(0), HasSubstr("here: reason: the fake has found none"));
  EXPECT_EXIT(tell(), ExitedWithCode(0), AllOf(HasSubstr("its entry function returned null"), HasSubstr(build_id())));
}

TEST_F(DeviceRuntimeTest, NamesBothBuildsWhenThePluginHasOtherHeaders) {
  settings_.process.plugin_directory = FARANDOLE_REFUSING_PLUGIN_DIRECTORY;
  EXPECT_EXIT(tell("one"), ExitedWithCode(0),
              AllOf(HasSubstr("here: reason: plug-in cuda"), HasSubstr("was built with another Farandole"),
                    HasSubstr(build_id()), HasSubstr(FARANDOLE_REFUSING_PLUGIN_DIRECTORY)));
}

TEST_F(DeviceRuntimeTest, SaysWhyThePluginCannotBeLoaded) {
  const std::filesystem::path directory =
      std::filesystem::path(testing::TempDir()) / ("farandole-device-test-" + std::to_string(getpid()));
  std::filesystem::create_directories(directory);
  std::ofstream(directory / "libfarandole_cuda.so") << "no library";
  settings_.process.plugin_directory = directory.string();
  EXPECT_EXIT(tell("one"), ExitedWithCode(0),
              AllOf(HasSubstr("here: reason: plug-in cuda cannot be loaded"), HasSubstr("libfarandole_cuda.so")));
  std::filesystem::remove_all(directory);
}

TEST_F(DeviceRuntimeTest, IsLoadedOnceByAllThreads) {
  const auto check = [this] {
    setenv("FAKE_DEVICES", "one", 1);
    std::array<const DeviceAvailability*, 4> loaded{};
    std::vector<std::thread> threads;
    for (const DeviceAvailability*& each : loaded) {
      threads.emplace_back([this, &each] { each = &device_runtime(settings_); });
    }
    for (std::thread& thread : threads) thread.join();
    const bool once = std::all_of(loaded.begin(), loaded.end(), [&](const auto* each) { return each == loaded[0]; });
    settings_.process.plugin_directory = "/nowhere";
    _exit(once && loaded[0]->runtime != nullptr && &device_runtime(settings_) == loaded[0] ? 0 : 1);
  };
  EXPECT_EXIT(check(), ExitedWithCode(0), "");
}

TEST_F(DeviceRuntimeTest, ForkedChildrenDoNotUseTheirParents) {
  EXPECT_EXIT(tell_and_fork("one"), ExitedWithCode(0),
              AllOf(HasSubstr("here: found one"), HasSubstr("child: reason: forked from process"), HasSubstr("spawn")));
}

TEST_F(DeviceRuntimeTest, ForkedChildrenKnowWhyTheirParentHasNone) {
  EXPECT_EXIT(tell_and_fork("none"), ExitedWithCode(0), HasSubstr("child: reason: the fake has found none"));
}

TEST_F(DeviceRuntimeTest, ForkedChildrenLoadThePluginIfTheParentDidNot) {
  const auto fork_first = [this] {
    setenv("FAKE_DEVICES", "one", 1);
    _exit(print_in_child());
  };
  EXPECT_EXIT(fork_first(), ExitedWithCode(0), HasSubstr("child: found one"));
}

}  // namespace
}  // namespace farandole
