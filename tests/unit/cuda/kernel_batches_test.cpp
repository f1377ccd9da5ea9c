// SPDX-License-Identifier: Apache-2.0
#include "cuda/kernel_batches.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "fake_api.h"
#include "farandole/core/error.h"
#include "farandole/internal/average.h"
#include "message_of.h"

namespace farandole::cuda {
namespace {

using test::message_of;
using testing::ElementsAre;

DeviceTask task_of(DeviceTask::Kind kind, DType dtype, std::size_t count) {
  DeviceTask task;
  task.kind = kind;
  task.dtype = dtype;
  task.output_dtype = dtype;
  task.count = count;
  return task;
}

std::string kernel_named(const DeviceTask& task) {
  return kernel_name(kernel_of(task));
}

std::vector<KernelBatch> batches_of(const std::vector<DeviceTask>& tasks, bool has_large_variants = true) {
  std::vector<KernelBatch> batches;
  for_each_batch(tasks, has_large_variants, [&](const KernelBatch& batch) { batches.push_back(batch); });
  return batches;
}

/// The task count of each batch of `count` tasks.
std::vector<int> task_counts(DeviceTask::Kind kind, DType dtype, std::size_t count, bool has_large_variants = true) {
  std::vector<int> counts;
  const std::vector<DeviceTask> tasks(count, task_of(kind, dtype, 3));
  for (const KernelBatch& batch : batches_of(tasks, has_large_variants)) {
    const auto task_count = static_cast<int>(batch.arguments.task_count);
    EXPECT_LE(task_count, kCapacities.at(batch.variant));
    EXPECT_TRUE(batch.variant == 0 || task_count > kCapacities.at(batch.variant - 1));
    counts.push_back(task_count);
  }
  return counts;
}

TEST(KernelBatches, EveryTaskHasTheKernelOfItsName) {
  std::set<std::string> names;
  for (int kernel = 0; kernel < kKernelCount; ++kernel) names.insert(kernel_name(kernel));
  names.erase("");
  // One copy; reductions; scales but of bool; casts but to the same type, and to types of sums and back; ordering of
  // f32 and f64 for minimum and maximum, and back; bitwise operations of bool and of unsigned integers.
  EXPECT_EQ(names.size(), 1U + 13 * 4 + 12 + 4 * 3 + 6 * 2 + 2 * 2 * 2 + 5 * 3);
  for (const DType dtype : kAllDTypes) {
    EXPECT_EQ(kernel_named(task_of(DeviceTask::Kind::kCopy, dtype, 1)), "farandole_copy");
    for (const ReduceOp op : kAllReduceOps) {
      if (is_bitwise(op)) continue;
      DeviceTask task = task_of(DeviceTask::Kind::kReduce, dtype, 1);
      task.op = op;
      EXPECT_EQ(kernel_named(task), "farandole_reduce_" + std::string(name(dtype)) + "_" +
                                        std::string(op == ReduceOp::kAverage ? "sum" : name(op)));
    }
    if (dtype == DType::kBool) continue;
    EXPECT_EQ(kernel_named(task_of(DeviceTask::Kind::kScale, dtype, 1)), "farandole_scale_" + std::string(name(dtype)));
  }
  for (const DType from : {DType::kF16, DType::kBF16, DType::kF32, DType::kF64}) {
    for (const DType to : {DType::kF16, DType::kBF16, DType::kF32, DType::kF64}) {
      DeviceTask task = task_of(DeviceTask::Kind::kCast, from, 1);
      task.output_dtype = to;
      EXPECT_EQ(kernel_named(task), from == to
                                        ? "farandole_copy"
                                        : "farandole_cast_" + std::string(name(from)) + "_" + std::string(name(to)));
    }
  }
}

TEST(KernelBatches, SignedIntegersUseTheBitwiseKernelsOfUnsignedOnes) {
  for (const auto& [dtype, kernel_type] : {std::pair(DType::kBool, "bool"),
                                           {DType::kU8, "u8"},
                                           {DType::kI8, "u8"},
                                           {DType::kU16, "u16"},
                                           {DType::kI16, "u16"},
                                           {DType::kU32, "u32"},
                                           {DType::kI32, "u32"},
                                           {DType::kU64, "u64"},
                                           {DType::kI64, "u64"}}) {
    for (const ReduceOp op : {ReduceOp::kBitAnd, ReduceOp::kBitOr, ReduceOp::kBitXor}) {
      DeviceTask task = task_of(DeviceTask::Kind::kReduce, dtype, 1);
      task.op = op;
      EXPECT_EQ(kernel_named(task), "farandole_reduce_" + std::string(kernel_type) + "_" + std::string(name(op)));
    }
  }
  DeviceTask task = task_of(DeviceTask::Kind::kReduce, DType::kBF16, 1);
  task.op = ReduceOp::kBitOr;
  EXPECT_NE(message_of<Unsupported>([&] { kernel_of(task); }).find("bit_or of bf16"), std::string::npos);
}

TEST(KernelBatches, CastIntegersToTheTypeOfTheirSumsAndBack) {
  for (const DType dtype : {DType::kU8, DType::kI8, DType::kU16, DType::kI16, DType::kI32, DType::kU32}) {
    for (const bool widens : {true, false}) {
      const DType from = widens ? dtype : sum_type(dtype), to = widens ? sum_type(dtype) : dtype;
      DeviceTask task = task_of(DeviceTask::Kind::kCast, from, 1);
      task.output_dtype = to;
      EXPECT_EQ(kernel_named(task), "farandole_cast_" + std::string(name(from)) + "_" + std::string(name(to)));
    }
  }
}

TEST(KernelBatches, OrderForMinimumAndMaximumAndRestore) {
  for (const DType dtype : {DType::kF32, DType::kF64}) {
    for (const ReduceOp op : {ReduceOp::kMin, ReduceOp::kMax}) {
      DeviceTask task = task_of(DeviceTask::Kind::kOrder, dtype, 1);
      task.op = op;
      const std::string type_and_op = std::string(name(dtype)) + "_" + std::string(name(op));
      EXPECT_EQ(kernel_named(task), "farandole_order_" + type_and_op);
      task.kind = DeviceTask::Kind::kRestore;
      EXPECT_EQ(kernel_named(task), "farandole_restore_" + type_and_op);
    }
  }
  DeviceTask task = task_of(DeviceTask::Kind::kOrder, DType::kF16, 1);
  task.op = ReduceOp::kMin;
  EXPECT_NE(message_of<Unsupported>([&] { kernel_of(task); }).find("f16"), std::string::npos);
}

TEST(KernelBatches, SaysWhichTaskHasNone) {
  EXPECT_NE(message_of<Unsupported>([] { kernel_of(task_of(DeviceTask::Kind::kScale, DType::kBool, 1)); }).find("bool"),
            std::string::npos);
  DeviceTask cast = task_of(DeviceTask::Kind::kCast, DType::kI32, 1);
  cast.output_dtype = DType::kF32;
  EXPECT_NE(message_of<Unsupported>([&] { kernel_of(cast); }).find("i32 to f32"), std::string::npos);
  bool launched = false;
  const std::vector<DeviceTask> tasks{task_of(DeviceTask::Kind::kCopy, DType::kU8, 1), cast};
  EXPECT_THROW(for_each_batch(tasks, true, [&](const KernelBatch&) { launched = true; }), Unsupported);
  EXPECT_FALSE(launched) << "nothing is done by halves";
}

TEST(KernelBatches, GroupsByKernelAndLeavesEmptyTasksOut) {
  const std::vector<KernelBatch> batches = batches_of({
      task_of(DeviceTask::Kind::kReduce, DType::kF32, 5),
      task_of(DeviceTask::Kind::kCopy, DType::kF64, 3),
      task_of(DeviceTask::Kind::kReduce, DType::kF32, 0),
      task_of(DeviceTask::Kind::kReduce, DType::kF32, 9),
      task_of(DeviceTask::Kind::kCopy, DType::kU8, 7),
  });
  ASSERT_EQ(batches.size(), 2U);
  EXPECT_EQ(kernel_name(batches[0].kernel), "farandole_copy");
  ASSERT_EQ(batches[0].arguments.task_count, 2U);
  EXPECT_EQ(batches[0].arguments.tasks[0].task.count, 24U) << "copies count bytes";
  EXPECT_EQ(batches[0].arguments.tasks[1].task.count, 7U);
  EXPECT_EQ(batches[0].arguments.tile_count, 2U) << "of one task each";
  EXPECT_EQ(kernel_name(batches[1].kernel), "farandole_reduce_f32_sum");
  ASSERT_EQ(batches[1].arguments.task_count, 2U);
  EXPECT_EQ(batches[1].arguments.tasks[0].task.count, 5U) << "in the order of the caller";
  EXPECT_EQ(batches[1].arguments.tasks[1].task.count, 9U);
  EXPECT_TRUE(batches_of({}).empty());
  EXPECT_TRUE(batches_of({task_of(DeviceTask::Kind::kCopy, DType::kU8, 0)}).empty());
}

TEST(KernelBatches, CastsHaveTheTilesOfTheLargerType) {
  for (const auto& [from, to] : {std::pair(DType::kF16, DType::kF64), std::pair(DType::kF64, DType::kF16)}) {
    DeviceTask task = task_of(DeviceTask::Kind::kCast, from, 3 * 1024);
    task.output_dtype = to;
    EXPECT_EQ(batches_of({task}).at(0).arguments.tile_count, 3U);
  }
}

TEST(KernelBatches, TilesOfTasksAreNumberedConsecutively) {
  const KernelBatch batch = batches_of({
                                           task_of(DeviceTask::Kind::kCopy, DType::kF32, 2049),
                                           task_of(DeviceTask::Kind::kCopy, DType::kU8, 1),
                                           task_of(DeviceTask::Kind::kCopy, DType::kF64, 3 * 1024),
                                       })
                                .at(0);
  const TiledTask* const tasks = batch.arguments.tasks;
  EXPECT_EQ(std::pair(tasks[0].first_tile, tasks[0].end_tile), std::pair(0U, 2U));
  EXPECT_EQ(std::pair(tasks[1].first_tile, tasks[1].end_tile), std::pair(2U, 3U));
  EXPECT_EQ(std::pair(tasks[2].first_tile, tasks[2].end_tile), std::pair(3U, 6U));
  EXPECT_EQ(batch.arguments.tile_count, 6U);
}

TEST(KernelBatches, PackingKernelsTakeManyTasks) {
  using Kind = DeviceTask::Kind;
  EXPECT_THAT(task_counts(Kind::kCopy, DType::kF32, 64), ElementsAre(64));
  EXPECT_THAT(task_counts(Kind::kCopy, DType::kF32, 161), ElementsAre(161));
  EXPECT_THAT(task_counts(Kind::kCopy, DType::kF32, 682), ElementsAre(682));
  EXPECT_THAT(task_counts(Kind::kCopy, DType::kF32, 800), ElementsAre(682, 118));
  EXPECT_THAT(task_counts(Kind::kScale, DType::kBF16, 300), ElementsAre(300));
  EXPECT_THAT(task_counts(Kind::kScale, DType::kI32, 70), ElementsAre(64, 6));
  EXPECT_THAT(task_counts(Kind::kReduce, DType::kF32, 70), ElementsAre(64, 6));
  EXPECT_THAT(task_counts(Kind::kCopy, DType::kF32, 161, /*has_large_variants=*/false), ElementsAre(64, 64, 33));
}

TEST(KernelBatches, VariantsOfPackingKernelsHaveNames) {
  DeviceTask cast = task_of(DeviceTask::Kind::kCast, DType::kF32, 1);
  cast.output_dtype = DType::kF16;
  EXPECT_EQ(variant_name(kernel_of(cast), 0), "farandole_cast_f32_f16");
  EXPECT_EQ(variant_name(kernel_of(cast), 1), "farandole_cast_f32_f16_x682");
  const int reduce = kernel_of(task_of(DeviceTask::Kind::kReduce, DType::kF32, 1));
  EXPECT_EQ(variant_name(reduce, 0), "farandole_reduce_f32_sum");
  EXPECT_EQ(variant_name(reduce, 1), "");
}

TEST(KernelBatches, AreFullButForTheLast) {
  std::vector<DeviceTask> tasks;
  for (std::size_t i = 1; i <= 150; ++i) {
    DeviceTask task = task_of(DeviceTask::Kind::kScale, DType::kF16, i);
    task.output = pointer_of(i);
    task.left = pointer_of(i + 1);
    task.factor = 0.5;
    tasks.push_back(task);
  }
  const std::vector<KernelBatch> batches = batches_of(tasks, /*has_large_variants=*/false);
  ASSERT_EQ(batches.size(), 3U);
  EXPECT_EQ(batches[0].arguments.task_count, 64U);
  EXPECT_EQ(batches[1].arguments.task_count, 64U);
  EXPECT_EQ(batches[2].arguments.task_count, 22U);
  const KernelTask& last = batches[2].arguments.tasks[21].task;
  EXPECT_EQ(last.output, pointer_of(150));
  EXPECT_EQ(last.left, pointer_of(151));
  EXPECT_EQ(last.count, 150U);
  EXPECT_EQ(last.factor, 0.5);
}

}  // namespace
}  // namespace farandole::cuda
