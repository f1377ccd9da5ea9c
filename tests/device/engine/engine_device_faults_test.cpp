// SPDX-License-Identifier: Apache-2.0
// Devices and ranks that fail while the engine runs. Each test ends the job, so each runs in separate processes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <list>
#include <optional>
#include <string>

#include "../broken_device.h"
#include "device_client.h"

namespace farandole::test {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;

/// Requests with tensors that live until the end of a test: a device that hangs may use them until then.
class Requests {
 public:
  /// Submits a tensor and waits. Returns the error's text; empty if there was none.
  std::string run(const std::string& name, bool on_host = false) {
    DeviceTensors& one = tensors_.emplace_back();
    one.push_back(tensor_of(1000, DType::kF32));
    one.front()->on_host = on_host;
    if (std::string refused = submit({.name = name}, one); !refused.empty()) return refused;
    one.front()->wait();
    return one.front()->error() ? one.front()->error()->second : "";
  }
  /// The text of the first request that fails. @param on_host  so that the test need not copy to a device that hangs
  std::string text_of_fault(bool on_host = false) {
    for (;;) {
      if (std::string text = run("on", on_host); !text.empty()) return text;
    }
  }

 private:
  std::list<DeviceTensors> tensors_;
};

TEST(EngineDeviceFaults, AKernelThatFailsFailsTheRequest) {
  Requests requests;
  for (int i = 0; i < 2; ++i) ASSERT_EQ(requests.run("first"), "");
  if (engine_rank().rank == 0) {
    ASSERT_TRUE(inject_into_double("ncclAllReduce", 1, 1)) << "this test needs the double";
  }
  EXPECT_THAT(requests.text_of_fault(), AllOf(HasSubstr("rank 0 "), HasSubstr("ncclAllReduce")));
}

/// FARANDOLE_DEVICE_FAULT is raise. The stream hangs after `done` was called; requests that come later say so.
TEST(EngineDeviceFaults, AHangAfterDoneFailsLaterRequests) {
  Requests requests;
  for (int i = 0; i < 2; ++i) ASSERT_EQ(requests.run("first"), "");
  DeviceTensors late;
  late.push_back(tensor_of(1000, DType::kF32));
  const StreamView stream = engine_rank().device->make_stream();
  std::optional<StuckStream> stuck;
  late.front()->stream = stream;
  late.front()->before_input = [&] {
    if (engine_rank().rank == 0) stuck.emplace(*engine_rank().device, stream);
  };
  must_submit({.name = "late"}, late);
  late.front()->wait();
  EXPECT_FALSE(late.front()->error().has_value()) << "done means that it is enqueued";
  EXPECT_THAT(requests.text_of_fault(/*on_host=*/true),
              AllOf(HasSubstr("allreduce of 1000 f32"), HasSubstr("FARANDOLE_TIMEOUT")));
}

TEST(EngineDeviceFaults, AKilledRankFailsTheRequestsOfTheOthers) {
  Requests requests;
  const bool dies = engine_rank().rank == engine_rank().size - 1;
  // The others may still be in the last of these when it dies.
  for (int i = 0; dies && i < 3; ++i) ASSERT_EQ(requests.run("on"), "");
  if (dies) std::raise(SIGKILL);
  EXPECT_THAT(requests.text_of_fault(), HasSubstr("rank " + std::to_string(engine_rank().size - 1) + " "));
}

}  // namespace
}  // namespace farandole::test
