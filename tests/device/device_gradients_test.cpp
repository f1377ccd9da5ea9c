// SPDX-License-Identifier: Apache-2.0
// GradientAverager on device memory.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "broken_device.h"
#include "farandole/core/error.h"
#include "farandole/gradients/gradient_averager.h"
#include "graph_capture.h"
#include "message_of.h"
#include "on_device.h"

namespace farandole::test {
namespace {

using ::testing::Each;
using ::testing::FloatNear;

/// Gradients of several lengths: some follow each other in memory, some do not; buckets are small.
class Gradients {
 public:
  explicit Gradients(Communicator& ranks) : ranks_(ranks) {
    for (const std::size_t count : {1000, 3, 257, 4096, 1}) {
      owners_.push_back(ranks.allocate(count, DType::kF32, ranks.device()));
      spans_.push_back({owners_.back().view(), "gradient " + std::to_string(spans_.size())});
    }
    owners_.push_back(ranks.allocate(600, DType::kF32, ranks.device()));
    spans_.push_back({owners_.back().view().part(0, 200), "first half"});
    spans_.push_back({owners_.back().view().part(200, 400), "second half"});
  }
  const std::vector<GradientSpan>& spans() const { return spans_; }
  /// Enqueues what a backward pass would: the value of each element.
  void produce(std::size_t index, float value, StreamView stream) {
    const std::size_t count = spans_[index].values.count;
    host_.emplace_back(count, value);
    device_of(ranks_).copy(spans_[index].values.data, host_.back().data(), count * sizeof(float), stream);
  }
  std::vector<float> read(std::size_t index, StreamView stream) {
    std::vector<float> values(spans_[index].values.count);
    device_of(ranks_).copy(values.data(), spans_[index].values.data, values.size() * sizeof(float), stream);
    device_of(ranks_).synchronize(stream);
    return values;
  }

