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
#define FARANDOLE_KERNEL(name, ...) extern "C" void farandole_##name(KernelArguments<64> arguments);
FARANDOLE_KERNELS(FARANDOLE_KERNEL)
#undef FARANDOLE_KERNEL
extern "C" void farandole_copy_x682(KernelArguments<682> arguments);
extern "C" void farandole_scale_f32_x682(KernelArguments<682> arguments);

namespace {

using test::Bytes, test::Elements, test::kSeed, test::random_elements, test::same;

constexpr std::size_t kTasks = kCapacities.front();
using Kernel = void (*)(KernelArguments<kTasks> arguments);
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
constexpr std::array kBlocks{1U, 3U};

/// Runs a kernel as a launch on a GPU does, with any number of blocks. Threads may run in any order; here the last
/// thread runs first. Empty tasks are left out.
/// @param element_bytes  of the larger type of a task
template <class Arguments>
void run(void (*kernel)(Arguments arguments), const std::vector<KernelTask>& tasks, std::size_t element_bytes,
         unsigned blocks) {
  Arguments arguments{};
  for (const KernelTask& task : tasks) {
    if (task.count > 0) add_task(arguments, task, element_bytes);
  }
  blockDim = dim3(kBlockThreads);
  gridDim = dim3(blocks);
  for (blockIdx.x = blocks; blockIdx.x-- > 0;) {
    for (threadIdx.x = blockDim.x; threadIdx.x-- > 0;) kernel(arguments);
  }
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

/// Runs a kernel of one type on `count` elements with every number of blocks, and compares with `wanted`.
void check(const std::string& name, DType dtype, const Bytes& left, const Bytes& right, double factor,
           const Bytes& wanted, const Shifts& shift) {
  const std::size_t count = wanted.size() / size_in_bytes(dtype);
  Elements left_elements(count, dtype, shift[1]), right_elements(count, dtype, shift[2]);
  left_elements.set(left);
  right_elements.set(right);
  for (const unsigned blocks : kBlocks) {
    Elements output(count, dtype, shift[0]);
    run(kernel(name), {{output.data(), left_elements.data(), right_elements.data(), count, factor}},
        size_in_bytes(dtype), blocks);
    ASSERT_TRUE(same(output.copy(), wanted, dtype)) << name << " " << count << ", " << blocks << " blocks, " << factor
                                                    << ", shifts " << shift[0] << shift[1] << shift[2];
    ASSERT_TRUE(output.guards_hold()) << name << " " << count << ", " << blocks << " blocks";
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

TEST(Kernels, BitwiseReductionsGiveTheBitsOfTheProcessors) {
  std::mt19937_64 random(kSeed);
  for (const DType dtype : {DType::kBool, DType::kU8, DType::kU16, DType::kU32, DType::kU64}) {
    for (const ReduceOp op : {ReduceOp::kBitAnd, ReduceOp::kBitOr, ReduceOp::kBitXor}) {
      for (const std::size_t count : kCounts) {
        for (const Shifts& shift : shifts(dtype)) check_reduce(dtype, op, count, shift, random);
      }
      check_reduce(dtype, op, kLargeCount, {0, 1, 2}, random);
    }
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
  constexpr std::size_t kCount = 20'003;  // several tiles
  for (const DType dtype : kAllDTypes) {
    const std::size_t bytes = size_in_bytes(dtype);
    for (const unsigned blocks : kBlocks) {
      const Bytes first = values(kCount, dtype, random), second = values(kCount, dtype, random);
      Bytes wanted(first.size());
      reduce(wanted.data(), first.data(), second.data(), kCount, dtype, ReduceOp::kSum);
      Elements left(kCount, dtype, 3), right(kCount, dtype, 3);
      left.set(first);
      right.set(second);
      const Kernel sum = kernel(reduce_name(dtype, ReduceOp::kSum));
      run(sum, {{left.data(), left.data(), right.data(), kCount, 1.0}}, bytes, blocks);
      EXPECT_TRUE(same(left.copy(), wanted, dtype)) << name(dtype) << " " << blocks;
      left.set(first);
      run(sum, {{right.data(), left.data(), right.data(), kCount, 1.0}}, bytes, blocks);
      EXPECT_TRUE(same(right.copy(), wanted, dtype)) << name(dtype) << " " << blocks;
      if (dtype == DType::kBool) continue;
      scale(wanted.data(), first.data(), kCount, dtype, 1.0 / 3);
      run(kernel(scale_name(dtype)), {{left.data(), left.data(), nullptr, kCount, 1.0 / 3}}, bytes, blocks);
      EXPECT_TRUE(same(left.copy(), wanted, dtype)) << name(dtype) << " " << blocks;
    }
  }
}

/// Memory of many tasks of uneven lengths and alignments, some of them empty and some of several tiles.
struct ManyTasks {
  ManyTasks(std::size_t count, DType task_dtype, std::mt19937_64& random) : dtype(task_dtype) {
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t elements = i % 7 == 1 ? 0 : random() % (i % 5 == 0 ? 20'000 : 300);
      values_of_left.push_back(values(elements, dtype, random));
      values_of_right.push_back(values(elements, dtype, random));
      lefts.emplace_back(elements, dtype, i % 5).set(values_of_left.back());
      rights.emplace_back(elements, dtype, i % 3).set(values_of_right.back());
    }
  }
  /// The left inputs are also the outputs, so that a task that is done twice has another result.
  std::vector<KernelTask> tasks() {
    std::vector<KernelTask> tasks;
    for (std::size_t i = 0; i < lefts.size(); ++i) {
      const std::size_t elements = values_of_left[i].size() / size_in_bytes(dtype);
      tasks.push_back({lefts[i].data(), lefts[i].data(), rights[i].data(), elements, 1.0 / 3});
    }
    return tasks;
  }

  DType dtype;
  std::vector<Bytes> values_of_left, values_of_right;
  std::vector<Elements> lefts, rights;
};

TEST(Kernels, LaunchDoesEachOfItsTasksOnce) {
  std::mt19937_64 random(kSeed);
  for (const DType dtype : {DType::kU8, DType::kF16, DType::kF32, DType::kF64}) {
    for (const unsigned blocks : {1U, 3U, 24U, 200U}) {
      ManyTasks many(kTasks, dtype, random);
      run(kernel(reduce_name(dtype, ReduceOp::kSum)), many.tasks(), size_in_bytes(dtype), blocks);
      for (std::size_t i = 0; i < kTasks; ++i) {
        Bytes wanted(many.values_of_left[i].size());
        reduce(wanted.data(), many.values_of_left[i].data(), many.values_of_right[i].data(),
               wanted.size() / size_in_bytes(dtype), dtype, ReduceOp::kSum);
        EXPECT_TRUE(same(many.lefts[i].copy(), wanted, dtype)) << name(dtype) << " task " << i << ", " << blocks;
        EXPECT_TRUE(many.lefts[i].guards_hold()) << name(dtype) << " task " << i << ", " << blocks;
      }
    }
  }
}

TEST(Kernels, LargeVariantsDoManyTasks) {
  std::mt19937_64 random(kSeed);
  ManyTasks copied(300, DType::kU8, random), scaled(682, DType::kF32, random);
  std::vector<KernelTask> copies = copied.tasks();
  for (std::size_t i = 0; i < copies.size(); ++i) copies[i].left = copied.rights[i].data();
  run(&farandole_copy_x682, copies, 1, 24);
  for (std::size_t i = 0; i < copies.size(); ++i) {
    EXPECT_TRUE(same(copied.lefts[i].copy(), copied.values_of_right[i], DType::kU8)) << "task " << i;
    EXPECT_TRUE(copied.lefts[i].guards_hold()) << "task " << i;
  }
  run(&farandole_scale_f32_x682, scaled.tasks(), sizeof(float), 24);
  for (std::size_t i = 0; i < scaled.lefts.size(); ++i) {
    Bytes wanted(scaled.values_of_left[i].size());
    scale(wanted.data(), scaled.values_of_left[i].data(), wanted.size() / sizeof(float), DType::kF32, 1.0 / 3);
    EXPECT_TRUE(same(scaled.lefts[i].copy(), wanted, DType::kF32)) << "task " << i;
    EXPECT_TRUE(scaled.lefts[i].guards_hold()) << "task " << i;
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
  for (const unsigned blocks : kBlocks) {
    Elements output(count, to, shift[0]);
    run(kernel(cast_name(from, to)), {{output.data(), source.data(), nullptr, count, 1.0}},
        std::max(size_in_bytes(from), size_in_bytes(to)), blocks);
    ASSERT_TRUE(same(output.copy(), wanted, to)) << cast_name(from, to) << " " << count << ", " << blocks << " blocks";
    ASSERT_TRUE(output.guards_hold()) << cast_name(from, to) << " " << count << ", " << blocks << " blocks";
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
  run(kernel(cast_name(DType::kF64, to)), {{&output, &nan, nullptr, 1, 1.0}}, sizeof nan, 1);
  EXPECT_TRUE(std::isnan(to_float(output)));
}

TEST(Kernels, CastsOfDoublesRoundOnce) {
  check_rounding_of_doubles<Half>(DType::kF16, 0x7c00);
  check_rounding_of_doubles<BFloat16>(DType::kBF16, 0x7f80);
}

}  // namespace
}  // namespace farandole::cuda
