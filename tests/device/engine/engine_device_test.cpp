// SPDX-License-Identifier: Apache-2.0
// The engine on device memory: compares every collective with a computation in double. The ranks are processes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "../broken_device.h"
#include "../double_calls.h"
#include "../on_device.h"
#include "device_client.h"
#include "values.h"

namespace farandole::test {
namespace {

using ::testing::HasSubstr;

constexpr DType kTypes[] = {DType::kU8,  DType::kI8,  DType::kU16,  DType::kI16, DType::kI32, DType::kI64, DType::kU32,
                            DType::kU64, DType::kF16, DType::kBF16, DType::kF32, DType::kF64, DType::kBool};

farandole_reduce_op of(ReduceOp op) {
  return static_cast<farandole_reduce_op>(op);
}

/// Submits one tensor and returns its result.
Buffer run(const DeviceRequest& request, std::unique_ptr<TensorOnDevice> tensor) {
  DeviceTensors one;
  one.push_back(std::move(tensor));
  must_submit(request, one);
  return one.front()->result();
}

std::string sum_differs(Buffer result, ReduceOp op = ReduceOp::kSum) {
  const DType dtype = result.dtype();
  return first_difference(std::as_const(result).view(),
                          [&](std::size_t i) { return reduced(engine_rank().size, i, dtype, op); });
}

TEST(EngineOnDevice, ReducesEveryTypeByEveryOperation) {
  for (const DType dtype : kTypes) {
    for (const ReduceOp op : kAllReduceOps) {
      if (op == ReduceOp::kAverage || !is_defined(op, dtype)) continue;
      const std::string name = "reduce " + std::string(farandole::name(dtype)) + " " + std::string(farandole::name(op));
      EXPECT_EQ(sum_differs(run({.name = name, .op = of(op)}, tensor_of(100, dtype, op)), op), "") << name;
    }
  }
}

TEST(EngineOnDevice, AveragesAndMultiplies) {
  const double size = engine_rank().size;
  for (const DType dtype : {DType::kF32, DType::kF64, DType::kF16}) {
    Buffer average = run({.name = "average", .op = FARANDOLE_AVERAGE, .postscale = size}, tensor_of(100, dtype));
    EXPECT_EQ(first_difference(std::as_const(average).view(),
                               [&](std::size_t i) { return reduced(engine_rank().size, i, dtype, ReduceOp::kSum); }),
              "");
    EXPECT_EQ(sum_differs(run({.name = "factors", .prescale = 2.0, .postscale = 0.5}, tensor_of(100, dtype))), "");
  }
  // Averages of integers take the queue, because they need a wider sum.
  Buffer truncated = run({.name = "integers", .op = FARANDOLE_AVERAGE}, tensor_of(100, DType::kI32));
  EXPECT_EQ(first_difference(std::as_const(truncated).view(),
                             [&](std::size_t i) {
                               return std::trunc(reduced(engine_rank().size, i, DType::kI32, ReduceOp::kSum) / size);
                             }),
            "");
}

/// In place, large, small, without elements, of an event of the program's own.
TEST(EngineOnDevice, ReducesTensorsOfEverySizeAndPlace) {
  const StreamView other = engine_rank().device->make_stream();
  for (const std::size_t count : {0UL, 1UL, 1000UL, 40'009UL, 1'200'007UL}) {
    for (const int way : {0, 1, 2, 3}) {
      auto tensor = tensor_of(count, DType::kF32);
      tensor->in_place = way % 2 == 1;
      if (way >= 2) tensor->own_stream = other;
      EXPECT_EQ(
          sum_differs(run({.name = "size " + std::to_string(count) + "/" + std::to_string(way)}, std::move(tensor))),
          "");
    }
  }
}

/// The stream that writes an input of rank 0 hangs until the collective is on the device.
TEST(EngineOnDevice, WaitsForInputsHoweverLate) {
  for (const farandole_collective collective : {FARANDOLE_ALLREDUCE, FARANDOLE_ALLGATHER}) {
    const std::string name = collective == FARANDOLE_ALLREDUCE ? "late allreduce" : "late allgather";
    for (const bool has_event : {false, false, true}) {  // the first one connects the ranks
      DeviceTensors tensors;
      for (const std::size_t count : {70UL, 700UL}) tensors.push_back(tensor_of(count, DType::kF32));
      const StreamView late = engine_rank().device->make_stream();
      (has_event ? tensors.front()->own_stream : tensors.front()->stream) = late;
      std::optional<StuckStream> stuck;
      tensors.front()->before_input = [&] {
        if (engine_rank().rank == 0) stuck.emplace(*engine_rank().device, late);
      };
      must_submit({.name = name, .collective = collective}, tensors);
      for (int i = 0; i < 3; ++i) barrier();
      stuck.reset();
      for (std::size_t i = 0; i < tensors.size(); ++i) {
        Buffer result = tensors[i]->result();
        const std::size_t count = i == 0 ? 70 : 700;
        EXPECT_EQ(first_difference(std::as_const(result).view(),
                                   [&](std::size_t k) {
                                     if (collective == FARANDOLE_ALLREDUCE)
                                       return reduced(engine_rank().size, k, DType::kF32, ReduceOp::kSum);
                                     return value(static_cast<int>(k / count), k % count, DType::kF32, ReduceOp::kSum);
                                   }),
                  "");
      }
    }
  }
}

/// Tensors of one request, and requests that are submitted together, share buffers by type and memory.
TEST(EngineOnDevice, PacksSmallTensors) {
  for (int step = 0; step < 3; ++step) {
    const farandole_counters before = counters();
    DeviceTensors tensors;
    for (std::size_t i = 0; i < 20; ++i) {
      tensors.push_back(tensor_of(1 + 37 * i, i % 3 == 0 ? DType::kF64 : DType::kF32));
      tensors.back()->on_host = i % 5 == 4;
    }
    must_submit({.name = "packed"}, tensors);
    for (const auto& tensor : tensors) EXPECT_EQ(sum_differs(tensor->result()), "");
    const farandole_counters after = counters();
    EXPECT_EQ(after.device_buckets - before.device_buckets, 2U) << "one for each type";
    EXPECT_EQ(after.buckets - before.buckets, 4U) << "as many on the host";
    EXPECT_EQ(after.device_kernels - before.device_kernels, 4U) << "two pack, two unpack";
    if (step > 0) {
      EXPECT_EQ(after.host_waits - before.host_waits, 0U);
    }
  }
}

/// What a training step does: gradients under names of their own, in another order on each rank.
TEST(EngineOnDevice, AStepWaitsForNoDeviceOnTheHost) {
  constexpr std::size_t kGradients = 60;
  const double size = engine_rank().size;
  unsigned long waits = 0;
  for (int step = 0; step < 6; ++step) {
    // The first steps make plans, buffers and connections.
    const farandole_counters before = counters();
    const unsigned long synchronized = calls_of("cuStreamSynchronize") + calls_of("cuEventSynchronize");
    std::vector<DeviceTensors> gradients(kGradients);
    for (std::size_t i = 0; i < kGradients; ++i) {
      const std::size_t k = (i * 7 + static_cast<std::size_t>(engine_rank().rank) * 11) % kGradients;
      gradients[k].push_back(tensor_of(10 + 111 * k, DType::kF32));
      must_submit({.name = "gradient " + std::to_string(k), .op = FARANDOLE_AVERAGE, .postscale = size}, gradients[k]);
    }
    for (const DeviceTensors& each : gradients) each.front()->wait();
    const farandole_counters after = counters();
    waits = after.host_waits - before.host_waits;
    EXPECT_EQ(calls_of("cuStreamSynchronize") + calls_of("cuEventSynchronize"), synchronized);
    for (const DeviceTensors& each : gradients) EXPECT_EQ(sum_differs(each.front()->result()), "");
  }
  EXPECT_EQ(waits, 0U);
}

TEST(EngineOnDevice, BroadcastsTensorsOfSeveralTypes) {
  const int root = engine_rank().size - 1;
  DeviceTensors tensors;
  for (const std::size_t count : {1UL, 100UL, 40'000UL, 1'100'000UL}) {
    for (const DType dtype : {DType::kF32, DType::kI64, DType::kBool}) {
      tensors.push_back(tensor_of(count, dtype));
      tensors.back()->in_place = count == 100;
    }
  }
  must_submit({.name = "broadcast", .collective = FARANDOLE_BROADCAST, .root = root}, tensors);
  for (const auto& tensor : tensors) {
    Buffer result = tensor->result();
    const DType dtype = result.dtype();
    EXPECT_EQ(first_difference(std::as_const(result).view(),
                               [&](std::size_t i) { return value(root, i, dtype, ReduceOp::kSum); }),
              "");
  }
}

/// Rank k has k rows.
TEST(EngineOnDevice, GathersUnevenRows) {
  constexpr std::size_t kWidth = 20'011;
  const int size = engine_rank().size;
  const StreamView other = engine_rank().device->make_stream();
  for (const DType dtype : {DType::kF32, DType::kU8, DType::kBF16}) {
    const int rows = engine_rank().rank;
    auto tensor = std::make_unique<TensorOnDevice>(
        values(engine_rank().rank, 0, kWidth * static_cast<std::size_t>(rows), dtype, ReduceOp::kSum), rows, kWidth);
    if (dtype != DType::kF32) tensor->own_stream = other;
    std::vector<double> expected;
    for (int rank = 0; rank < size; ++rank) {
      for (std::size_t i = 0; i < kWidth * static_cast<std::size_t>(rank); ++i) {
        expected.push_back(value(rank, i, dtype, ReduceOp::kSum));
      }
    }
    Buffer result = run({.name = "rows", .collective = FARANDOLE_ALLGATHER}, std::move(tensor));
    ASSERT_EQ(result.count(), expected.size());
    EXPECT_EQ(first_difference(std::as_const(result).view(), [&](std::size_t i) { return expected[i]; }), "");
  }
}

TEST(EngineOnDevice, GathersEqualRowsByNcclsOwnCollective) {
  const int size = engine_rank().size;
  if (size == 1) GTEST_SKIP() << "needs several ranks";
  const unsigned long gathers = calls_of("ncclAllGather"), scatters = calls_of("ncclReduceScatter");
  for (int repetition = 0; repetition < 2; ++repetition) {
    Buffer all = run({.name = "equal rows", .collective = FARANDOLE_ALLGATHER}, tensor_of(7, DType::kF32));
    EXPECT_EQ(first_difference(
                  std::as_const(all).view(),
                  [](std::size_t i) { return value(static_cast<int>(i / 7), i % 7, DType::kF32, ReduceOp::kSum); }),
              "");
    const std::size_t rows = 3 * static_cast<std::size_t>(size), own = 3 * static_cast<std::size_t>(engine_rank().rank);
    Buffer part = run({.name = "equal parts", .collective = FARANDOLE_REDUCE_SCATTER}, tensor_of(rows, DType::kF32));
    EXPECT_EQ(first_difference(std::as_const(part).view(),
                               [&](std::size_t i) { return reduced(size, own + i, DType::kF32, ReduceOp::kSum); }),
              "");
  }
  if (calls_of("ncclAllReduce") == 0) return;  // a GPU, which counts nothing
  EXPECT_EQ(calls_of("ncclAllGather") - gathers, 2U);
  EXPECT_EQ(calls_of("ncclReduceScatter") - scatters, 2U);
}

/// The root's last tensor stays, as on the host.
TEST(EngineOnDevice, BroadcastsIntoASharedOutput) {
  Device& device = *engine_rank().device;
  constexpr std::int64_t kCount = 1000;
  const std::int64_t shape[] = {kCount};
  float* const memory = static_cast<float*>(device.allocate(3 * kCount * sizeof(float)));
  std::vector<float> values(2 * kCount, 1.0F), came(kCount);
  std::fill_n(values.begin() + kCount, kCount, 2.0F);
  const StreamView stream = engine_rank().stream;
  device.copy(memory, values.data(), 2 * kCount * sizeof(float), stream);
  volatile std::int32_t done = 0;
  farandole_tensor tensors[2];
  for (int i = 0; i < 2; ++i) {
    tensors[i] = sized<farandole_tensor>();
    tensors[i].dtype = FARANDOLE_F32;
    tensors[i].dimensions = 1;
    tensors[i].shape = shape;
    tensors[i].input = memory + i * kCount;
    tensors[i].output = memory + 2 * kCount;
    tensors[i].memory = FARANDOLE_CUDA_MEMORY;
    tensors[i].device = device.info().ordinal;
    tensors[i].stream = stream.handle;
    tensors[i].context = const_cast<std::int32_t*>(&done);
    tensors[i].done = [](void* context, const farandole_result* result) {
      EXPECT_EQ(result->error, nullptr);
      __atomic_fetch_add(static_cast<std::int32_t*>(context), 1, __ATOMIC_RELEASE);
    };
  }
  auto request = sized<farandole_request>();
  request.name = "twice";
  request.collective = FARANDOLE_BROADCAST;
  request.tensors = tensors;
  request.tensor_count = 2;
  farandole_error* error = nullptr;
  ASSERT_EQ(farandole_submit(&request, &error), 0) << farandole_error_text(error);
  farandole_wait_until(&done);
  while (__atomic_load_n(&done, __ATOMIC_ACQUIRE) < 2) std::this_thread::yield();
  device.copy(came.data(), memory + 2 * kCount, kCount * sizeof(float), stream);
  device.synchronize(stream);
  EXPECT_EQ(came, std::vector<float>(kCount, 2.0F));
  device.release(memory);
}

TEST(EngineOnDevice, ExchangesSplits) {
  const int size = engine_rank().size, self = engine_rank().rank;
  const auto rows_to = [](int from, int to) { return static_cast<std::int64_t>((3 * from + to) % 4); };
  for (int repetition = 0; repetition < 3; ++repetition) {
    std::vector<std::int64_t> splits;
    for (int to = 0; to < size; ++to) splits.push_back(rows_to(self, to));
    const std::int64_t rows = std::accumulate(splits.begin(), splits.end(), std::int64_t{0});
    auto tensor = tensor_of(static_cast<std::size_t>(rows), DType::kF32);
    tensor->splits = splits;
    std::vector<double> expected;
    std::vector<std::int64_t> received;
    for (int from = 0; from < size; ++from) {
      std::int64_t first = 0;
      for (int to = 0; to < self; ++to) first += rows_to(from, to);
      received.push_back(rows_to(from, self));
      for (std::int64_t row = first; row < first + received.back(); ++row) {
        expected.push_back(value(from, static_cast<std::size_t>(row), DType::kF32, ReduceOp::kSum));
      }
    }
    DeviceTensors one;
    one.push_back(std::move(tensor));
    must_submit({.name = "exchange", .collective = FARANDOLE_ALLTOALL}, one);
    Buffer result = one.front()->result();
    ASSERT_EQ(result.count(), expected.size());
    EXPECT_EQ(first_difference(std::as_const(result).view(), [&](std::size_t i) { return expected[i]; }), "");
    EXPECT_EQ(one.front()->received_splits(), received);
  }
}

TEST(EngineOnDevice, ScattersSums) {
  const auto size = static_cast<std::size_t>(engine_rank().size), self = static_cast<std::size_t>(engine_rank().rank);
  for (const std::size_t count : {size, 10 * size + 1, std::size_t{1}}) {
    Buffer result = run({.name = "scatter " + std::to_string(count), .collective = FARANDOLE_REDUCE_SCATTER},
                        tensor_of(count, DType::kF32));
    std::size_t first = 0;
    for (std::size_t rank = 0; rank < self; ++rank) first += count / size + (rank < count % size ? 1 : 0);
    ASSERT_EQ(result.count(), count / size + (self < count % size ? 1 : 0));
    EXPECT_EQ(first_difference(
                  std::as_const(result).view(),
                  [&](std::size_t i) { return reduced(engine_rank().size, first + i, DType::kF32, ReduceOp::kSum); }),
              "");
  }
}

TEST(EngineOnDevice, AdasumGivesTheBitsOfTheHost) {
  for (const DType dtype : {DType::kF32, DType::kF64, DType::kF16}) {
    std::vector<Buffer> results[2];
    for (const bool on_host : {false, true}) {
      DeviceTensors tensors;
      for (const std::size_t count : {1000UL, 0UL, 3UL}) {
        tensors.push_back(tensor_of(count, dtype));
        tensors.back()->on_host = on_host;
      }
      must_submit({.name = on_host ? "adasum on host" : "adasum", .op = FARANDOLE_ADASUM}, tensors);
      for (const auto& tensor : tensors) results[on_host ? 1 : 0].push_back(tensor->result());
    }
    for (std::size_t i = 0; i < results[0].size(); ++i) {
      EXPECT_TRUE(same_bits(results[0][i].view(), results[1][i].view())) << i;
    }
  }
}

/// The last rank has two batches, the others three.
TEST(EngineOnDevice, AJoinedRankChangesNoResult) {
  const int size = engine_rank().size;
  const bool leaves_early = engine_rank().rank == size - 1;
  for (const ReduceOp op : kAllReduceOps) {
    for (const DType dtype : {DType::kF32, DType::kI16}) {
      if (op == ReduceOp::kAverage || !is_defined(op, dtype)) continue;
      for (int batch = 0; batch < (leaves_early ? 1 : 2); ++batch) {
        DeviceTensors tensors;
        for (const std::size_t count : {100UL, 7UL, 1'200'000UL}) tensors.push_back(tensor_of(count, dtype, op));
        must_submit({.name = "batch", .op = of(op), .prescale = 1.0}, tensors);
        const int ranks = batch == 0 ? size : std::max(size - 1, 1);
        for (const auto& tensor : tensors) {
          Buffer result = tensor->result();
          EXPECT_EQ(first_difference(std::as_const(result).view(),
                                     [&](std::size_t i) { return reduced(ranks, i, dtype, op); }),
                    "");
        }
      }
      join();
    }
  }
}

TEST(EngineOnDevice, AHostTensorOnOneRankIsAMismatch) {
  if (engine_rank().size == 1) GTEST_SKIP() << "needs several ranks";
  DeviceTensors one;
  one.push_back(tensor_of(10, DType::kF32));
  one.front()->on_host = engine_rank().rank == 0;
  must_submit({.name = "somewhere"}, one);
  one.front()->wait();
  ASSERT_TRUE(one.front()->error().has_value());
  EXPECT_EQ(one.front()->error()->first, FARANDOLE_MISMATCH);
  EXPECT_THAT(one.front()->error()->second, HasSubstr("in device memory"));
  EXPECT_EQ(sum_differs(run({.name = "goes on"}, tensor_of(10, DType::kF32))), "");
}

/// Sets negotiate by themselves, so their collectives have no common order on the device but the agreed one.
TEST(EngineOnDevice, ProcessSetsRunInAnyOrder) {
  const int size = engine_rank().size, self = engine_rank().rank;
  if (size < 3) GTEST_SKIP() << "needs three ranks";
  std::vector<std::vector<std::int32_t>> members{{}, {0, 1}, {1, 2}, {0, 2}};
  std::vector<std::int32_t> sets{FARANDOLE_GLOBAL_SET};
  for (int rank = 0; rank < size; ++rank) members[0].push_back(rank);
  for (std::size_t i = 1; i < members.size(); ++i) {
    sets.push_back(add_set(members[i]));
    ASSERT_GE(sets.back(), 0);
  }
  for (int step = 0; step < 10; ++step) {
    std::vector<DeviceTensors> pending(members.size());
    for (std::size_t k = 0; k < members.size(); ++k) {
      const std::size_t i = (k + static_cast<std::size_t>(self + step)) % members.size();
      if (std::find(members[i].begin(), members[i].end(), self) == members[i].end()) continue;
      pending[i].push_back(tensor_of(1000, DType::kF32));
      must_submit({.name = "in a set", .process_set = sets[i]}, pending[i]);
    }
    for (std::size_t i = 0; i < members.size(); ++i) {
      if (pending[i].empty()) continue;
      Buffer result = pending[i].front()->result();
      EXPECT_EQ(first_difference(std::as_const(result).view(),
                                 [&](std::size_t element) {
                                   double sum = 0;
                                   for (const int rank : members[i])
                                     sum += value(rank, element, DType::kF32, ReduceOp::kSum);
                                   return sum;
                                 }),
                "");
    }
  }
  for (std::size_t i = sets.size(); i-- > 1;) {
    remove_set(sets[i]);
  }
}

TEST(EngineOnDevice, RefusesWhatIsNotOnTheRanksDevice) {
  Device& device = *engine_rank().device;
  float on_host[4] = {};
  const std::int64_t shape[] = {4};
  void* const on_device = device.allocate(256);
  const auto error_of = [&](const void* input, int ordinal, void* stream) {
    auto tensor = sized<farandole_tensor>();
    tensor.dtype = FARANDOLE_F32;
    tensor.dimensions = 1;
    tensor.shape = shape;
    tensor.input = input;
    tensor.output = on_device;
    tensor.memory = FARANDOLE_CUDA_MEMORY;
    tensor.device = ordinal;
    tensor.stream = stream;
    tensor.done = [](void*, const farandole_result*) { ADD_FAILURE() << "done was called"; };
    auto request = sized<farandole_request>();
    request.name = "refused";
    request.tensors = &tensor;
    request.tensor_count = 1;
    farandole_error* error = nullptr;
    EXPECT_EQ(farandole_submit(&request, &error), 1);
    EXPECT_EQ(farandole_error_get_kind(error), FARANDOLE_INVALID_ARGUMENT);
    std::string text = farandole_error_text(error);
    farandole_error_free(error);
    return text;
  };
  const int own = device.info().ordinal;
  EXPECT_THAT(error_of(on_host, own, nullptr), HasSubstr("its address is in host memory"));
  EXPECT_THAT(error_of(static_cast<char*>(on_device) + 65, own, nullptr), HasSubstr("at a multiple of 4 bytes"));
  void* const per_thread = reinterpret_cast<void*>(2);  // cudaStreamPerThread
  EXPECT_THAT(error_of(on_device, own, per_thread), HasSubstr("another stream in each thread"));
  EXPECT_THAT(error_of(on_device, own + 1, nullptr), HasSubstr("FARANDOLE_DEVICE"));
  EXPECT_THAT(error_of(on_device, -1, nullptr), HasSubstr("device -1"));
  barrier();
  device.release(on_device);
  EXPECT_EQ(sum_differs(run({.name = "refused"}, tensor_of(4, DType::kF32))), "");
}

/// As the last test: once there are several sets, collectives take the agreed order for the rest of the job, and `done`
/// comes when they are complete.
TEST(EngineOnDevice, WithSeveralSetsDoneMeansComplete) {
  if (engine_rank().size == 1) GTEST_SKIP() << "needs several ranks";
  for (int i = 0; i < 2; ++i) (void)run({.name = "first"}, tensor_of(1000, DType::kF32));  // connects
  const std::int32_t set = add_set({0});
  ASSERT_GE(set, 0);
  DeviceTensors one;
  one.push_back(tensor_of(1000, DType::kF32));
  one.front()->stream = engine_rank().device->make_stream();
  std::optional<StuckStream> stuck;
  one.front()->before_input = [&] {
    if (engine_rank().rank == 0) stuck.emplace(*engine_rank().device, one.front()->stream);
  };
  must_submit({.name = "late"}, one);
  for (int i = 0; i < 3; ++i) barrier();
  EXPECT_FALSE(one.front()->is_done());
  barrier();
  stuck.reset();
  EXPECT_EQ(sum_differs(one.front()->result()), "");
  remove_set(set);
}

}  // namespace
}  // namespace farandole::test
