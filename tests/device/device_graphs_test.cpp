// SPDX-License-Identifier: Apache-2.0
// Direct calls that are captured into graphs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "direct_communicator.h"
#include "double_calls.h"
#include "farandole/core/error.h"
#include "graph_capture.h"
#include "groups.h"
#include "message_of.h"
#include "on_device.h"

namespace farandole::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

/// A training step: the gradient is scaled, reduced, and added to the weights.
class Step {
 public:
  Step(Communicator& ranks, Communicator& caller, StreamView stream, const char* algorithm, ReduceOp op)
      : ranks_(ranks), caller_(caller), stream_(stream), algorithm_(algorithm), op_(op) {
    for (std::size_t i = 0; i < kCount; ++i) start_[i] = 0.1F * static_cast<float>(i % 97 + ranks.rank());
  }
  void enqueue() {
    float* const gradient = gradient_.as<float>();
    const DeviceTask scale = DeviceTask::scale(DType::kF32, gradient, gradient, kCount, 0.7);
    device_.launch({&scale, 1}, stream_);
    caller_.allreduce(gradient_.view(), op_, {.prescale = 0.5, .algorithm = algorithm_, .stream = stream_});
    const DeviceTask add{DeviceTask::Kind::kReduce, DType::kF32,          DType::kF32,           ReduceOp::kSum,
                         weights_.view().data,      weights_.view().data, gradient_.view().data, kCount};
    device_.launch({&add, 1}, stream_);
  }
  /// Bits of the weights, of the gradient and of another reduced vector after 20 steps with other calls between them.
  std::vector<std::vector<float>> after_20(const std::function<void()>& run_step) {
    copy_now(device_, gradient_.view().data, start_.data(), kCount * sizeof(float));
    copy_now(device_, weights_.view().data, start_.data(), kCount * sizeof(float));
    copy_now(device_, other_.view().data, start_.data(), kOthers * sizeof(float));
    for (int step = 0; step < 20; ++step) {
      run_step();
      if (step % 3 == 0) {
        caller_.allreduce(other_.view(), ReduceOp::kAverage, {.algorithm = algorithm_, .stream = stream_});
      }
    }
    device_.synchronize(stream_);
    return {to_vector(ranks_, weights_), to_vector(ranks_, gradient_), to_vector(ranks_, other_)};
  }

 private:
  static constexpr std::size_t kCount = 3001, kOthers = 500;
  Communicator &ranks_, &caller_;
  const StreamView stream_;
  const char* const algorithm_;
  const ReduceOp op_;
  Device& device_ = device_of(ranks_);
  std::vector<float> start_ = std::vector<float>(kCount);
  Buffer gradient_ = to_device(ranks_, start_), weights_ = to_device(ranks_, start_);
  Buffer other_ = ranks_.allocate(kOthers, DType::kF32, ranks_.device());
};

TEST(DirectCalls, ReplaysOfAGraphGiveTheBitsOfTheCalls) {
  for_each_device_group({2, 3}, [](Communicator& ranks) {
    const StreamView stream = device_of(ranks).make_stream();
    for (const char* const algorithm : {"vendor", "ring"}) {
      for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kAverage}) {
        // Not one for all: between hosts NCCL 2.28 confuses the order of calls that follow the end of a graph.
        Communicator caller = direct(ranks);
        Step step(ranks, caller, stream, algorithm, op);
        const auto expected = step.after_20([&] { step.enqueue(); });
        StreamCapture capture(device_of(ranks), stream);
        step.enqueue();
        const auto graph = capture.end();
        ASSERT_EQ(step.after_20([&] { graph->launch(stream); }), expected) << algorithm;
        ASSERT_EQ(step.after_20([&] { step.enqueue(); }), expected) << algorithm << ", calls after the graph";
      }
    }
  });
}

/// One call outside of the graph is enough, also for the first schedule, which connects the ranks.
TEST(DirectCalls, ACallThatHasRunOnceCanBeCaptured) {
  for_each_device_group({2, 3}, [](Communicator& ranks) {
    const StreamView stream = device_of(ranks).make_stream();
    for (const char* const algorithm : {"ring", "vendor"}) {
      Communicator caller = direct(ranks);
      Buffer values = to_device(ranks, std::vector<float>(1000, 1));
      const auto sum = [&] {
        caller.allreduce(values.view(), ReduceOp::kSum, {.algorithm = algorithm, .stream = stream});
      };
      sum();
      ranks.barrier();
      // The queue records an event at the end of a call.
      const unsigned long records = calls_of("cuEventRecord");
      ranks.barrier();
      StreamCapture capture(device_of(ranks), stream);
      sum();
      const auto graph = capture.end();
      ranks.barrier();
      EXPECT_EQ(calls_of("cuEventRecord"), records) << algorithm << " went through the queue";
      ranks.barrier();
      graph->launch(stream);
      device_of(ranks).synchronize(stream);
      const auto size = static_cast<float>(ranks.size());
      ASSERT_EQ(to_vector(ranks, values), std::vector<float>(1000, size * size)) << algorithm;
    }
  });
}

