// SPDX-License-Identifier: Apache-2.0
// Times of training steps on devices.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <thread>
#include <vector>

#include "device_peak.h"
#include "double_calls.h"
#include "groups.h"
#include "kernels/device_execution.h"
#include "on_device.h"
#include "small_training.h"

namespace farandole::trainer::test {
namespace {

using farandole::test::calls_of;
using farandole::test::for_each_device_group;

constexpr std::int64_t kSteps = 9;

TrainerOptions timed(std::int64_t steps = kSteps) {
  TrainerOptions options = options_for(steps);
  options.kernel_threads = 1;
  options.device = ComputeDevice::kCuda;
  options.device_times = true;
  return options;
}

EpochReport train_timed(Communicator& ranks, const Layers<float>& make_layers, const TrainerOptions& options) {
  const Data data;
  Trainer<float> trainer(ranks, Model<float>(kImage, make_layers()), data.training, nullptr, options);
  return trainer.fit();
}

/// Products take most of the time, on the double as well.
LayerList<float> large_mlp() {
  const auto wide = [] { return dense<float>(256); };
  return layers<float>({wide, relu<float>, wide, relu<float>, wide, [] { return dense<float>(kClasses); }});
}

/// Trains without peers.
void alone_on_each_device(const std::function<void(Communicator&)>& body) {
  farandole::test::on_each_device([&](Communicator& ranks) {
    Communicator alone = ranks.split(ranks.rank());
    body(alone);
    ranks.barrier();
  });
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values.at(values.size() / 2);
}

/// Trains, and compares with the time that the host has seen. Returns the times of the device.
DeviceTimes expect_times_of_the_host(Communicator& ranks, TrainerOptions options) {
  std::vector<double> of_host;
  options.on_step = [&](const StepReport& report) { of_host.push_back(report.seconds); };
  const EpochReport report = train_timed(ranks, large_mlp, options);
  const DeviceTimes times = report.device_times.value_or(DeviceTimes{});
  EXPECT_EQ(times.steps + times.graph_steps, kSteps);
  EXPECT_GT(times.step(), 0.5 * median(of_host));
  EXPECT_LT(times.step(), 1.5 * median(of_host));
  EXPECT_GT(report.peak_share.value_or(0), 0);
  return times;
}

TEST(DeviceTimes, SumUpToTheTimeOfTheHost) {
  alone_on_each_device([&](Communicator& ranks) {
    TrainerOptions options = timed();
    options.global_batch = 120;
    options.data.drop_last = true;
    const DeviceTimes times = expect_times_of_the_host(ranks, options);
    EXPECT_EQ(times.graph_steps, 0);
    EXPECT_GT(times.input, 0);
    EXPECT_GT(times.forward, 0);
    EXPECT_GT(times.backward, 0);
    EXPECT_EQ(times.exposed_communication, 0) << "there is no peer";
    EXPECT_GT(times.update, 0);
    options.accumulate = 3;
    expect_times_of_the_host(ranks, options);
    options.graph = true;
    EXPECT_EQ(expect_times_of_the_host(ranks, options).graph_steps, kSteps - 1);
    options.accumulate = 1;
    options.deterministic = true;
    options.micro_batches = 4;
    EXPECT_EQ(expect_times_of_the_host(ranks, options).graph_steps, kSteps - 1);
    options.graph = false;
    EXPECT_EQ(expect_times_of_the_host(ranks, options).steps, kSteps);
  });
}

TEST(DeviceTimes, ALatePeerIsWaitedForInCommunication) {
  for_each_device_group({2}, [](Communicator& ranks) {
    constexpr auto kLate = std::chrono::milliseconds(100);
    TrainerOptions options = timed(5);
    options.before_step = [&](std::int64_t) {
      if (ranks.rank() == 1) std::this_thread::sleep_for(kLate);
    };
    const EpochReport report = train_timed(ranks, mlp<float>, options);
    std::vector<double> exposed(2);
    ranks.allgather(std::vector{report.device_times.value_or(DeviceTimes{}).exposed_communication}, exposed);
    EXPECT_GT(exposed[0] - exposed[1], Seconds(kLate).count() / 2);
    EXPECT_GT(exposed[1], 0);
  });
}

TEST(DeviceTimes, LeaveOutWhatTheHostDoesBetweenPhases) {
  alone_on_each_device([](Communicator& ranks) {
    constexpr auto kPause = std::chrono::milliseconds(100);
    TrainerOptions options = timed(5);
    std::vector<double> of_host;
    options.on_step = [&](const StepReport& report) { of_host.push_back(report.seconds); };
    options.before_step = [&](std::int64_t) { std::this_thread::sleep_for(kPause); };
    options.stop_requested = [&] {  // in the check, between backward and update
      std::this_thread::sleep_for(kPause);
      return false;
    };
    const EpochReport report = train_timed(ranks, mlp<float>, options);
    EXPECT_LT(report.device_times.value().step(), median(of_host) - 1.5 * Seconds(kPause).count());
  });
}

TEST(DeviceTimes, OfGraphsAreThoseOfPieces) {
  for_each_device_group({1, 2}, [](Communicator& ranks) {
    TrainerOptions options = timed(7);  // without an incomplete batch
    options.graph = true;
    for (const bool deterministic : {false, true}) {
      options.deterministic = deterministic;
      const EpochReport report = train_timed(ranks, mlp<float>, options);
      ASSERT_TRUE(report.device_times);
      const DeviceTimes& times = *report.device_times;
      EXPECT_EQ(times.steps, 1) << "the first training step is enqueued";
      EXPECT_GT(times.forward, 0);
      EXPECT_GT(times.backward, 0);
      EXPECT_EQ(times.graph_steps, 6);
      EXPECT_GT(times.graph_input, 0);
      EXPECT_GT(times.graph_gradients, 0);
      EXPECT_GT(times.graph_update, 0);
      EXPECT_EQ(times.step(), times.graph_input + times.graph_gradients + times.graph_update);
      EXPECT_GT(report.peak_share.value_or(0), 0);
    }
  });
}

TEST(DeviceTimes, AreReadBeforeEachCheck) {
  alone_on_each_device([](Communicator& ranks) {
    TrainerOptions options = timed(20);
    options.check_every = 4;
    std::int64_t of_epochs = 0;
    options.on_epoch = [&](const EpochReport& report) {
      of_epochs += report.device_times.value_or(DeviceTimes{}).steps;
      EXPECT_FALSE(report.peak_share) << "measured at the end of fit";
    };
    const DeviceTimes times = train_timed(ranks, mlp<float>, options).device_times.value();
    EXPECT_GT(of_epochs, 0);
    EXPECT_GT(times.steps, of_epochs);
    EXPECT_LT(times.steps, 20);
  });
}

TEST(DeviceTimes, AreMeasuredOnDevicesIfAskedFor) {
  alone_on_each_device([](Communicator& ranks) {
    const unsigned long before = calls_of("cuEventElapsedTime");
    TrainerOptions options = timed();
    options.device_times = false;
    const EpochReport not_asked = train_timed(ranks, mlp<float>, options);
    options.device_times = true;
    options.device = ComputeDevice::kCpu;
    const EpochReport on_cpu = train_timed(ranks, mlp<float>, options);
    for (const EpochReport& report : {not_asked, on_cpu}) {
      EXPECT_FALSE(report.device_times);
      EXPECT_FALSE(report.peak_share);
    }
    EXPECT_EQ(calls_of("cuEventElapsedTime"), before);
  });
}

TEST(DeviceTimes, OfALargeProductArePlausible) {
  alone_on_each_device([](Communicator& ranks) {
    const Execution execution = device_execution(ranks);
    for (const double peak : {measured_peak<float>(execution), measured_peak<double>(execution)}) {
      EXPECT_GT(peak, 1e6);
      EXPECT_LT(peak, 1e16);
    }
  });
}

}  // namespace
}  // namespace farandole::trainer::test
