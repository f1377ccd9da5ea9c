// SPDX-License-Identifier: Apache-2.0
// The whole plug-in, and its messages about the libraries that it finds. Each test runs in its own process, because a
// loaded library stays loaded.
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "farandole/core/settings.h"
#include "farandole/sdk/device.h"

namespace farandole {
namespace {

using testing::AllOf;
using testing::ExitedWithCode;
using testing::HasSubstr;
using testing::Not;

class CudaPluginTest : public testing::Test {
 protected:
  void SetUp() override {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    settings_.process.plugin_directory = FARANDOLE_TEST_PLUGIN_DIRECTORY;
    settings_.devices.cuda_library = FARANDOLE_FAKE_DRIVER;
    settings_.devices.nccl_library = FARANDOLE_FAKE_NCCL;
  }

  /// Prints all that is found and ends the process.
  [[noreturn]] void tell() const {
    const DeviceAvailability& found = device_runtime(settings_);
    if (found.runtime == nullptr) {
      std::fprintf(stderr, "reason: %s\n", found.reason.c_str());
    } else {
      DeviceRuntime& devices = *found.runtime;
      std::fprintf(stderr, "%s: %s, first %s\n", std::string(devices.name()).c_str(), devices.version().c_str(),
                   devices.devices().at(0).name.c_str());
      std::fprintf(stderr, "missing: %s\n", devices.collectives_missing().c_str());
      for (const std::string& warning : devices.warnings()) std::fprintf(stderr, "warning: %s\n", warning.c_str());
    }
    _exit(0);
  }
  [[noreturn]] void tell_with(const char* variable, const char* value) const {
    setenv(variable, value, 1);
    tell();
  }

  Settings settings_;
};

TEST_F(CudaPluginTest, ReportsAMissingDriver) {
  if (dlopen("libcuda.so.1", RTLD_LAZY) != nullptr) GTEST_SKIP() << "this machine has one";
  settings_.devices.cuda_library.clear();
  EXPECT_EXIT(tell(), ExitedWithCode(0),
              HasSubstr("reason: no NVIDIA driver: libcuda.so.1: cannot open shared object file"));
}

TEST_F(CudaPluginTest, ReportsALibraryThatIsNoDriver) {
  settings_.devices.cuda_library = "/nowhere/libcuda.so.1";
  EXPECT_EXIT(tell(), ExitedWithCode(0),
              HasSubstr("reason: FARANDOLE_CUDA_LIBRARY: /nowhere/libcuda.so.1: cannot open"));
  settings_.devices.cuda_library = "libm.so.6";
  EXPECT_EXIT(tell(), ExitedWithCode(0), HasSubstr("reason: libm.so.6 is no CUDA driver: it has no cuInit"));
  settings_.devices.cuda_library = FARANDOLE_SHORT_DRIVER;
  EXPECT_EXIT(tell(), ExitedWithCode(0),
              AllOf(HasSubstr(FARANDOLE_SHORT_DRIVER), HasSubstr("CUDA 13.0, has no cuDeviceGet;")));
}

TEST_F(CudaPluginTest, ReportsAnUnsuitableDriver) {
  EXPECT_EXIT(tell_with("FAKE_CUDA_VERSION", "11080"), ExitedWithCode(0),
              AllOf(HasSubstr("driver is for CUDA 11.8"), HasSubstr("need CUDA 12.0 (driver 525 or newer)")));
  EXPECT_EXIT(tell_with("FAKE_CUDA_INIT", "802"), ExitedWithCode(0),
              AllOf(HasSubstr("reason: cuInit failed: CUDA_ERROR_OF_A_FAKE (802): words of a fake"),
                    HasSubstr("nvidia-fabricmanager")));
  EXPECT_EXIT(tell_with("FAKE_CUDA_DEVICES", "0"), ExitedWithCode(0), HasSubstr("reason: CUDA sees no device"));
  EXPECT_EXIT(tell_with("FAKE_CUDA_NAME", "999"), ExitedWithCode(0),
              HasSubstr("reason: cuDeviceGetName failed on CUDA device 0: CUDA_ERROR_OF_A_FAKE (999)"));
}

TEST_F(CudaPluginTest, FindsDevices) {
  EXPECT_EXIT(tell(), ExitedWithCode(0),
              AllOf(HasSubstr("CUDA: driver (CUDA 13.0), NCCL 2.28.9, first Fake GPU\nmissing: \n"),
                    Not(HasSubstr("warning"))));
  EXPECT_EXIT(tell_with("FAKE_CUDA_VERSION", "12060"), ExitedWithCode(0), HasSubstr("CUDA: driver (CUDA 12.6), NCCL"));
}

TEST_F(CudaPluginTest, ReportsProblemsOfNccl) {
  EXPECT_EXIT(tell_with("FAKE_NCCL_VERSION", "21805"), ExitedWithCode(0),
              AllOf(HasSubstr("NCCL 2.18.5, first Fake GPU"), HasSubstr("missing: NCCL 2.18.5 (" FARANDOLE_FAKE_NCCL),
                    HasSubstr("too old: 2.19.0 or newer")));
  EXPECT_EXIT(tell_with("FAKE_NCCL_VERSION", "23007"), ExitedWithCode(0),
              AllOf(HasSubstr("missing: \n"), HasSubstr("warning: NCCL 2.30.7: "), HasSubstr("2.31.2 or newer")));
  settings_.devices.nccl_library = "libm.so.6";
  EXPECT_EXIT(tell(), ExitedWithCode(0),
              AllOf(HasSubstr("no NCCL, first"), HasSubstr("missing: libm.so.6 is no NCCL")));
  settings_.devices.nccl_library = "/nowhere/libnccl.so.2";
  EXPECT_EXIT(tell(), ExitedWithCode(0),
              AllOf(HasSubstr("no NCCL, first"),
                    HasSubstr("missing: FARANDOLE_NCCL_LIBRARY: /nowhere/libnccl.so.2: cannot open")));
}

TEST_F(CudaPluginTest, PrefersTheNcclThatIsLoaded) {
  settings_.devices.nccl_library.clear();
  const auto tell_after_loading = [this] {
    if (dlopen(FARANDOLE_FAKE_NCCL, RTLD_NOW | RTLD_LOCAL) == nullptr) _exit(1);
    tell_with("FAKE_NCCL_VERSION", "22345");
  };
  EXPECT_EXIT(tell_after_loading(), ExitedWithCode(0), AllOf(HasSubstr("NCCL 2.23.45"), HasSubstr("missing: \n")));
}

#ifndef FARANDOLE_HAS_CUDA_KERNELS
TEST_F(CudaPluginTest, ReportsABuildWithoutKernels) {
  settings_.process.plugin_directory.clear();
  EXPECT_EXIT(tell(), ExitedWithCode(0),
              AllOf(HasSubstr("reason: a driver for CUDA 13.0 is there"), HasSubstr("no kernels")));
}
#endif

}  // namespace
}  // namespace farandole
