// SPDX-License-Identifier: Apache-2.0
#include "batch_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <omp.h>

#include <algorithm>
#include <atomic>
#include <numeric>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>

#include "message_of.h"
#include "process_threads.h"

namespace farandole::trainer {
namespace {

using Indices = std::vector<std::uint32_t>;

/// Each sample is its index; in training the epoch is its target.
class Numbered final : public Dataset {
 public:
  explicit Numbered(std::int64_t size, bool is_sequential = false) : size_(size), is_sequential_(is_sequential) {}
  std::int64_t size() const override { return size_; }
  const Shape& shape() const override { return shape_; }
  const Shape& target_shape() const override { return shape_; }
  bool is_sequential() const override { return is_sequential_; }
  void gather(std::span<const std::uint32_t> samples, Batch<float>& batch) const override {
    batch.inputs.resize(static_cast<std::int64_t>(samples.size()), shape_);
    std::copy(samples.begin(), samples.end(), batch.inputs.data());
  }
  void gather_for_training(std::span<const std::uint32_t> samples, const TrainingDraw& draw,
                           Batch<float>& batch) const override {
    kernel_threads_ = omp_get_max_threads();
    if (++calls_ == failing_call_) throw std::runtime_error("no such file");
    gather(samples, batch);
    batch.targets.resize(batch.inputs.samples(), shape_);
    std::fill(batch.targets.host().begin(), batch.targets.host().end(), static_cast<float>(draw.epoch));
  }

  mutable std::atomic<int> calls_{0};
  mutable std::atomic<int> kernel_threads_{0};  // that OpenMP would use in the last call
  int failing_call_ = 0;

 private:
  const std::int64_t size_;
  const bool is_sequential_;
  const Shape shape_{1};
};

struct PlanInputs {
  TrainerOptions options;
  std::vector<std::int64_t> shards = {};
  int rank = 0, replicas = 1;

