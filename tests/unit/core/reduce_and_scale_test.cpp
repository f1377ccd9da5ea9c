// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <limits>
#include <vector>

#include "farandole/core/reduce.h"
#include "farandole/internal/average.h"
#include "reduce_oracle.h"

namespace farandole {
namespace {

using test::Bytes, test::Elements, test::Inputs, test::kSeed, test::random_elements, test::same, test::supported_isas;

// A float represents the first three, and 1 multiplies nothing.
constexpr std::array<double, 5> kFactors{1.0, 0.5, -2.5, 1.0 / 3, 0.1};

bool is_averaged_in_another_type(ReduceOp op, DType dtype) {
  return op == ReduceOp::kAverage && (sum_type(dtype) != dtype || dtype == DType::kF16);
}

/// The result in two steps.
Bytes reduced_then_scaled(const Inputs& inputs, std::size_t count, DType dtype, ReduceOp op, double factor) {
  Elements out(count, dtype, 0);
  if (is_averaged_in_another_type(op, dtype)) {
    reduce_and_scale(out.data(), nullptr, inputs.pointers, count, dtype, op, factor);
  } else {
    reduce_many(out.data(), inputs.pointers, count, dtype, op);
    if (factor != 1.0) scale(out.data(), out.data(), count, dtype, factor);
  }
  return out.copy();
}

void expect_same_bits_in_both_places(std::size_t inputs, std::size_t count, DType dtype, ReduceOp op, double factor,
                                     std::mt19937_64& random) {
  const Inputs given(inputs, count, dtype, random);
  const Bytes wanted = reduced_then_scaled(given, count, dtype, op, factor);
  for (const Isa isa : supported_isas()) {
    Elements alone(count, dtype, random() % 9), out(count, dtype, random() % 9), also(count, dtype, random() % 9);
    reduce_and_scale(alone.data(), nullptr, given.pointers, count, dtype, op, factor, isa);
    reduce_and_scale(out.data(), also.data(), given.pointers, count, dtype, op, factor, isa);
    for (Elements* place : {&alone, &out, &also}) {
      ASSERT_TRUE(same(place->copy(), wanted, dtype)) << name(dtype) << " " << name(op) << " " << name(isa)
                                                      << ", factor " << factor << ", " << inputs << " inputs, "
                                                      << (place == &alone ? "one place"
                                                          : place == &out ? "first of two"
                                                                          : "second of two")
                                                      << ", seed " << kSeed;
      ASSERT_TRUE(place->guards_hold()) << name(dtype) << " " << name(op) << " " << name(isa) << " " << count;
    }
  }
}

TEST(ReduceAndScale, HasTheBitsOfTwoStepsInOneAndTwoPlaces) {
  std::mt19937_64 random(kSeed);
  for (const DType dtype : kAllDTypes) {
    for (const ReduceOp op : kAllReduceOps) {
      if (is_bitwise(op) && is_floating_point(dtype)) continue;
      for (const std::size_t inputs : {1U, 2U, 3U, 4U, 8U}) {
        for (const double factor : kFactors) {
          for (const std::size_t count : {1U, 45U, 517U}) {
            expect_same_bits_in_both_places(inputs, count, dtype, op, factor, random);
            if (testing::Test::HasFatalFailure()) return;
          }
        }
      }
    }
  }
}

TEST(ReduceAndScale, BothPlacesMayBeInputs) {
  std::mt19937_64 random(kSeed);
  constexpr std::size_t kCount = 1100;
  for (const DType dtype : {DType::kBool, DType::kI32, DType::kF16, DType::kBF16, DType::kF32, DType::kF64}) {
    for (const std::size_t inputs : {2U, 3U, 4U}) {
      for (const double factor : kFactors) {
        Inputs given(inputs, kCount, dtype, random);
        const Bytes wanted = reduced_then_scaled(given, kCount, dtype, ReduceOp::kAverage, factor);
        reduce_and_scale(given.memory[1].data(), given.memory[0].data(), given.pointers, kCount, dtype,
                         ReduceOp::kAverage, factor);
        EXPECT_TRUE(same(given.memory[0].copy(), wanted, dtype)) << name(dtype) << " " << inputs << " " << factor;
        EXPECT_TRUE(same(given.memory[1].copy(), wanted, dtype)) << name(dtype) << " " << inputs << " " << factor;
      }
    }
  }
}

TEST(ReduceAndScale, FactorsThatAFloatHoldsGiveTheBitsOfDouble) {
  std::mt19937 random(kSeed);
  std::uniform_int_distribution<std::uint32_t> bits;  // of all floats, also tiny and infinite ones
  std::vector<float> left(4096), right(4096, 0.0F), out(4096);
  for (float& each : left) each = std::bit_cast<float>(bits(random));
  const std::vector<const void*> inputs{left.data(), right.data()};
  for (const float factor : {0.5F, 0.1F, 3.0F, 1.0F / 3, std::numeric_limits<float>::denorm_min(), 1e30F}) {
    reduce_and_scale(out.data(), nullptr, inputs, out.size(), DType::kF32, ReduceOp::kSum, factor);
    for (std::size_t i = 0; i < out.size(); ++i) {
      const auto wanted = static_cast<float>(static_cast<double>(left[i] + 0.0F) * static_cast<double>(factor));
      ASSERT_TRUE(out[i] == wanted || (out[i] != out[i] && wanted != wanted)) << left[i] << " * " << factor;
    }
  }
}

}  // namespace
}  // namespace farandole
