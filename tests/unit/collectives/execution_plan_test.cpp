// SPDX-License-Identifier: Apache-2.0
// Plans of collectives over messages: which memory holds input and result, and what is copied before and after.
#include "messages/execution_plan.h"

#include <gtest/gtest.h>

#include <array>
#include <vector>

namespace farandole {
namespace {

using Memory = ExecutionPlan::Memory;

/// Addresses that no plan may read or write.
float* const kInput = reinterpret_cast<float*>(0x1000);
float* const kOutput = reinterpret_cast<float*>(0x2000);

Call call_of(Collective collective, std::size_t in, std::size_t out, int root = -1) {
  Call call;
  call.collective = collective;
  call.input = {kInput, in, DType::kF32};
  call.output = {kOutput, out, DType::kF32};
  call.root = root;
  return call;
}

ExecutionPlan plan(const Call& call, std::string_view algorithm, int rank, int size) {
  return plan_execution(call, Selection::schedule(*find_algorithm(call.collective, algorithm), 1), rank, size);
}

TEST(ExecutionPlan, AllreduceReadsTheInputAndWritesTheOutput) {
  const ExecutionPlan made = plan(call_of(Collective::kAllreduce, 100, 100), "ring", 1, 3);
  EXPECT_FALSE(made.has_prologue);
  EXPECT_EQ(made.input.memory, Memory::kInput);
  EXPECT_EQ(made.data.memory, Memory::kOutput);
  EXPECT_EQ(made.offsets.back(), 100U);
  EXPECT_EQ(made.staged_bytes + made.full_vector_bytes + made.delivered_bytes, 0U);
}

TEST(ExecutionPlan, FactorIsAppliedWhileTheInputIsCopied) {
  Call call = call_of(Collective::kAllreduce, 100, 100);
  call.prescale = 0.5;
  ExecutionPlan made = plan(call, "ring", 0, 2);
  EXPECT_TRUE(made.has_prologue);
  EXPECT_EQ(made.prologue_target, Memory::kOutput);
  EXPECT_EQ(made.input.memory, Memory::kOutput);
  EXPECT_EQ(made.staged_bytes, 0U);
  call = call_of(Collective::kReduceScatter, 100, 50);
  call.prescale = 0.5;
  made = plan(call, "ring", 0, 2);
  EXPECT_EQ(made.prologue_target, Memory::kStaged);
  EXPECT_EQ(made.staged_bytes, 400U);
}

TEST(ExecutionPlan, ReduceScatterHoldsTheVectorInOwnMemory) {
  const ExecutionPlan made = plan(call_of(Collective::kReduceScatter, 96, 32), "ring", 2, 3);
  EXPECT_EQ(made.data.memory, Memory::kFullVector);
  EXPECT_EQ(made.full_vector_bytes, 384U);
  EXPECT_EQ(made.result_byte, 256U);
  EXPECT_EQ(made.delivered_bytes, 128U);
}

TEST(ExecutionPlan, AllgatherReadsItsChunkAtItsLayoutOffset) {
  const std::array<std::size_t, 3> counts{10, 20, 30};
  Call call = call_of(Collective::kAllgather, 20, 60);
  call.counts = counts;
  const ExecutionPlan made = plan(call, "ring", 1, 3);
  EXPECT_EQ(made.input.first_byte, 40U);
  EXPECT_EQ(made.data.memory, Memory::kOutput);
  EXPECT_EQ(made.first_result, 1);
  EXPECT_EQ(made.result_pieces, 1);
}

TEST(ExecutionPlan, AlltoallInPlaceCopiesItsInput) {
  Call call = call_of(Collective::kAlltoall, 60, 60);
  EXPECT_FALSE(plan(call, "pairwise", 1, 3).has_prologue);
  call.input.data = kOutput;
  const ExecutionPlan made = plan(call, "pairwise", 1, 3);
  EXPECT_TRUE(made.has_prologue);
  EXPECT_EQ(made.staged_bytes, 240U);
  EXPECT_EQ(made.data.memory, Memory::kOutput);
  EXPECT_EQ(made.data.first_byte, 240U);
}

TEST(ExecutionPlan, OnlyTheRootOfAReduceHasAResult) {
  EXPECT_GT(plan(call_of(Collective::kReduce, 100, 100, 0), "binomial", 0, 2).result_pieces, 0);
  EXPECT_EQ(plan(call_of(Collective::kReduce, 100, 0, 0), "binomial", 1, 2).result_pieces, 0);
}

/// Planning touches no memory; the host's loops refuse a plan for memory of a device.
TEST(ExecutionPlan, PlanHasTheMemorySpaceOfTheCall) {
  Call call = call_of(Collective::kAllreduce, 100, 100);
  EXPECT_TRUE(plan(call, "ring", 0, 2).space.is_host());
  call.input.space = call.output.space = {MemoryKind::kCuda, 3};
  EXPECT_EQ(plan(call, "ring", 0, 2).space, (MemorySpace{MemoryKind::kCuda, 3}));
}

}  // namespace
}  // namespace farandole
