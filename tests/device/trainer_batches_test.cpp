// SPDX-License-Identifier: Apache-2.0
// Batches are gathered, and copied to a device, while the device computes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "broken_device.h"
#include "double_calls.h"
#include "drawn_batch.h"
#include "farandole/trainer/augmentation.h"
#include "farandole/trainer/stream.h"
#include "kernels/device_execution.h"
#include "kernels/transfer.h"
#include "message_of.h"
#include "on_device.h"
#include "small_training.h"
#include "staged_copies.h"
#include "trainer_files.h"

namespace farandole::trainer::test {
namespace {

using farandole::test::calls_of;
using farandole::test::for_each_device_group;
using farandole::test::message_of;
using farandole::test::StuckStream;
using namespace std::chrono_literals;
using testing::Each;
using testing::ElementsAre;
using testing::ElementsAreArray;

/// Batches of equal numbers, which go through staging memory to one place, and what has come there.
class StagedNumbers {
 public:
  explicit StagedNumbers(Communicator& ranks)
      : execution_(device_execution(ranks)),
        stream_(device_of(execution_)),
        copies_(execution_, stream_.view()),
        place_(allocate(execution_.memory(), kCount, DType::kF32)),
        received_(allocate(execution_.memory(), kMaxBatches * kCount, DType::kF32)) {
    copies_.reserve(parts_of_batch(std::vector<float>(kCount)));
  }

  StreamView computing() const { return execution_.stream(); }
  StreamView copying() const { return stream_.view(); }
  Device& device() const { return device_of(execution_); }

  void send(float number) { copies_.send(parts_of_batch(std::vector<float>(kCount, number))); }
  void receive() {
    copies_.receive({place_.view().data});
    device().copy(received_.as<float>() + batches_++ * kCount, place_.view().data, kCount * sizeof(float), computing());
  }
  /// The numbers in the order of their arrival. Waits.
  std::vector<float> received() {
    const auto all = to_host<float>(execution_, {received_.as<float>(), batches_ * kCount, received_.space()});
    std::vector<float> numbers;
    for (std::size_t batch = 0; batch < batches_; ++batch) {
      const std::span<const float> values = std::span(all).subspan(batch * kCount, kCount);
      EXPECT_THAT(values, Each(values.front())) << "batch " << batch;
      numbers.push_back(values.back());
    }
    return numbers;
  }
  /// True if the work that is in the stream now ends within this time.
  bool ends_within(std::chrono::milliseconds limit, StreamView stream) const {
    const auto event = device().make_event(DeviceEvent::Use::kHost);
    device().record(*event, stream);
    const auto end = std::chrono::steady_clock::now() + limit;
    while (!event->is_complete()) {
      if (std::chrono::steady_clock::now() > end) return false;
      std::this_thread::sleep_for(1ms);
    }
    return true;
  }

 private:
  static constexpr std::size_t kCount = 1000, kMaxBatches = 10;
  static BatchParts parts_of_batch(std::span<const float> values) { return {std::as_bytes(values)}; }