  BatchPlan plan(const Dataset& data) const { return {options, data, shards, rank, replicas}; }
};

PlanInputs batches_of(std::int64_t global_batch) {
  PlanInputs inputs;
  inputs.options.global_batch = global_batch;
  return inputs;
}

/// Indices of this rank's samples in training steps 0 to `steps` - 1. Checks that the batches hold them.
std::vector<Indices> indices_of(const Dataset& data, const PlanInputs& inputs, std::int64_t steps) {
  std::vector<Indices> all;
  BatchSource<float> source(data, inputs.options.data, inputs.plan(data));
  const BatchSource<float>::Reading reading(source, steps);
  for (std::int64_t step = 0; step < steps; ++step) {
    Indices& of_step = all.emplace_back();
    source.seek(step);
    std::int64_t expected_first = source.samples(step).own.first;
    const std::int64_t epoch = step / source.batches_per_epoch();
    for (std::int64_t i = 0; i < source.plan().micro_batches(); ++i) {
      const MicroBatch<float>& micro_batch = source.next();
      EXPECT_EQ(micro_batch.part.first, expected_first);
      expected_first += micro_batch.part.count;
      EXPECT_EQ(micro_batch.samples.size(), static_cast<std::size_t>(micro_batch.part.count));
      for (std::size_t k = 0; k < micro_batch.samples.size(); ++k) {
        EXPECT_EQ(micro_batch.batch.inputs.data()[k], static_cast<float>(micro_batch.samples[k]));
        EXPECT_EQ(micro_batch.batch.targets.data()[k], static_cast<float>(epoch));
      }
      of_step.insert(of_step.end(), micro_batch.samples.begin(), micro_batch.samples.end());
    }
    EXPECT_EQ(expected_first, source.samples(step).own.first + source.samples(step).own.count);
  }
  return all;
}

TEST(BatchSource, TheOrderIsThatOfTheLoaderForAnyNumberOfThreads) {
  const Numbered data(50);
  Loader loader(50, 16, 1);
  std::vector<Indices> expected;
  for (int epoch = 0; epoch < 4; ++epoch) {
    loader.start_epoch(epoch);
    for (int batch = 0; batch < 4; ++batch)
      expected.emplace_back(loader.batch(batch).begin(), loader.batch(batch).end());
  }
  for (const int threads : {0, 1, 2, 5}) {
    for (const std::int64_t accumulate : {1, 3}) {
      PlanInputs inputs = batches_of(16);
      inputs.options.data = {.threads = threads, .batches_ahead = 3};
      inputs.options.accumulate = accumulate;
      EXPECT_EQ(indices_of(data, inputs, 16), expected) << threads << " threads, " << accumulate << " micro-batches";
    }
  }
}

TEST(BatchSource, TheRanksPartsMakeTheGlobalBatch) {
  const Numbered data(50);
  for (const bool deterministic : {false, true}) {
    for (const int threads : {0, 2}) {
      PlanInputs inputs = batches_of(16);
      inputs.options.deterministic = deterministic;
      const std::vector<Indices> whole = indices_of(data, inputs, 8);
      std::vector<Indices> joined(8);
      inputs.replicas = 4;
      inputs.options.data.threads = threads;
      for (inputs.rank = 0; inputs.rank < inputs.replicas; ++inputs.rank) {
        const std::vector<Indices> parts = indices_of(data, inputs, 8);
        for (std::size_t i = 0; i < parts.size(); ++i)
          joined[i].insert(joined[i].end(), parts[i].begin(), parts[i].end());
      }
      EXPECT_EQ(joined, whole) << (deterministic ? "deterministic, " : "") << threads << " threads";
    }
  }
}

TEST(BatchSource, DropLastLeavesOutTheIncompleteBatch) {
  const Numbered data(50);
  PlanInputs inputs = batches_of(16);
  inputs.options.data.drop_last = true;
  EXPECT_EQ(inputs.plan(data).steps_per_epoch(), 3);
  std::vector<Indices> used = indices_of(data, inputs, 6);
  for (const Indices& batch : used) EXPECT_EQ(batch.size(), 16U);
  std::vector<std::set<std::uint32_t>> epochs(2);
  for (std::size_t step = 0; step < used.size(); ++step) epochs[step / 3].insert(used[step].begin(), used[step].end());
  for (const auto& epoch : epochs) EXPECT_EQ(epoch.size(), 48U);
  EXPECT_NE(epochs[0], epochs[1]) << "each epoch leaves out other samples";
  inputs.options.global_batch = 51;
  EXPECT_THAT(farandole::test::message_of<InvalidArgument>([&] { inputs.plan(data); }),
              testing::HasSubstr("drop_last leaves out the only batch"));
}

TEST(BatchSource, OwnShardsLastEquallyLong) {
  const std::vector<std::int64_t> sizes{23, 9, 40};  // 72 samples in batches of 10: 8 training steps
  std::vector<std::int64_t> global(16, 0);
  for (int rank = 0; rank < 3; ++rank) {
    const Numbered data(sizes[static_cast<std::size_t>(rank)]);
    PlanInputs inputs = batches_of(10);
    inputs.options.data = {.threads = rank, .own_shards = true};
    inputs.shards = sizes;
    inputs.rank = rank;
    inputs.replicas = 3;
    const BatchPlan plan = inputs.plan(data);
    EXPECT_EQ(plan.steps_per_epoch(), 8);
    EXPECT_EQ(plan.smallest_micro_batch(), 1) << "9 samples in 8 steps";
    const std::vector<Indices> steps = indices_of(data, inputs, 16);
    for (std::size_t epoch = 0; epoch < 2; ++epoch) {
      Indices used;
      for (std::size_t step = 8 * epoch; step < 8 * epoch + 8; ++step) {
        EXPECT_EQ(plan.samples(static_cast<std::int64_t>(step % 8)).own.first, global[step]);
        global[step] += static_cast<std::int64_t>(steps[step].size());
        used.insert(used.end(), steps[step].begin(), steps[step].end());
      }
      EXPECT_FALSE(std::is_sorted(used.begin(), used.end())) << "shuffled";
      std::sort(used.begin(), used.end());
      Indices expected(used.size());
      std::iota(expected.begin(), expected.end(), 0U);
      EXPECT_EQ(used, expected);
      EXPECT_EQ(used.size(), static_cast<std::size_t>(data.size()));
    }
    if (rank < 2) continue;
    for (std::size_t step = 0; step < 16; ++step) {
      EXPECT_EQ(plan.samples(static_cast<std::int64_t>(step % 8)).all, global[step]);
      EXPECT_NEAR(static_cast<double>(global[step]), 9, 2);
    }
  }
}

TEST(BatchSource, EqualShardsAreShuffledDifferently) {
  const Numbered data(40);
  PlanInputs inputs = batches_of(20);
  inputs.options.data.own_shards = true;
  inputs.shards = {40, 40};
  inputs.replicas = 2;
  const auto first = indices_of(data, inputs, 4);
  inputs.rank = 1;
  EXPECT_NE(indices_of(data, inputs, 4), first);
}

TEST(BatchSource, SequentialDataAreReadInOrder) {
  const Numbered data(50, /*is_sequential=*/true);
  PlanInputs inputs = batches_of(16);
  inputs.options.data.threads = 4;
  Indices read;
  for (const Indices& step : indices_of(data, inputs, 4)) read.insert(read.end(), step.begin(), step.end());
  EXPECT_EQ(read.size(), 50U);
  EXPECT_TRUE(std::is_sorted(read.begin(), read.end()));
}

TEST(BatchSource, NothingIsGatheredBehindTheLastStep) {
  const Numbered data(50);
  PlanInputs inputs = batches_of(16);
  inputs.options.data = {.threads = 2, .batches_ahead = 4};
  indices_of(data, inputs, 6);
  EXPECT_EQ(data.calls_, 6);
}

TEST(BatchSource, BatchesAheadAreGlobalBatches) {
  const Numbered data(50);
  PlanInputs inputs = batches_of(16);
  inputs.options.accumulate = 3;
  inputs.options.data = {.threads = 1, .batches_ahead = 2};
  {
    BatchSource<float> source(data, inputs.options.data, inputs.plan(data));
    const BatchSource<float>::Reading reading(source, 100);
    source.seek(0);
    source.next();
    // The micro-batch in use, and those of two global batches. The watchdog ends a wait without end.
    while (data.calls_ < 1 + 2 * 3) std::this_thread::yield();
  }
  EXPECT_EQ(data.calls_, 1 + 2 * 3);
}

TEST(BatchSource, AMicroBatchWithoutSamplesIsNotGathered) {
  const Numbered data(50);
  PlanInputs inputs = batches_of(16);
  inputs.options.accumulate = 3;
  EXPECT_EQ(inputs.plan(data).smallest_micro_batch(), 0);
  indices_of(data, inputs, 4);
  EXPECT_EQ(data.calls_, 3 * 3 + 2) << "the last global batch has two samples";
  inputs.options.accumulate = 2;
  EXPECT_EQ(inputs.plan(data).smallest_micro_batch(), 1);
}

TEST(BatchSource, ItsThreadsTakeNoCoresFromTheKernels) {
  const Numbered data(50);
  PlanInputs inputs = batches_of(16);
  inputs.options.data.threads = 1;
  indices_of(data, inputs, 1);
  EXPECT_EQ(data.kernel_threads_, 1);
}

TEST(BatchSource, AStreamIsReadByOneThread) {
  const Numbered data(50, /*is_sequential=*/true);
  PlanInputs inputs = batches_of(16);
  inputs.options.data.threads = 4;
  const long before = test::threads_at_rest().count;
  BatchSource<float> source(data, inputs.options.data, inputs.plan(data));
  const BatchSource<float>::Reading reading(source, 12);
  source.seek(0);
  source.next();
  EXPECT_EQ(test::threads().count, before + 1);
}

TEST(BatchSource, AResumeNeedsTheSameShards) {
  const Numbered data(23);
  PlanInputs inputs = batches_of(10);
  using Options = std::vector<std::pair<std::string, std::string>>;
  const std::string shards = "samples of the ranks' own shards";
  EXPECT_EQ(inputs.plan(data).options_to_match(),
            (Options{{"training samples", "23"}, {"drop last", "none"}, {shards, "none"}}));
  inputs.options.data.own_shards = true;
  inputs.shards = {23, 9, 40};
  inputs.replicas = 3;
  EXPECT_EQ(inputs.plan(data).options_to_match(),
            (Options{{"training samples", "72"}, {"drop last", "none"}, {shards, "23 9 40"}}));
}

TEST(BatchSource, ThreadsLiveOnlyWhileReading) {
  const Numbered data(50);
  PlanInputs inputs = batches_of(16);
  inputs.options.data.threads = 2;
  const long before = test::threads_at_rest().count;
  BatchSource<float> source(data, inputs.options.data, inputs.plan(data));
  for (std::int64_t step = 0; step < 3; ++step) {
    const BatchSource<float>::Reading reading(source, 12);
    source.seek(step);
    source.next();
    test::await_thread_count(before + 2);
  }
  test::await_thread_count(before);
  EXPECT_LE(data.calls_, 3 + 2) << "what was gathered before a pause is kept";
}

TEST(BatchSource, AFailedGatherSurfacesAtItsStepAndCanBeRepeated) {
  for (const int threads : {0, 1}) {
    Numbered data(50);
    data.failing_call_ = 3;
    PlanInputs inputs = batches_of(16);
    inputs.options.data.threads = threads;
    BatchSource<float> source(data, inputs.options.data, inputs.plan(data));
    for (int attempt = 0; attempt < 2; ++attempt) {
      const BatchSource<float>::Reading reading(source, 12);
      for (std::int64_t step = 2 * attempt; step < 2; ++step) {
        source.seek(step);
        EXPECT_NO_THROW(source.next());
      }
      source.seek(2);
      if (attempt == 0) {
        EXPECT_EQ(farandole::test::message_of<std::runtime_error>([&] { source.next(); }), "no such file");
      } else {
        EXPECT_EQ(source.next().samples.size(), 16U);
      }
    }
  }
}

TEST(BatchSource, WaitingIsMeasured) {
  const Numbered data(50);
  for (const int threads : {0, 1}) {
    PlanInputs inputs = batches_of(16);
    inputs.options.data.threads = threads;
    BatchSource<float> source(data, inputs.options.data, inputs.plan(data));
    const BatchSource<float>::Reading reading(source, 12);
    source.seek(0);
    EXPECT_EQ(source.waited().count(), 0);
    source.next();
    EXPECT_GT(source.waited().count(), 0);
    source.seek(1);
    EXPECT_EQ(source.waited().count(), 0);
  }
}

}  // namespace
}  // namespace farandole::trainer