/// More captured calls than one slab of CapturedCalls has words for.
TEST(DirectCalls, GraphsOfManyCallsGiveTheirMemoryBack) {
  for_each_device_group({2}, [](Communicator& ranks) {
    const StreamView stream = device_of(ranks).make_stream();
    Buffer values = to_device(ranks, values_of(ranks, 10, 1));
    unsigned long allocations = 0;
    for (int repetition = 0; repetition < 2; ++repetition) {
      Communicator caller = direct(ranks);
      const auto max = [&] {
        caller.allreduce(values.view(), ReduceOp::kMax, {.algorithm = "ring", .stream = stream});
      };
      max();
      StreamCapture capture(device_of(ranks), stream);
      for (int call = 0; call < 1100; ++call) max();
      const auto graph = capture.end();
      graph->launch(stream);
      device_of(ranks).synchronize(stream);
      ASSERT_EQ(to_vector(ranks, values)[0], static_cast<float>(ranks.size()));
      ranks.barrier();
      if (repetition == 0) allocations = calls_of("cuMemHostAlloc");
      EXPECT_EQ(calls_of("cuMemHostAlloc"), allocations) << "the memory of the communicator that has ended is in use";
      ranks.barrier();
    }
  });
}

/// The driver refuses to write words from graphs.
TEST(DirectCalls, CanBeCapturedUnwatched) {
  auto* const inject = find_in_driver<decltype(fake_device_inject)>("fake_device_inject");
  if (inject == nullptr) GTEST_SKIP() << "needs the double";
  auto* const restore = find_in_driver<decltype(fake_device_restore)>("fake_device_restore");
  for_each_device_group({2}, [&](Communicator& ranks) {
    Communicator caller = direct(ranks);
    const StreamView stream = device_of(ranks).make_stream();
    Buffer values = to_device(ranks, std::vector<float>(1000, 1));
    const auto sum = [&] { caller.allreduce(values.view(), ReduceOp::kSum, {.algorithm = "ring", .stream = stream}); };
    const bool is_first_here = ranks.rank() == 0 || is_launched();  // on this process
    float expected = 1;
    int warnings = 1;                     // the first capture warns
    for (const int error : {801, 900}) {  // CUDA_ERROR_NOT_SUPPORTED, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED
      sum();
      device_of(ranks).synchronize(stream);
      ranks.barrier();
      if (is_first_here) {
        inject("cuStreamWriteValue32", 0, error);
        testing::internal::CaptureStderr();
      }
      ranks.barrier();
      StreamCapture capture(device_of(ranks), stream);
      sum();
      const auto graph = capture.end();
      ranks.barrier();
      if (is_first_here) {
        restore();
        const std::string text = testing::internal::GetCapturedStderr();
        EXPECT_EQ(text.find("replays of communicator 'direct'") != std::string::npos, warnings-- > 0) << text;
      }
      ranks.barrier();
      graph->launch(stream);
      device_of(ranks).synchronize(stream);
      expected *= static_cast<float>(ranks.size() * ranks.size());
      ASSERT_EQ(to_vector(ranks, values), std::vector<float>(1000, expected)) << error;
    }
  });
}

TEST(DirectCalls, ARefusedCallLeavesTheCaptureValid) {
  for_each_device_group({2}, [](Communicator& ranks) {
    Communicator caller = direct(ranks), fresh = direct(ranks, "fresh");
    Device& device = device_of(ranks);
    const StreamView stream = device.make_stream();
    Buffer values = to_device(ranks, std::vector<float>(1000, 1));
    Buffer integers = to_device(ranks, std::vector<std::int32_t>(1000, 7));
    caller.allreduce(values.view(), ReduceOp::kSum, {.stream = stream});
    caller.allreduce(integers.view(), ReduceOp::kAverage, {.stream = stream});
    device.synchronize(stream);
    StreamCapture capture(device, stream);
    const auto refusal = [&](Communicator& by, const BufferView& view, ReduceOp op, const char* algorithm) {
      return message_of<InvalidArgument>([&] { by.allreduce(view, op, {.algorithm = algorithm, .stream = stream}); });
    };
    EXPECT_THAT(refusal(caller, values.view(), ReduceOp::kSum, "ring"),
                AllOf(HasSubstr("captured into a graph"), HasSubstr("run it once before the capture")));
    EXPECT_THAT(refusal(caller, values.view(), ReduceOp::kMax, ""), HasSubstr("run it once before the capture"));
    EXPECT_THAT(refusal(fresh, values.view(), ReduceOp::kSum, ""), HasSubstr("run it once before the capture"));
    EXPECT_THAT(refusal(caller, integers.view(), ReduceOp::kAverage, ""),
                AllOf(HasSubstr("captured into a graph"), HasSubstr("call it outside of the graph")));
    caller.allreduce(values.view(), ReduceOp::kSum, {.stream = stream});
    const auto graph = capture.end();
    EXPECT_GE(graph->nodes(), 1U);
    graph->launch(stream);
    fresh.allreduce(values.view(), ReduceOp::kSum, {.stream = stream});
    device.synchronize(stream);
    const auto size = static_cast<float>(ranks.size());
    EXPECT_EQ(to_vector(ranks, values), std::vector<float>(1000, size * size * size));
  });
}

}  // namespace
}  // namespace farandole::test