 private:
  Communicator& ranks_;
  std::vector<Buffer> owners_;
  std::vector<GradientSpan> spans_;
  std::vector<std::vector<float>> host_;  // stays until the test has synchronised
};

void train(Communicator& ranks, bool with_stream) {
  Gradients gradients(ranks);
  const StreamView stream = with_stream ? device_of(ranks).make_stream() : StreamView(nullptr, ranks.device());
  // Without a stream in the options, results are ready for every stream after `wait`.
  const StreamView reader = with_stream ? stream : device_of(ranks).make_stream();
  GradientOptions options;
  options.bucket_bytes = 2048;
  options.last_bucket_bytes = 512;
  if (with_stream) options.stream = stream;
  GradientAverager averager(ranks, gradients.spans(), options);
  EXPECT_GT(averager.bucket_count(), 2U);
  for (int training_step = 0; training_step < 3; ++training_step) {
    for (std::size_t i = gradients.spans().size(); i-- > 0;) {
      gradients.produce(i, static_cast<float>(ranks.rank() + training_step) + static_cast<float>(i), stream);
      averager.ready(i);
    }
    averager.wait();
    for (std::size_t i = 0; i < gradients.spans().size(); ++i) {
      const float mean =
          static_cast<float>(ranks.size() - 1) / 2 + static_cast<float>(training_step) + static_cast<float>(i);
      // NCCL divides before it adds.
      const auto rounding = 1e-5F * (mean + 1);
      ASSERT_THAT(gradients.read(i, reader), Each(FloatNear(mean, rounding))) << i;
    }
  }
}

TEST(DeviceGradients, AreAveragedInTheOrderOfTheirStream) {
  for_each_device_group({1, 2, 4}, [](Communicator& ranks) {
    if (ranks.size() > 1) train(ranks, /*with_stream=*/true);
  });
}

TEST(DeviceGradients, WithoutAStreamAreThereAfterWait) {
  for_each_device_group({2, 3}, [](Communicator& ranks) { train(ranks, /*with_stream=*/false); });
}

TEST(DeviceGradients, AreAveragedInTheCallersOrder) {
  for_each_device_group({2, 3}, [](Communicator& ranks) {
    Communicator caller = ranks.duplicate({.device_order = CommunicatorOptions::DeviceOrder::kCaller});
    for (const bool with_stream : {true, false}) train(caller, with_stream);
  });
}

TEST(DeviceGradients, AStepInTheCallersOrderCanBeCaptured) {
  for_each_device_group({2, 3}, [](Communicator& ranks) {
    Communicator caller = ranks.duplicate({.device_order = CommunicatorOptions::DeviceOrder::kCaller});
    Device& device = device_of(ranks);
    Gradients gradients(ranks);
    GradientOptions options;
    options.bucket_bytes = 2048;
    options.stream = device.make_stream();
    GradientAverager averager(caller, gradients.spans(), options);
    Buffer source = ranks.allocate(4096, DType::kF32, ranks.device());
    const auto set_source = [&](float value) {
      const std::vector<float> host(4096, value + static_cast<float>(ranks.rank()));
      copy_now(device, source.view().data, host.data(), source.view().size_in_bytes());
    };
    const auto step = [&] {
      for (std::size_t i = gradients.spans().size(); i-- > 0;) {
        const BufferView& values = gradients.spans()[i].values;
        device.copy(values.data, source.view().data, values.size_in_bytes(), options.stream);
        averager.ready(i);
      }
      averager.wait();
    };
    set_source(0);
    step();
    device.synchronize(options.stream);
    StreamCapture capture(device, options.stream);
    step();
    const auto graph = capture.end();
    for (const float value : {5.0F, 9.0F}) {
      set_source(value);
      graph->launch(options.stream);
      const float mean = value + static_cast<float>(ranks.size() - 1) / 2;
      for (std::size_t i = 0; i < gradients.spans().size(); ++i) {
        EXPECT_THAT(gradients.read(i, options.stream), Each(FloatNear(mean, 1e-5F))) << i;
      }
    }
  });
}

TEST(DeviceGradients, MixedHostAndDeviceMemoryIsRefusedOnAllRanks) {
  for_each_device_group({2}, [](Communicator& ranks) {
    Buffer device = ranks.allocate(10, DType::kF32, ranks.device());
    std::vector<float> host(10);
    std::vector<GradientSpan> spans{{device.view(), "on the device"}, {BufferView(host), "on the host"}};
    EXPECT_THROW(GradientAverager(ranks, spans), InvalidArgument);
  });
}

TEST(DeviceGradients, WrongMemorySpaceIsRefusedOnAllRanks) {
  for_each_device_group({2}, [](Communicator& ranks) {
    const Gradients gradients(ranks);
    std::vector<GradientSpan> spans = gradients.spans();
    std::vector<float> host(10);
    Buffer more = ranks.allocate(10, DType::kF32, ranks.device());
    spans.push_back({more.view(), "right"});
    if (ranks.rank() == 0) spans.back() = {BufferView(host.data(), 10, DType::kF32, ranks.device()), "wrong"};
    if (ranks.rank() == 0) {
      const std::string text = message_of<InvalidArgument>([&] { GradientAverager(ranks, spans); });
      EXPECT_NE(text.find("(wrong) is said to be in"), std::string::npos) << text;
    } else {
      const std::string text = message_of<Mismatch>([&] { GradientAverager(ranks, spans); });
      EXPECT_NE(text.find("rank 0 "), std::string::npos) << text;
    }
  });
}

TEST(DeviceGradients, CapturedStreamIsRefusedBeforeAnyEnqueue) {
  for_each_device_group({2}, [](Communicator& ranks) {
    Gradients gradients(ranks);
    GradientOptions options;
    options.stream = device_of(ranks).make_stream();
    GradientAverager averager(ranks, gradients.spans(), options);
    if (ranks.rank() == 0) {
      StreamCapture capture(device_of(ranks), options.stream);
      averager.ready_all();
      EXPECT_THROW(averager.wait(), InvalidArgument);
      EXPECT_EQ(capture.end()->nodes(), 0U);
    } else {
      averager.ready_all();
      EXPECT_THROW(averager.wait(), Mismatch);
    }
    gradients.produce(0, static_cast<float>(ranks.rank()), options.stream);
    averager.ready_all();
    averager.wait();
    const float average = static_cast<float>(ranks.size() - 1) / 2;
    EXPECT_EQ(gradients.read(0, options.stream), std::vector<float>(1000, average));
  });
}

TEST(DeviceGradients, OverlappingSpansAreRefusedAndTiedOnesReducedOnce) {
  for_each_device_group({2}, [](Communicator& ranks) {
    const std::vector<float> own(100, static_cast<float>(ranks.rank() + 1));
    Buffer gradients = to_device(ranks, own);
    const std::vector<GradientSpan> tied{{gradients.view(), "embed"}, {gradients.view(), "head"}};
    const std::vector<GradientSpan> overlapping{{gradients.view(), "embed"}, {gradients.view().part(99, 1), "head"}};
    EXPECT_THROW(GradientAverager(ranks, tied), InvalidArgument);
    GradientOptions options;
    options.op = ReduceOp::kSum;
    options.tied_spans = true;
    EXPECT_THROW(GradientAverager(ranks, overlapping, options), InvalidArgument);
    GradientAverager averager(ranks, tied, options);
    averager.ready(1);
    averager.ready(0);
    averager.wait();
    const float sum = static_cast<float>(ranks.size() * (ranks.size() + 1)) * 0.5F;
    EXPECT_TRUE(same_bits(to_host(ranks, gradients.view()).view(), std::vector<float>(100, sum)));
  });
}

TEST(DeviceGradients, UnmarkedAreZeroOrFailOnAllRanks) {
  for_each_device_group({1, 2}, [](Communicator& ranks) {
    for (const bool are_zero : {false, true}) {
      Gradients gradients(ranks);
      GradientOptions options;
      options.op = ReduceOp::kSum;
      options.bucket_bytes = options.last_bucket_bytes = 1;
      options.stream = device_of(ranks).make_stream();
      if (are_zero) options.unmarked = UnmarkedGradients::kZero;
      GradientAverager averager(ranks, gradients.spans(), options);
      for (std::size_t i = 0; i < gradients.spans().size(); ++i) gradients.produce(i, 1, options.stream);
      const bool skips = ranks.rank() == ranks.size() - 1;
      for (std::size_t i = 0; i < gradients.spans().size(); ++i) {
        if (!skips || i != 2) averager.ready(i);
      }
      if (are_zero) {
        averager.wait();
        const auto sum = static_cast<float>(ranks.size() - 1);
        EXPECT_EQ(gradients.read(2, options.stream), std::vector<float>(257, sum));
      } else if (skips) {
        EXPECT_THROW(averager.wait(), InvalidArgument);
      } else {
        EXPECT_THROW(averager.wait(), Mismatch);
      }
      gradients.produce(2, 1, options.stream);
      averager.ready_all();
      averager.wait();
      EXPECT_EQ(gradients.read(2, options.stream), std::vector<float>(257, static_cast<float>(ranks.size())));
    }
  });
}

TEST(DeviceGradients, WeightedAndCommunicatedAsHalf) {
  for_each_device_group({1, 2, 4}, [](Communicator& ranks) {
    Gradients gradients(ranks);
    GradientOptions options;
    options.weighted = true;
    options.communicate_as = DType::kF16;
    options.bucket_bytes = 2048;
    options.stream = device_of(ranks).make_stream();
    GradientAverager averager(ranks, gradients.spans(), options);
    const bool has_samples = ranks.rank() > 0 || ranks.size() == 1;
    averager.begin(has_samples ? 1 : 0);
    // 1 + 2^-12 is 1 in f16.
    for (std::size_t i = 0; i < gradients.spans().size(); ++i) {
      gradients.produce(i, has_samples ? 1 + 0x1p-12F : 1000, options.stream);
    }
    if (has_samples) averager.ready_all();
    averager.wait();
    const std::vector<float> values = gradients.read(2, options.stream);
    // A single rank communicates nothing, so nothing is rounded; three contributions of 1/3 are rounded.
    for (const float value : values)
      ASSERT_NEAR(value, 1, ranks.size() == 1 ? 0x1p-12F : ranks.size() == 2 ? 0 : 0x1p-9F);
  });
}

TEST(DeviceGradients, MayBeAddedAndAbandoned) {
  for_each_device_group({2}, [](Communicator& ranks) {
    Gradients gradients(ranks);
    Gradients more(ranks);
    GradientOptions options;
    options.bucket_bytes = 2048;
    options.stream = device_of(ranks).make_stream();
    GradientAverager averager(ranks, gradients.spans(), options);
    averager.ready_all();
    averager.wait();
    averager.add(more.spans());
    if (ranks.rank() == 0) {
      averager.ready(13);
      averager.abandon();
    } else {
      averager.ready_all();
      EXPECT_THROW(averager.wait(), Mismatch);
    }
    gradients.produce(0, 1, options.stream);
    more.produce(0, 3, options.stream);
    averager.ready_all();
    averager.wait();
    EXPECT_EQ(gradients.read(0, options.stream), std::vector<float>(1000, 1));
    EXPECT_EQ(more.read(0, options.stream), std::vector<float>(1000, 3));
  });
}

TEST(DeviceGradients, DestructorWaitsUntilTheDeviceIsDone) {
  for_each_device_group({2}, [](Communicator& ranks) {
    Gradients gradients(ranks);
    GradientOptions options;
    options.stream = device_of(ranks).make_stream();
    options.communicate_as = DType::kF16;  // so that all buckets are packed
    std::optional<GradientAverager> averager(std::in_place, ranks, gradients.spans(), options);
    averager->ready_all();
    averager->wait();  // the ranks are connected now
    std::optional<StuckStream> stuck;
    if (ranks.rank() == 0) stuck.emplace(device_of(ranks), options.stream);
    averager->ready_all();
    averager->wait();
    std::mutex mutex;
    std::condition_variable changed;
    bool is_destroyed = false, is_destroyed_too_early = false;
    const auto release = [&] {
      if (!stuck) return;
      std::unique_lock lock(mutex);
      // A destructor that waits lets this time out: the test passes however slow the threads are.
      is_destroyed_too_early = changed.wait_for(lock, std::chrono::milliseconds(50), [&] { return is_destroyed; });
      stuck.reset();
    };
    std::jthread releaser(release);
    averager.reset();
    {
      const std::lock_guard lock(mutex);
      is_destroyed = true;
    }
    changed.notify_all();
    releaser.join();
    EXPECT_FALSE(is_destroyed_too_early);
    device_of(ranks).synchronize(options.stream);
  });
}

}  // namespace
}  // namespace farandole::test
