// SPDX-License-Identifier: Apache-2.0
// Kernels started by Device::launch give the same bits as reduce() and scale() on host memory. One device is enough.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <string>
#include <vector>

#include "farandole/core/reduce.h"
#include "on_device.h"
#include "random_values.h"

namespace farandole::test {
namespace {

constexpr std::array kOps{ReduceOp::kSum, ReduceOp::kProduct, ReduceOp::kMin, ReduceOp::kMax};
/// Number of elements, and shift of the memory's begin from the allocator's alignment, in elements.
struct Extent {
  std::size_t count, shift;
};
constexpr std::array kExtents{Extent{1, 0}, Extent{17, 1}, Extent{1003, 0}, Extent{4099, 3}, Extent{300'007, 0}};

/// Runs `task` on device copies of `left` and `right`, and compares its output with `wanted`, which is on the host.
void check_task(Communicator& ranks, DeviceTask task, const Buffer& left, const Buffer& right, const Buffer& wanted,
                std::size_t shift, const std::string& what) {
  Device& device = device_of(ranks);
  const std::size_t count = wanted.count() - shift;
  Buffer device_left = to_device(ranks, left.view()), device_right = to_device(ranks, right.view());
  // Elements that the task does not write must keep their values.
  Buffer device_output = to_device(ranks, wanted.view());
  const StreamView stream = StreamView(nullptr, device.space());
  device.fill_zero(device_output.view().part(shift, count).data, count * size_in_bytes(task.output_dtype), stream);
  task.left = device_left.view().part(shift, count).data;
  task.right = device_right.view().part(shift, count).data;
  task.output = device_output.view().part(shift, count).data;
  task.count = count;
  device.launch(std::span(&task, 1), stream);
  device.synchronize(stream);
  EXPECT_TRUE(same_bits(to_host(ranks, device_output.view()).view(), wanted.view())) << what;
}

TEST(DeviceKernels, ReduceAsTheHostDoes) {
  on_each_device([](Communicator& ranks) {
    for (const DType dtype : kAllDTypes) {
      for (const ReduceOp op : kOps) {
        for (const auto [count, shift] : kExtents) {
          const Buffer left = random_values(1, count + shift, dtype, op);
          const Buffer right = random_values(2, count + shift, dtype, op);
          Buffer wanted(count + shift, dtype);
          reduce(wanted.view().data, left.view().data, right.view().data, count + shift, dtype, op);
          DeviceTask task;
          task.kind = DeviceTask::Kind::kReduce;
          task.dtype = task.output_dtype = dtype;
          task.op = op;
          check_task(ranks, task, left, right, wanted, shift,
                     fmt::format("{} of {} {} from {}", name(op), count, name(dtype), shift));
        }
      }
    }
  });
}

TEST(DeviceKernels, ScaleAsTheHostDoes) {
  on_each_device([](Communicator& ranks) {
    for (const DType dtype : kAllDTypes) {
      if (dtype == DType::kBool) continue;
      for (const double factor : {0.25, 1.0 / 3, 3.0}) {
        for (const auto [count, shift] : kExtents) {
          const Buffer input = random_values(3, count + shift, dtype, ReduceOp::kSum);
          Buffer wanted(count + shift, dtype);
          scale(wanted.view().data, input.view().data, count + shift, dtype, factor);
          DeviceTask task;
          task.kind = DeviceTask::Kind::kScale;
          task.dtype = task.output_dtype = dtype;
          task.factor = factor;
          check_task(ranks, task, input, input, wanted, shift, fmt::format("{} {} by {}", count, name(dtype), factor));
        }
      }
    }
  });
}

TEST(DeviceKernels, CastsAreExactIfBothTypesHoldTheValue) {
  constexpr std::array kFloats{DType::kF16, DType::kBF16, DType::kF32, DType::kF64};
  on_each_device([&](Communicator& ranks) {
    for (const DType from : kFloats) {
      for (const DType to : kFloats) {
        if (from == to) continue;
        for (const auto [count, shift] : kExtents) {
          Buffer input(count + shift, from), wanted(count + shift, to);
          for (std::size_t i = 0; i < count + shift; ++i) {
            const double number = static_cast<double>(i % 257) - 128;
            store(input.view(), i, number);
            store(wanted.view(), i, number);
          }
          DeviceTask task;
          task.kind = DeviceTask::Kind::kCast;
          task.dtype = from;
          task.output_dtype = to;
          check_task(ranks, task, input, input, wanted, shift, fmt::format("{} {} to {}", count, name(from), name(to)));
        }
      }
    }
  });
}

TEST(DeviceKernels, PackManyTensorsByOneCall) {
  on_each_device([](Communicator& ranks) {
    Device& device = device_of(ranks);
    std::vector<Buffer> parts;
    std::vector<DeviceTask> tasks;
    std::size_t total = 0;
    constexpr std::size_t kTensors = 161;  // more than one launch takes
    for (std::size_t i = 0; i < kTensors; ++i) total += 1 + i * i % 5003;
    Buffer packed = ranks.allocate(total, DType::kF32, ranks.device());
    Buffer wanted(total, DType::kF32);
    std::size_t first = 0;
    for (std::size_t i = 0; i < kTensors; ++i) {
      const std::size_t count = 1 + i * i % 5003;
      const Buffer part = random_values(static_cast<unsigned>(i), count, DType::kF32, ReduceOp::kSum);
      std::memcpy(wanted.view().part(first, count).data, part.view().data, part.view().size_in_bytes());
      parts.push_back(to_device(ranks, part.view()));
      DeviceTask task;
      task.dtype = task.output_dtype = DType::kF32;
      task.left = parts.back().view().data;
      task.output = packed.view().part(first, count).data;
      task.count = count;
      tasks.push_back(task);
      first += count;
    }
    const StreamView stream(nullptr, device.space());
    device.launch(tasks, stream);
    device.synchronize(stream);
    EXPECT_TRUE(same_bits(to_host(ranks, packed.view()).view(), wanted.view()));
  });
}

}  // namespace
}  // namespace farandole::test