  const Execution execution_;
  const BorrowedStream stream_;
  StagedCopies copies_;
  Buffer place_, received_;
  std::size_t batches_ = 0;
};

// The third batch is sent from the pinned memory of the first, once that was copied.
TEST(StagedCopies, RunWhileTheDeviceComputes) {
  for_each_device_group({1}, [](Communicator& ranks) {
    StagedNumbers numbers(ranks);
    std::future<void> sending;
    {
      const StuckStream computing(numbers.device(), numbers.computing());
      sending = std::async(std::launch::async, [&] {
        for (const float number : {1, 2, 3}) {
          numbers.send(number);
          numbers.receive();
        }
      });
      EXPECT_EQ(sending.wait_for(10s), std::future_status::ready) << "a copy waits for the work of the device";
    }
    sending.get();
    EXPECT_THAT(numbers.received(), ElementsAre(1, 2, 3));
  });
}

TEST(StagedCopies, KeepABatchUntilTheDeviceHasReadIt) {
  for_each_device_group({1}, [](Communicator& ranks) {
    StagedNumbers numbers(ranks);
    {
      const StuckStream computing(numbers.device(), numbers.computing());
      for (const float number : {1, 2}) {
        numbers.send(number);
        numbers.receive();
      }
      EXPECT_TRUE(numbers.ends_within(10s, numbers.copying()));
      numbers.send(3);
      EXPECT_FALSE(numbers.ends_within(100ms, numbers.copying())) << "the third batch takes the memory of the first";
    }
    numbers.receive();
    EXPECT_THAT(numbers.received(), ElementsAre(1, 2, 3));
  });
}

TEST(StagedCopies, AreWaitedForByTheStreamThatUsesThem) {
  for_each_device_group({1}, [](Communicator& ranks) {
    StagedNumbers numbers(ranks);
    {
      const StuckStream copying(numbers.device(), numbers.copying());
      numbers.send(1);
      numbers.receive();
      EXPECT_FALSE(numbers.ends_within(100ms, numbers.computing()));
    }
    EXPECT_THAT(numbers.received(), ElementsAre(1));
  });
}

TEST(StagedCopies, HaveRoomForBatchesUpToTheLargest) {
  for_each_device_group({1}, [](Communicator& ranks) {
    const Execution execution = device_execution(ranks);
    const BorrowedStream stream(device_of(execution));
    StagedCopies copies(execution, stream.view());
    const std::vector<std::byte> bytes(100);
    const auto first = [&](std::size_t count) { return std::span(bytes).first(count); };
    EXPECT_FALSE(copies.has_room_for({first(10)}));
    copies.reserve({first(10), first(0), first(40)});
    EXPECT_TRUE(copies.has_room_for({first(10), first(0), first(40)}));
    EXPECT_FALSE(copies.has_room_for({first(11)}));
    EXPECT_FALSE(copies.has_room_for({first(1), first(1)}));
    copies.reserve({first(100), first(1)});
    EXPECT_TRUE(copies.has_room_for({first(60), first(1), first(40)}));
    EXPECT_FALSE(copies.has_room_for({first(100), first(1), first(40)})) << "more pinned memory than was reserved";
  });
}

/// The samples of Data, with a callback in each gathering.
class WatchedData final : public Dataset {
 public:
  /// @param gathering  gets the number of the call, 1 for the first
  explicit WatchedData(std::function<void(int call)> gathering = [](int) {}) : gathering_(std::move(gathering)) {}
  std::int64_t size() const override { return data_->size(); }
  const Shape& shape() const override { return data_->shape(); }
  std::int32_t classes() const override { return data_->classes(); }
  void gather(std::span<const std::uint32_t> samples, Batch<float>& batch) const override {
    gathering_(++calls_);
    data_->gather(samples, batch);
  }
  int calls() const { return calls_; }

