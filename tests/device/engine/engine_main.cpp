// SPDX-License-Identifier: Apache-2.0
// The main function of the tests of the engine on devices. All tests of a process use one engine.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "../on_device.h"
#include "device_client.h"
#include "sanitizers.h"
#include "watchdog.h"

namespace {

using farandole::test::kSlowness;

/// Names the test that hangs; ends the job with the first failure, so that no peer waits for this rank.
class Listener final : public testing::EmptyTestEventListener {
 public:
  void OnTestStart(const testing::TestInfo& info) override {
    watchdog_.restart(std::string(info.test_suite_name()) + "." + info.name());
  }
  void OnTestEnd(const testing::TestInfo& info) override {
    if (info.result()->Failed()) farandole_abort((std::string(info.name()) + " has failed").c_str());
  }

 private:
  farandole::test::Watchdog watchdog_{std::chrono::seconds(120 * kSlowness)};
};

}  // namespace

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  setenv("FARANDOLE_TIMEOUT", std::to_string(60 * kSlowness).c_str(), /*overwrite=*/0);
  if (const std::string reason = farandole::test::why_no_device_collectives(); !reason.empty()) {
    std::printf("skipped: %s\n", reason.c_str());
    return 77;
  }
  GTEST_FLAG_SET(fail_fast, true);
  testing::UnitTest::GetInstance()->listeners().Append(new Listener);         // GoogleTest owns it
  testing::AddGlobalTestEnvironment(new farandole::test::EngineEnvironment);  // GoogleTest owns it
  return RUN_ALL_TESTS();
}
