// SPDX-License-Identifier: Apache-2.0
// The main function of every test program: GoogleTest, with a watchdog and timeouts, so that no test hangs silently.
#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>

#include "groups.h"
#include "sanitizers.h"
#include "watchdog.h"

namespace {

class Listener final : public testing::EmptyTestEventListener {
 public:
  void OnTestStart(const testing::TestInfo& info) override {
    watchdog_.restart(std::string(info.test_suite_name()) + "." + info.name());
  }

 private:
  farandole::test::Watchdog watchdog_{std::chrono::seconds(240 * farandole::test::kSlowness)};
};

}  // namespace

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  // A collective that hangs raises Timeout and names ranks, operation and sequence number.
  setenv("FARANDOLE_TIMEOUT", std::to_string(100 * farandole::test::kSlowness).c_str(), /*overwrite=*/0);
  testing::UnitTest::GetInstance()->listeners().Append(new Listener);  // GoogleTest owns it
  // --replicas=N: under mpiexec, that many ranks per process.
  const std::string_view option = argc > 1 ? argv[1] : "";
  constexpr std::string_view kReplicas = "--replicas=";
  const int replicas = option.starts_with(kReplicas) ? std::atoi(option.substr(kReplicas.size()).data()) : 1;
  testing::AddGlobalTestEnvironment(new farandole::test::WorldEnvironment(replicas));  // GoogleTest owns it
  return RUN_ALL_TESTS();
}
