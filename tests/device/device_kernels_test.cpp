// SPDX-License-Identifier: Apache-2.0
// Kernels started by Device::launch give the same bits as reduce() and scale() on host memory. One device is enough.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "farandole/core/reduce.h"
#include "on_device.h"
#include "random_values.h"

namespace farandole::test {
namespace {

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
      for (const ReduceOp op : kAllReduceOps) {
        if (op == ReduceOp::kAverage || !is_defined(op, dtype)) continue;
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

/// Values whose combinations Min and Max specify, and that no integer of the other kind of order would keep.
template <class T>
std::vector<T> special_values() {
  using Limits = std::numeric_limits<T>;
  std::vector<T> values{0, Limits::denorm_min(), Limits::min(), 1, 1.5, Limits::max(), Limits::infinity()};
  const std::size_t positive = values.size();
  for (std::size_t i = 1; i < positive; ++i) values.push_back(-values[i]);
  return values;
}

/// Orders all pairs of values as integers, takes the minimum or maximum, restores the values, and compares with Min and
/// Max of the host.
template <class T>
void check_order(Communicator& ranks, ReduceOp op, const std::vector<T>& left, const std::vector<T>& right) {
  Device& device = device_of(ranks);
  const StreamView stream(nullptr, device.space());
  const DType dtype = dtype_of<T>, integers = sizeof(T) == 8 ? DType::kI64 : DType::kI32;
  Buffer device_left = to_device(ranks, left), device_right = to_device(ranks, right);
  void *const a = device_left.view().data, *const b = device_right.view().data;
  using Kind = DeviceTask::Kind;
  const std::array ordering{DeviceTask{Kind::kOrder, dtype, dtype, op, a, a, nullptr, left.size()},
                            DeviceTask{Kind::kOrder, dtype, dtype, op, b, b, nullptr, left.size()}};
  const DeviceTask combining{Kind::kReduce, integers, integers, op, b, a, b, left.size()};
  const std::array restoring{DeviceTask{Kind::kRestore, dtype, dtype, op, a, a, nullptr, left.size()},
                             DeviceTask{Kind::kRestore, dtype, dtype, op, b, b, nullptr, left.size()}};
  device.launch(ordering, stream);
  device.launch({&combining, 1}, stream);
  device.launch(restoring, stream);
  device.synchronize(stream);
  std::vector<T> wanted(left.size());
  reduce(wanted.data(), left.data(), right.data(), left.size(), dtype, op);
  EXPECT_TRUE(same_bits(to_host(ranks, device_left.view()).view(), left)) << name(dtype) << " restored, " << name(op);
  EXPECT_TRUE(same_bits(to_host(ranks, device_right.view()).view(), wanted)) << name(op) << " of " << name(dtype);
}

template <class T, class Bits>
void check_orders(Communicator& ranks) {
  const std::vector<T> numbers = special_values<T>();
  std::vector<T> nans;
  const auto infinity = std::bit_cast<Bits>(std::numeric_limits<T>::infinity());
  for (const Bits payload : {Bits{1}, Bits{3}, static_cast<Bits>(~Bits{0} >> 1)}) {
    nans.push_back(std::bit_cast<T>(static_cast<Bits>(infinity | payload)));
    nans.push_back(std::bit_cast<T>(static_cast<Bits>(~(~Bits{0} >> 1) | infinity | payload)));
  }
  std::vector<T> left, right;
  const auto add_pairs = [&](const std::vector<T>& some, const std::vector<T>& others) {
    for (const T one : some) {
      for (const T other : others) {
        left.push_back(one);
        right.push_back(other);
      }
    }
  };
  add_pairs(numbers, numbers);
  add_pairs(numbers, nans);
  add_pairs(nans, numbers);
  add_pairs({-T{0}}, {-T{0}, T{1}, T{-1}, nans[0], nans[1]});
  for (const ReduceOp op : {ReduceOp::kMin, ReduceOp::kMax}) check_order(ranks, op, left, right);
}

TEST(DeviceKernels, OrderedIntegersHaveTheMinimaAndMaximaOfTheHost) {
  on_each_device([](Communicator& ranks) {
    check_orders<float, std::uint32_t>(ranks);
    check_orders<double, std::uint64_t>(ranks);
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
