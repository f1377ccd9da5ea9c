// SPDX-License-Identifier: Apache-2.0
// The kernels, compiled for the CPU, give the same bits as reduce(), scale() and the conversions.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "cuda/kernel_arguments.h"
#include "cuda/kernel_list.h"
#include "cudart/cuda_runtime.h"
#include "farandole/core/reduce.h"
#include "farandole/internal/average.h"
#include "reduce_oracle.h"

namespace farandole::cuda {

// From kernels.cu, as a compiler for processors makes them: a call is one thread.
#define FARANDOLE_KERNEL(name, ...) extern "C" void farandole_##name(KernelArguments arguments);
FARANDOLE_KERNELS(FARANDOLE_KERNEL)
#undef FARANDOLE_KERNEL

namespace {

using test::Bytes, test::Elements, test::kSeed, test::random_elements, test::same;

using Kernel = void (*)(KernelArguments arguments);
Kernel kernel(const std::string& name) {
  static const std::map<std::string, Kernel> all{
#define FARANDOLE_KERNEL(name, ...) {#name, &farandole_##name},
      FARANDOLE_KERNELS(FARANDOLE_KERNEL)
#undef FARANDOLE_KERNEL
  };
  return all.at(name);
}
std::string reduce_name(DType dtype, ReduceOp op) {
  return "reduce_" + std::string(name(dtype)) + "_" + std::string(name(op));
}
std::string scale_name(DType dtype) {
  return "scale_" + std::string(name(dtype));
}
std::string cast_name(DType from, DType to) {
  return "cast_" + std::string(name(from)) + "_" + std::string(name(to));
}

constexpr std::array kOps{ReduceOp::kSum, ReduceOp::kProduct, ReduceOp::kMin, ReduceOp::kMax};
constexpr std::array kFloats{DType::kF16, DType::kBF16, DType::kF32, DType::kF64};
constexpr std::array<std::size_t, 6> kCounts{0, 1, 7, 16, 17, 1003};
constexpr std::size_t kLargeCount = 1000003;
constexpr std::array kWorkers{1U, 3U, 32U};

/// Runs a kernel as a launch on a GPU does, with `workers` threads for each task, in blocks of 8 if the threads fill
/// them. Threads may run in any order; here the last thread runs first.
/// @param rows  rows of blocks; each row takes one or several tasks
void run(const std::string& name, const std::vector<KernelTask>& tasks, unsigned workers, unsigned rows) {
  KernelArguments arguments{};
  arguments.task_count = static_cast<std::uint32_t>(tasks.size());
  std::copy(tasks.begin(), tasks.end(), arguments.tasks);
  const Kernel thread = kernel(name);
  blockDim = dim3(workers % 8 == 0 ? 8 : 1);
  gridDim = dim3(workers / blockDim.x, rows);
  for (blockIdx.y = 0; blockIdx.y < gridDim.y; ++blockIdx.y) {
    for (unsigned block = gridDim.x; block > 0; --block) {
      blockIdx.x = block - 1;
      for (threadIdx.x = blockDim.x; threadIdx.x-- > 0;) thread(arguments);
    }
  }
}
void run(const std::string& name, const std::vector<KernelTask>& tasks, unsigned workers) {
  run(name, tasks, workers, static_cast<unsigned>(tasks.size()));
}

/// The elements by which the addresses of output, left and right lie behind a multiple of 64 bytes: the same place in a
/// packet, a place that differs by 4 bytes or more, any.
using Shifts = std::array<std::size_t, 3>;
std::vector<Shifts> shifts(DType dtype) {
  const std::size_t four_bytes = std::max<std::size_t>(4 / size_in_bytes(dtype), 1);
  return {{0, 0, 0}, {1, 1, 1}, {5, 5, 5}, {0, four_bytes, 0}, {1, 1 + four_bytes, 1}, {0, 0, 1}, {3, 2, 7}};
}

/// Random values, and now and then any bits at all: NaNs, subnormals, infinities.
Bytes values(std::size_t count, DType dtype, std::mt19937_64& random) {
  Bytes bytes = random_elements(count, dtype, random);
  const std::size_t element_bytes = size_in_bytes(dtype);
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint64_t bits = random();
    if (bits % 8 == 0)
      std::memcpy(&bytes[i * element_bytes], reinterpret_cast<const char*>(&bits) + 8 - element_bytes, element_bytes);
  }
  return bytes;
}

/// Runs a kernel of one type on `count` elements with every number of workers, and compares with `wanted`.
void check(const std::string& name, DType dtype, const Bytes& left, const Bytes& right, double factor,
           const Bytes& wanted, const Shifts& shift) {
  const std::size_t count = wanted.size() / size_in_bytes(dtype);
  Elements left_elements(count, dtype, shift[1]), right_elements(count, dtype, shift[2]);
  left_elements.set(left);
  right_elements.set(right);
  for (const unsigned workers : kWorkers) {
    Elements output(count, dtype, shift[0]);
    run(name, {{output.data(), left_elements.data(), right_elements.data(), count, factor}}, workers);
    ASSERT_TRUE(same(output.copy(), wanted, dtype)) << name << " " << count << ", " << workers << " workers, " << factor
                                                    << ", shifts " << shift[0] << shift[1] << shift[2];
    ASSERT_TRUE(output.guards_hold()) << name << " " << count << ", " << workers << " workers";
  }
}

void check_reduce(DType dtype, ReduceOp op, std::size_t count, const Shifts& shift, std::mt19937_64& random) {
  const Bytes left = values(count, dtype, random), right = values(count, dtype, random);
  Bytes wanted(left.size());
  reduce(wanted.data(), left.data(), right.data(), count, dtype, op);
  check(reduce_name(dtype, op), dtype, left, right, 1.0, wanted, shift);
}

TEST(Kernels, ReduceGivesTheBitsOfTheProcessors) {
  std::mt19937_64 random(kSeed);
  for (const DType dtype : kAllDTypes) {
    for (const ReduceOp op : kOps) {
      for (const std::size_t count : kCounts) {
        for (const Shifts& shift : shifts(dtype)) check_reduce(dtype, op, count, shift, random);
      }
    }
    check_reduce(dtype, ReduceOp::kSum, kLargeCount, {1, 1, 1}, random);
    check_reduce(dtype, ReduceOp::kMax, kLargeCount, {0, 1, 2}, random);
  }
}

TEST(Kernels, ReduceRoundsEverySixteenBitValueAlike) {
  constexpr std::size_t kCount = 65536;
  std::vector<std::uint16_t> all(kCount);
  std::iota(all.begin(), all.end(), std::uint16_t{0});
  for (const DType dtype : {DType::kF16, DType::kBF16}) {
    for (const std::uint16_t other : {0x8000, 0x3c01, 0x0003, 0xfbff, 0x7f7f, 0x7c00, 0xffff}) {
      Bytes left(2 * kCount), right(2 * kCount), wanted(2 * kCount);
      std::memcpy(left.data(), all.data(), left.size());
      std::memcpy(right.data(), std::vector<std::uint16_t>(kCount, other).data(), right.size());
      for (const ReduceOp op : kOps) {
        reduce(wanted.data(), left.data(), right.data(), kCount, dtype, op);
        check(reduce_name(dtype, op), dtype, left, right, 1.0, wanted, {0, 0, 0});
      }
    }
  }
}

void check_scale(DType dtype, double factor, std::size_t count, const Shifts& shift, std::mt19937_64& random) {
  const Bytes input = values(count, dtype, random);
  Bytes wanted(input.size());
  scale(wanted.data(), input.data(), count, dtype, factor);
  check(scale_name(dtype), dtype, input, input, factor, wanted, shift);
}

TEST(Kernels, ScaleGivesTheBitsOfTheProcessors) {
  std::mt19937_64 random(kSeed);
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  for (const DType dtype : kAllDTypes) {
    if (dtype == DType::kBool) continue;
    for (const double factor : {1.0 / 2, 1.0 / 3, 1.0 / 7, 1.0 / 49, 1.0 / 1000, 1.0 / (1 << 24), 0x1p-53, 0.3, 1.0,
                                -1.0, 2.5, 1e9, 1e300, 1e-300, 0.0, HUGE_VAL, kNan}) {
      for (const std::size_t count : kCounts) {
        for (const Shifts& shift : shifts(dtype)) check_scale(dtype, factor, count, shift, random);
      }
    }
    check_scale(dtype, 1.0 / 3, kLargeCount, {1, 1, 1}, random);
  }
}

TEST(Kernels, CopyCopiesBytes) {
  std::mt19937_64 random(kSeed);
  for (const std::size_t count : {0U, 1U, 7U, 16U, 17U, 1003U, 1000003U}) {
    const Bytes input = random_elements(count, DType::kU8, random);
    for (const Shifts& shift : {Shifts{0, 0, 0}, {5, 5, 0}, {0, 4, 0}, {1, 9, 0}, {0, 1, 0}, {3, 14, 0}}) {
      check("copy", DType::kU8, input, input, 1.0, input, shift);
    }
  }
}

TEST(Kernels, TheOutputMayBeAnInput) {
  std::mt19937_64 random(kSeed);
  constexpr std::size_t kCount = 1003;
  for (const DType dtype : kAllDTypes) {
    for (const unsigned workers : kWorkers) {
      const Bytes first = values(kCount, dtype, random), second = values(kCount, dtype, random);
      Bytes wanted(first.size());
      reduce(wanted.data(), first.data(), second.data(), kCount, dtype, ReduceOp::kSum);
      Elements left(kCount, dtype, 3), right(kCount, dtype, 3);
      left.set(first);
      right.set(second);
      run(reduce_name(dtype, ReduceOp::kSum), {{left.data(), left.data(), right.data(), kCount, 1.0}}, workers);
      EXPECT_TRUE(same(left.copy(), wanted, dtype)) << name(dtype) << " " << workers;
      left.set(first);
      run(reduce_name(dtype, ReduceOp::kSum), {{right.data(), left.data(), right.data(), kCount, 1.0}}, workers);
      EXPECT_TRUE(same(right.copy(), wanted, dtype)) << name(dtype) << " " << workers;
      if (dtype == DType::kBool) continue;
      scale(wanted.data(), first.data(), kCount, dtype, 1.0 / 3);
      run(scale_name(dtype), {{left.data(), left.data(), nullptr, kCount, 1.0 / 3}}, workers);
      EXPECT_TRUE(same(left.copy(), wanted, dtype)) << name(dtype) << " " << workers;
    }
  }
}

TEST(Kernels, ALaunchDoesAllOfItsTasks) {
  std::mt19937_64 random(kSeed);
  for (const DType dtype : {DType::kU8, DType::kF16, DType::kF32, DType::kF64}) {
    for (const unsigned workers : kWorkers) {
      std::vector<Elements> outputs, lefts, rights;
      std::vector<KernelTask> tasks;
      std::vector<Bytes> wanted;
      for (std::size_t task = 0; task < kTasksPerLaunch; ++task) {
        const std::size_t count = task % 7 == 1 ? 0 : random() % 300;
        const Bytes left = values(count, dtype, random), right = values(count, dtype, random);
        lefts.emplace_back(count, dtype, task % 5).set(left);
        rights.emplace_back(count, dtype, task % 3).set(right);
        outputs.emplace_back(count, dtype, task % 4);
        reduce(wanted.emplace_back(left.size()).data(), left.data(), right.data(), count, dtype, ReduceOp::kProduct);
      }
      for (std::size_t task = 0; task < kTasksPerLaunch; ++task) {
        const std::size_t count = wanted[task].size() / size_in_bytes(dtype);
        tasks.push_back({outputs[task].data(), lefts[task].data(), rights[task].data(), count, 1.0});
      }
      // With a row of blocks for each task, and with fewer, which the plug-in does not do.
      run(reduce_name(dtype, ReduceOp::kProduct), tasks, workers, workers == 1 ? 7 : kTasksPerLaunch);
      for (std::size_t task = 0; task < kTasksPerLaunch; ++task) {
        EXPECT_TRUE(same(outputs[task].copy(), wanted[task], dtype)) << name(dtype) << " task " << task;
        EXPECT_TRUE(outputs[task].guards_hold()) << name(dtype) << " task " << task;
      }
    }
  }
}

template <class T>
T element(const Bytes& bytes, std::size_t i) {
  T value;
  std::memcpy(&value, &bytes[i * sizeof value], sizeof value);
  return value;
}

// Reference conversions that round at most once, made of the library's functions.
double as_double(Half value) {
  return to_float(value);
}
double as_double(BFloat16 value) {
  return to_float(value);
}
double as_double(double value) {
  return value;
}
float from_double(double value, float /*type*/) {
  return static_cast<float>(value);
}
double from_double(double value, double /*type*/) {
  return value;
}
Half from_double(double value, Half /*type*/) {
  return to_half(static_cast<float>(value));
}
BFloat16 from_double(double value, BFloat16 /*type*/) {
  return to_bfloat16(static_cast<float>(value));
}

void check_cast(DType from, DType to, const Bytes& input, const Bytes& wanted, const Shifts& shift) {
  const std::size_t count = input.size() / size_in_bytes(from);
  Elements source(count, from, shift[1]);
  source.set(input);
  for (const unsigned workers : kWorkers) {
    Elements output(count, to, shift[0]);
    run(cast_name(from, to), {{output.data(), source.data(), nullptr, count, 1.0}}, workers);
    ASSERT_TRUE(same(output.copy(), wanted, to))
        << cast_name(from, to) << " " << count << ", " << workers << " workers";
    ASSERT_TRUE(output.guards_hold()) << cast_name(from, to) << " " << count << ", " << workers << " workers";
  }
}

TEST(Kernels, CastsConvert) {
  std::mt19937_64 random(kSeed);
  for (const DType from : kFloats) {
    for (const DType to : kFloats) {
      // From double to 16 bits through float would round twice: see CastsOfDoublesRoundOnce.
      if (from == to || (from == DType::kF64 && size_in_bytes(to) == 2)) continue;
      for (const std::size_t count : {0U, 1U, 7U, 16U, 17U, 1003U, 100003U}) {
        const Bytes input = values(count, from, random);
        Bytes wanted(count * size_in_bytes(to));
        with_stored_type(from, [&](auto source) {
          with_stored_type(to, [&](auto target) {
            if constexpr (!std::is_integral_v<decltype(source)> && !std::is_integral_v<decltype(target)>) {
              for (std::size_t i = 0; i < count; ++i) {
                target = from_double(as_double(element<decltype(source)>(input, i)), target);
                std::memcpy(&wanted[i * sizeof target], &target, sizeof target);
              }
            }
          });
        });
        for (const Shifts& shift : {Shifts{0, 0, 0}, {1, 1, 0}, {0, 1, 0}, {2, 6, 0}}) {
          check_cast(from, to, input, wanted, shift);
        }
      }
    }
  }
}

TEST(Kernels, CastsOfIntegersAreBounded) {
  std::mt19937_64 random(kSeed);
  for (const DType narrow : {DType::kU8, DType::kI8, DType::kU16, DType::kI16, DType::kI32, DType::kU32}) {
    const DType wide = sum_type(narrow);
    for (const std::size_t count : {0U, 1U, 7U, 16U, 17U, 1003U}) {
      const Bytes narrow_input = values(count, narrow, random), wide_input = values(count, wide, random);
      Bytes widened(count * size_in_bytes(wide)), narrowed(count * size_in_bytes(narrow));
      with_stored_type(narrow, [&](auto small) {
        with_stored_type(wide, [&](auto large) {
          using Small = std::decay_t<decltype(small)>;
          using Large = std::decay_t<decltype(large)>;
          if constexpr (std::is_integral_v<Small> && std::is_signed_v<Large> && sizeof(Small) < sizeof(Large)) {
            for (std::size_t i = 0; i < count; ++i) {
              large = element<Small>(narrow_input, i);
              std::memcpy(&widened[i * sizeof large], &large, sizeof large);
              small = static_cast<Small>(std::clamp<std::int64_t>(
                  element<Large>(wide_input, i), std::numeric_limits<Small>::min(), std::numeric_limits<Small>::max()));
              std::memcpy(&narrowed[i * sizeof small], &small, sizeof small);
            }
          }
        });
      });
      for (const Shifts& shift : {Shifts{0, 0, 0}, {1, 1, 0}, {0, 1, 0}, {2, 6, 0}}) {
        check_cast(narrow, wide, narrow_input, widened, shift);
        check_cast(wide, narrow, wide_input, narrowed, shift);
        check_cast(wide, narrow, widened, narrow_input, shift);
      }
    }
  }
}

/// All non-negative finite values of a 16-bit type in a row, and between two neighbours the number that is as far from
/// both: there a first rounding to float would decide wrongly.
template <class T>
void check_rounding_of_doubles(DType to, std::uint16_t infinity) {
  std::vector<double> inputs;
  std::vector<T> outputs;
  const auto expect = [&](double input, std::uint16_t bits) {
    for (const bool negative : {false, true}) {
      inputs.push_back(negative ? -input : input);
      outputs.push_back(T{static_cast<std::uint16_t>(negative ? bits | 0x8000U : bits)});
    }
  };
  for (std::uint16_t bits = 0; bits < infinity; ++bits) {
    const double value = as_double(T{bits});
    const auto next_bits = static_cast<std::uint16_t>(bits + 1);
    const double spacing = bits + 1 == infinity ? value - as_double(T{static_cast<std::uint16_t>(bits - 1)})
                                                : as_double(T{next_bits}) - value;
    const double middle = value + spacing / 2;
    expect(value, bits);
    expect(std::nextafter(value, HUGE_VAL), bits);
    expect(std::nextafter(middle, 0.0), bits);
    expect(middle, bits % 2 == 0 ? bits : next_bits);
    expect(std::nextafter(middle, HUGE_VAL), next_bits);
  }
  expect(std::numeric_limits<double>::max(), infinity);
  expect(HUGE_VAL, infinity);
  expect(std::numeric_limits<double>::denorm_min(), 0);
  Bytes input(inputs.size() * sizeof(double)), wanted(outputs.size() * sizeof(T));
  std::memcpy(input.data(), inputs.data(), input.size());
  std::memcpy(wanted.data(), outputs.data(), wanted.size());
  check_cast(DType::kF64, to, input, wanted, {0, 0, 0});
  const double nan = std::numeric_limits<double>::quiet_NaN();
  T output{};
  run(cast_name(DType::kF64, to), {{&output, &nan, nullptr, 1, 1.0}}, 1);
  EXPECT_TRUE(std::isnan(to_float(output)));
}

TEST(Kernels, CastsOfDoublesRoundOnce) {
  check_rounding_of_doubles<Half>(DType::kF16, 0x7c00);
  check_rounding_of_doubles<BFloat16>(DType::kBF16, 0x7f80);
}

}  // namespace
}  // namespace farandole::cuda