 private:
  const std::function<void(int call)> gathering_;
  const std::shared_ptr<const Dataset> data_ = Data().training;
  mutable std::atomic<int> calls_{0};
};

/// The same samples, which are gathered in host memory and copied, or drawn on the device.
std::shared_ptr<const Dataset> gathered() {
  return std::make_shared<const WatchedData>();
}
std::shared_ptr<const Dataset> drawn() {
  return Data().training;
}

/// Runs `body` on each rank that has a device, as if there were no others.
void on_each_device_alone(const std::function<void(Communicator&)>& body) {
  for_each_device_group({1}, [&](Communicator& ranks) {
    Communicator alone = ranks.split(ranks.rank());
    body(alone);
  });
}

TrainerOptions on_device(std::int64_t steps) {
  TrainerOptions options = options_for(steps);
  options.kernel_threads = 1;
  options.device = ComputeDevice::kCuda;
  return options;
}

Trainer<double> make_trainer(Communicator& ranks, const TrainerOptions& options,
                             std::shared_ptr<const Dataset> data = Data().training) {
  return {ranks, Model<double>(kImage, mlp<double>()), std::move(data), nullptr, options};
}

/// Parameters of a trained model.
std::vector<double> parameters_of(Trainer<double>& trainer) {
  return to_host<double>(trainer.model().execution(), trainer.model().parameters());
}

std::vector<double> parameters_after(Communicator& ranks, const TrainerOptions& options,
                                     std::shared_ptr<const Dataset> data = Data().training) {
  Trainer<double> trainer = make_trainer(ranks, options, std::move(data));
  trainer.fit();
  return parameters_of(trainer);
}

/// How many micro-batches were gathered when each check began.
std::vector<int> gathered_before_checks(Communicator& ranks, TrainerOptions options) {
  const auto data = std::make_shared<const WatchedData>([](int) {});
  std::vector<int> gathered;
  options.stop_requested = [&] {
    gathered.push_back(data->calls());
    return false;
  };
  make_trainer(ranks, options, data).fit();
  return gathered;
}

TEST(DeviceBatches, AreGatheredBeforeTheCheckOfTheStepBefore) {
  on_each_device_alone([](Communicator& ranks) {
    TrainerOptions options = on_device(5);
    EXPECT_THAT(gathered_before_checks(ranks, options), ElementsAre(2, 3, 4, 5, 5));
    options.accumulate = 2;
    EXPECT_THAT(gathered_before_checks(ranks, options), ElementsAre(3, 5, 7, 9, 10));
    options.accumulate = 1;
    options.deterministic = true;
    options.micro_batches = 4;
    EXPECT_THAT(gathered_before_checks(ranks, options), ElementsAre(5, 9, 13, 17, 20));
    options = on_device(5);
    options.device = ComputeDevice::kCpu;
    EXPECT_THAT(gathered_before_checks(ranks, options), ElementsAre(1, 2, 3, 4, 5));
  });
}

TEST(DeviceBatches, ThatCannotBeReadFailTheStepThatNeedsThem) {
  on_each_device_alone([](Communicator& ranks) {
    for (const int threads : {0, 1}) {
      const TrainerOptions whole = on_device(20);
      TrainerOptions options = whole;
      options.data.threads = threads;
      const auto data = std::make_shared<const WatchedData>([](int call) {
        if (call == 6) throw DataError("image_6.png is cut off");
      });
      Trainer<double> trainer = make_trainer(ranks, options, data);
      EXPECT_EQ(message_of<DataError>([&] { trainer.fit(); }), "image_6.png is cut off");
      EXPECT_EQ(trainer.training_steps(), 5);
      trainer.fit();
      EXPECT_EQ(parameters_of(trainer), parameters_after(ranks, whole)) << threads << " threads";
    }
  });
}

/// Options with which a training differs in its batches.
std::vector<TrainerOptions> all_batches() {
  std::vector<TrainerOptions> all(5, on_device(20));
  all[1].data.threads = 2;
  all[1].check_every = 6;
  all[2].accumulate = 3;
  all[2].check_every = 6;
  all[3].deterministic = true;
  all[3].micro_batches = 4;
  all[4].graph = true;
  all[4].accumulate = 3;
  return all;
}

// Callbacks throw before a training step, in its check, which makes it run again, and after it; replicas ask to stop.
void expect_same_after_interruptions(Communicator& ranks, const TrainerOptions& options,
                                     const std::shared_ptr<const Dataset>& data, const std::vector<double>& expected) {
  TrainerOptions mine = options;
  int begun = 0, reported = 0, checks = 0;
  mine.before_step = [&](std::int64_t) {
    if (++begun % 7 == 0 && ranks.size() == 1) throw std::runtime_error("before");
  };
  mine.on_step = [&](const StepReport&) {
    if (++reported % 5 == 0 && ranks.size() == 1) throw std::runtime_error("after");
  };
  mine.stop_requested = [&] {
    if (++checks % 6 == 0 && ranks.size() == 1) throw std::runtime_error("within");
    return checks % 4 == 0;
  };
  Trainer<double> trainer = make_trainer(ranks, mine, data);
  int calls = 0;
  for (; trainer.training_steps() < 20; ++calls) {
    try {
      trainer.fit();
    } catch (const std::runtime_error&) {
      ASSERT_EQ(ranks.size(), 1);
    }
  }
  EXPECT_GT(calls, 1);
  EXPECT_EQ(parameters_of(trainer), expected);
}

TEST(DeviceBatches, StayTheSameAfterExceptionsAndStops) {
  for_each_device_group({1, 2}, [](Communicator& ranks) {
    for (const TrainerOptions& options : all_batches()) {
      if (options.graph && ranks.placement().host_count > 1) continue;  // collectives between hosts are not captured
      const std::vector<double> expected = parameters_after(ranks, options, gathered());
      expect_same_after_interruptions(ranks, options, gathered(), expected);
      expect_same_after_interruptions(ranks, options, drawn(), expected);
    }
  });
}

// The 8th training step has 26 samples, all others 32: their memory grows after it.
TEST(DeviceBatches, GrowAfterAResume) {
  for_each_device_group({1, 2}, [](Communicator& ranks) {
    const std::vector<double> expected = parameters_after(ranks, on_device(20), gathered());
    for (const auto& data : {gathered(), drawn()}) {
      const TemporaryDirectory directory;
      std::string path = directory.path().string();  // rank 0's, for all ranks
      path.resize(1000);
      ranks.broadcast(BufferView(path.data(), path.size(), DType::kU8), 0);
      TrainerOptions options = on_device(7);
      options.checkpoints.directory = path.c_str();
      parameters_after(ranks, options, data);
      options.max_steps = 20;
      options.checkpoints.resume = true;
      EXPECT_EQ(parameters_after(ranks, options, data), expected);
      ranks.barrier();  // rank 0's directory goes
    }
  });
}

TEST(DeviceBatches, OfStreamsAndShardsAreThoseOfACpu) {
  for_each_device_group({1, 2}, [](Communicator& ranks) {
    const auto generator = [] {
      return [position = 0](StreamSample& sample) mutable {
        sample.label = position % kClasses;
        for (float& value : sample.input) value = static_cast<float>(++position % 37) / 37;
      };
    };
    const auto stream = stream_dataset({.shape = kImage, .samples_per_epoch = 250, .classes = kClasses}, generator);
    for (const bool own_shards : {false, true}) {
      TrainerOptions options = on_device(20);
      options.data.own_shards = own_shards;
      const std::vector<double> found = parameters_after(ranks, options, stream);
      options.device = ComputeDevice::kCpu;
      EXPECT_THAT(found, testing::Pointwise(testing::DoubleNear(1e-9), parameters_after(ranks, options, stream)));
    }
  });
}

/// Trains with data that are gathered slowly, and expects that only the training steps wait in which the device is
/// idle.
void expect_waiting_of_an_idle_device(Communicator& ranks, TrainerOptions options) {
  constexpr std::int64_t kFirstBusy = 8;  // memory has grown before
  std::optional<StuckStream> busy;
  Trainer<double>* training = nullptr;
  const auto data = std::make_shared<const WatchedData>([&](int) {
    std::this_thread::sleep_for(20ms);
    if (!busy) finish(training->model().execution());
  });
  options.before_step = [&](std::int64_t step) {
    const Execution& execution = training->model().execution();
    if (step >= kFirstBusy) busy.emplace(device_of(execution), execution.stream());
  };
  options.stop_requested = [&] {
    busy.reset();
    return false;
  };
  options.on_step = [](const StepReport& report) {
    EXPECT_LE(report.input_waiting_seconds, report.seconds);
    if (report.training_step < kFirstBusy) {
      EXPECT_GE(report.input_waiting_seconds, 0.02);
    } else {
      EXPECT_EQ(report.input_waiting_seconds, 0);
    }
  };
  Trainer<double> trainer = make_trainer(ranks, options, data);
  training = &trainer;
  trainer.fit();
}

TEST(DeviceBatches, CountAsWaitingOnlyIfTheDeviceIsIdle) {
  on_each_device_alone([](Communicator& ranks) {
    TrainerOptions options = on_device(10);
    expect_waiting_of_an_idle_device(ranks, options);
    options.accumulate = 2;
    expect_waiting_of_an_idle_device(ranks, options);
    options.accumulate = 1;
    options.deterministic = true;
    options.micro_batches = 2;
    expect_waiting_of_an_idle_device(ranks, options);
  });
}

/// Sends the indices of samples to the device, draws the samples, and expects those of the host.
template <class Scalar>
void expect_drawn_as_gathered(Communicator& ranks, const Dataset& data) {
  const Execution execution = device_execution(ranks);
  const BorrowedStream stream(device_of(execution));
  StagedCopies copies(execution, stream.view());
  ASSERT_NE(SyntheticDataset::from(data), nullptr);
  DrawnBatch<Scalar> batch(*SyntheticDataset::from(data), execution.memory(), /*always_weights=*/false);
  Batch<Scalar> expected;
  for (const std::uint32_t count : {32U, 1U, 7U, 60U}) {
    std::vector<std::uint32_t> indices;
    for (std::uint32_t i = 0; i < count; ++i) indices.push_back((i * 37 + count) % 101);
    data.gather(indices, expected);
    const BatchParts parts = batch.parts_of(indices);
    EXPECT_EQ(bytes_of(parts), count * sizeof(std::uint32_t)) << "more than the indices is copied";
    copies.reserve(parts);
    copies.send(parts);
    copies.receive(batch.reserve(count));
    const BatchView<Scalar> view = batch.draw(execution, count);
    EXPECT_THAT(to_host<Scalar>(execution, view.inputs.view()), ElementsAreArray(expected.inputs.host()));
    EXPECT_EQ(view.inputs.shape(), data.shape());
    EXPECT_EQ(to_host<std::int32_t>(execution, view.labels), expected.labels);
    EXPECT_EQ(view.targets.samples(), 0);
    EXPECT_TRUE(view.weights.empty());
  }
}

TEST(DrawnBatches, HaveTheBitsOfTheHost) {
  for_each_device_group({1}, [](Communicator& ranks) {
    constexpr std::uint64_t kLargeSeed = ~std::uint64_t{3};
    for (const auto& data : {synthetic_dataset(101, {8, 9, 3}, 10, kLargeSeed), synthetic_dataset(101, {1}, 1, 0, 0.25),
                             synthetic_text(101, 13, 96, kLargeSeed), synthetic_dataset(101, {5}, 3, 7, 0.5, 3),
                             synthetic_text(101, 13, 96, 7, kLargeSeed)}) {
      expect_drawn_as_gathered<float>(ranks, *data);
      expect_drawn_as_gathered<double>(ranks, *data);
    }
  });
}

TEST(DrawnBatches, TrainAsGatheredOnesOnAnyNumberOfReplicas) {
  for_each_device_group({1, 2, 4}, [](Communicator& ranks) {
    for (const bool own_shards : {false, true}) {
      TrainerOptions options = on_device(20);
      options.data.own_shards = own_shards;
      EXPECT_EQ(parameters_after(ranks, options, drawn()), parameters_after(ranks, options, gathered()));
    }
  });
}

/// Number of copies that the training steps 11 to 20 enqueue.
unsigned long copies_of_ten_steps(Communicator& ranks, const std::shared_ptr<const Dataset>& data) {
  unsigned long before = 0, after = 0;
  TrainerOptions options = on_device(21);
  options.check_every = 1;
  options.before_step = [&](std::int64_t step) {
    if (step == 11) before = calls_of("cuMemcpyAsync");
    if (step == 21) after = calls_of("cuMemcpyAsync");
  };
  make_trainer(ranks, options, data).fit();
  return after - before;
}

// A gathered batch has inputs and labels, each copied to staging memory and from there; of a drawn one the indices are.
TEST(DrawnBatches, AreNotCopied) {
  on_each_device_alone([](Communicator& ranks) {
    if (calls_of("cuInit") == 0) GTEST_SKIP() << "a GPU counts no copies";
    EXPECT_EQ(copies_of_ten_steps(ranks, gathered()) - copies_of_ten_steps(ranks, drawn()), 20);
  });
}

TEST(DrawnBatches, AreGatheredIfTheyAreAugmented) {
  for_each_device_group({1, 2}, [](Communicator& ranks) {
    const auto data = augmented(drawn(), {.crop_padding = 1, .flip = 0.5});
    EXPECT_EQ(SyntheticDataset::from(*data), nullptr);
    TrainerOptions options = on_device(20);
    const std::vector<double> found = parameters_after(ranks, options, data);
    options.device = ComputeDevice::kCpu;
    EXPECT_THAT(found, testing::Pointwise(testing::DoubleNear(1e-9), parameters_after(ranks, options, data)));
  });
}

}  // namespace
}  // namespace farandole::trainer::test
