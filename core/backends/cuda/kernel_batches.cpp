// SPDX-License-Identifier: Apache-2.0
#include "cuda/kernel_batches.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <vector>

#include "farandole/core/error.h"
#include "farandole/internal/average.h"

namespace farandole::cuda {

namespace {

constexpr int kCopyKernel = 0;
constexpr int kFirstReduce = 1;
constexpr int kReduceOps = 4;
constexpr int kFirstScale = kFirstReduce + kDTypeCount * kReduceOps;
constexpr int kFirstCast = kFirstScale + kDTypeCount;
/// Types that are cast to each other.
constexpr std::array kCastTypes{DType::kF16, DType::kBF16, DType::kF32, DType::kF64};
constexpr int kFirstSumCast = kFirstCast + int{kCastTypes.size() * kCastTypes.size()};
/// Integer types that are cast to their sum_type() and back.
constexpr std::array kSummedTypes{DType::kU8, DType::kI8, DType::kU16, DType::kI16, DType::kI32, DType::kU32};
constexpr int kFirstOrder = kFirstSumCast + int{kSummedTypes.size()} * 2;
/// Types with kernels for kOrder and kRestore. Per type, the numbers are in the order kOrder min, kOrder max, kRestore
/// min, kRestore max.
constexpr std::array kOrderedTypes{DType::kF32, DType::kF64};
constexpr int kFirstBits = kFirstOrder + int{kOrderedTypes.size()} * 4;
/// Types with kernels for bitwise operations, and these operations.
constexpr std::array kBitTypes{DType::kBool, DType::kU8, DType::kU16, DType::kU32, DType::kU64};
constexpr std::array kBitOps{ReduceOp::kBitAnd, ReduceOp::kBitOr, ReduceOp::kBitXor};
static_assert(kKernelCount == kFirstBits + int{kBitTypes.size() * kBitOps.size()});

/// Number of a reduction's kernel within its type; an average is a sum.
int number_of(ReduceOp op) {
  return op == ReduceOp::kAverage ? static_cast<int>(ReduceOp::kSum) : static_cast<int>(op);
}

/// The unsigned type with the size of a signed integer type; any other type unchanged.
DType without_sign(DType dtype) {
  switch (dtype) {
    case DType::kI8:
      return DType::kU8;
    case DType::kI16:
      return DType::kU16;
    case DType::kI32:
      return DType::kU32;
    case DType::kI64:
      return DType::kU64;
    default:
      return dtype;
  }
}

int bit_kernel_of(const DeviceTask& task) {
  const auto* const type = std::find(kBitTypes.begin(), kBitTypes.end(), without_sign(task.dtype));
  const auto* const op = std::find(kBitOps.begin(), kBitOps.end(), task.op);
  if (type == kBitTypes.end()) {
    throw Unsupported(fmt::format("no kernel computes {} of {}; integers and bool have bitwise operations",
                                  name(task.op), name(task.dtype)));
  }
  return kFirstBits + static_cast<int>(type - kBitTypes.begin()) * int{kBitOps.size()} +
         static_cast<int>(op - kBitOps.begin());
}

std::optional<int> cast_number_of(DType dtype) {
  const auto* const found = std::find(kCastTypes.begin(), kCastTypes.end(), dtype);
  if (found == kCastTypes.end()) return std::nullopt;
  return static_cast<int>(found - kCastTypes.begin());
}

/// The kernel that casts an integer type to the type of its sums, or back; these kernels are numbered in pairs.
std::optional<int> sum_cast_kernel_of(const DeviceTask& task) {
  for (std::size_t i = 0; i < kSummedTypes.size(); ++i) {
    const DType summed = kSummedTypes[i];
    const int widens = kFirstSumCast + 2 * static_cast<int>(i);
    if (task.dtype == summed && task.output_dtype == sum_type(summed)) return widens;
    if (task.dtype == sum_type(summed) && task.output_dtype == summed) return widens + 1;
  }
  return std::nullopt;
}

int cast_kernel_of(const DeviceTask& task) {
  if (task.dtype == task.output_dtype) return kCopyKernel;
  if (const std::optional<int> kernel = sum_cast_kernel_of(task)) return *kernel;
  const std::optional<int> from = cast_number_of(task.dtype);
  const std::optional<int> to = cast_number_of(task.output_dtype);
  if (!from || !to) {
    throw Unsupported(
        fmt::format("no kernel converts {} to {}; f16, bf16, f32 and f64 are converted to each other, "
                    "integers of up to 32 bits to the type of their sums and back",
                    name(task.dtype), name(task.output_dtype)));
  }
  return kFirstCast + *from * int{kCastTypes.size()} + *to;
}

int order_kernel_of(const DeviceTask& task) {
  const auto* const found = std::find(kOrderedTypes.begin(), kOrderedTypes.end(), task.dtype);
  if (found == kOrderedTypes.end() || (task.op != ReduceOp::kMin && task.op != ReduceOp::kMax)) {
    throw Unsupported(fmt::format("no kernel orders {} for {}; f32 and f64 are ordered for min and max",
                                  name(task.dtype), name(task.op)));
  }
  return kFirstOrder + 4 * static_cast<int>(found - kOrderedTypes.begin()) +
         (task.kind == DeviceTask::Kind::kRestore ? 2 : 0) + (task.op == ReduceOp::kMax ? 1 : 0);
}

void append(LargestArguments& arguments, const DeviceTask& task, int kernel) {
  KernelTask argument{task.output, task.left, task.right, task.count, task.factor};
  if (kernel == kCopyKernel) {
    argument.count *= size_in_bytes(task.dtype);
    add_task(arguments, argument, 1);
  } else {
    const bool casts = task.kind == DeviceTask::Kind::kCast;
    add_task(arguments, argument,
             std::max(size_in_bytes(task.dtype), size_in_bytes(casts ? task.output_dtype : task.dtype)));
  }
}

bool is_float_scale(int kernel) {
  if (kernel < kFirstScale || kernel >= kFirstCast) return false;
  return cast_number_of(static_cast<DType>(kernel - kFirstScale)).has_value();
}

/// True for the kernels of FARANDOLE_PACKING_KERNELS.
bool is_packing(int kernel) {
  return kernel == kCopyKernel || is_float_scale(kernel) || (kernel >= kFirstCast && kernel < kFirstSumCast);
}

}  // namespace

std::string kernel_name(int kernel) {
  if (kernel == kCopyKernel) return "farandole_copy";
  if (kernel < kFirstScale) {
    const int number = kernel - kFirstReduce;
    return fmt::format("farandole_reduce_{}_{}", name(static_cast<DType>(number / kReduceOps)),
                       name(static_cast<ReduceOp>(number % kReduceOps)));
  }
  if (kernel < kFirstCast) {
    const auto dtype = static_cast<DType>(kernel - kFirstScale);
    return dtype == DType::kBool ? "" : fmt::format("farandole_scale_{}", name(dtype));
  }
  if (kernel >= kFirstBits) {
    const auto number = static_cast<std::size_t>(kernel - kFirstBits);
    return fmt::format("farandole_reduce_{}_{}", name(kBitTypes[number / kBitOps.size()]),
                       name(kBitOps[number % kBitOps.size()]));
  }
  if (kernel >= kFirstOrder) {
    const int number = kernel - kFirstOrder;
    return fmt::format("farandole_{}_{}_{}", number % 4 < 2 ? "order" : "restore",
                       name(kOrderedTypes[static_cast<std::size_t>(number) / 4]),
                       name(number % 2 == 0 ? ReduceOp::kMin : ReduceOp::kMax));
  }
  if (kernel >= kFirstSumCast) {
    const DType summed = kSummedTypes[static_cast<std::size_t>(kernel - kFirstSumCast) / 2];
    const bool widens = (kernel - kFirstSumCast) % 2 == 0;
    return fmt::format("farandole_cast_{}_{}", name(widens ? summed : sum_type(summed)),
                       name(widens ? sum_type(summed) : summed));
  }
  const auto from = static_cast<std::size_t>(kernel - kFirstCast) / kCastTypes.size();
  const auto to = static_cast<std::size_t>(kernel - kFirstCast) % kCastTypes.size();
  return from == to ? "" : fmt::format("farandole_cast_{}_{}", name(kCastTypes[from]), name(kCastTypes[to]));
}

std::string variant_name(int kernel, std::size_t variant) {
  std::string name = kernel_name(kernel);
  if (variant == 0 || name.empty()) return name;
  return is_packing(kernel) ? fmt::format("{}_x{}", name, kCapacities[variant]) : "";
}

int kernel_of(const DeviceTask& task) {
  switch (task.kind) {
    case DeviceTask::Kind::kReduce:
      if (is_bitwise(task.op)) return bit_kernel_of(task);
      return kFirstReduce + static_cast<int>(task.dtype) * kReduceOps + number_of(task.op);
    case DeviceTask::Kind::kScale:
      if (task.dtype == DType::kBool) throw Unsupported("no kernel scales bool; only numbers can be scaled");
      return kFirstScale + static_cast<int>(task.dtype);
    case DeviceTask::Kind::kCast:
      return cast_kernel_of(task);
    case DeviceTask::Kind::kOrder:
    case DeviceTask::Kind::kRestore:
      return order_kernel_of(task);
    case DeviceTask::Kind::kCopy:
      break;
  }
  return kCopyKernel;
}

void for_each_batch(std::span<const DeviceTask> tasks, bool has_large_variants,
                    const std::function<void(const KernelBatch&)>& launch) {
  struct SortedTask {
    int kernel;
    const DeviceTask* task;
  };
  std::vector<SortedTask> sorted;
  sorted.reserve(tasks.size());
  for (const DeviceTask& task : tasks) {
    if (task.count > 0) sorted.push_back({kernel_of(task), &task});
  }
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const SortedTask& a, const SortedTask& b) { return a.kernel < b.kernel; });
  for (auto first = sorted.begin(); first != sorted.end();) {
    KernelBatch batch;  // without initialisation: the tasks take 32 KiB
    batch.kernel = first->kernel;
    batch.variant = 0;
    batch.arguments.task_count = batch.arguments.tile_count = 0;
    const auto end =
        std::find_if(first, sorted.end(), [&](const SortedTask& each) { return each.kernel != batch.kernel; });
    if (has_large_variants && is_packing(batch.kernel)) {
      while (batch.variant + 1 < kCapacities.size() && end - first > kCapacities[batch.variant]) ++batch.variant;
    }
    const auto end_of_batch = first + std::min<std::ptrdiff_t>(end - first, kCapacities[batch.variant]);
    for (; first != end_of_batch; ++first) append(batch.arguments, *first->task, batch.kernel);
    launch(batch);
  }
}

}  // namespace farandole::cuda
