// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <vector>

#include "farandole/core/reduce.h"
#include "reduce_oracle.h"

namespace farandole {
namespace {

using test::Bytes, test::Elements, test::expected, test::Inputs, test::kSeed, test::random_elements, test::same,
    test::supported_isas;

TEST(ReduceMany, AssociatesAsTheDocumentedTree) {
  std::mt19937_64 random(kSeed);
  for (const DType dtype : kAllDTypes) {
    for (const ReduceOp op : kAllReduceOps) {
      if (is_bitwise(op) && is_floating_point(dtype)) continue;
      for (std::size_t inputs = 1; inputs <= 9; ++inputs) {
        for (const std::size_t count : {1U, 37U, 1531U}) {
          const Inputs given(inputs, count, dtype, random);
          const Bytes wanted = expected(given.values, count, dtype, op);
          for (const Isa isa : supported_isas()) {
            Elements out(count, dtype, random() % 9);
            reduce_many(out.data(), given.pointers, count, dtype, op, isa);
            // One input is passed on bit by bit, but for bools, which become 0 or 1.
            Bytes single = wanted;
            if (inputs == 1 && dtype == DType::kBool) {
              for (std::uint8_t& byte : single) byte = byte != 0 ? 1 : 0;
            }
            ASSERT_TRUE(same(out.copy(), single, dtype))
                << name(dtype) << " " << name(op) << " " << name(isa) << ", " << inputs << " inputs, seed " << kSeed;
            ASSERT_TRUE(out.guards_hold());
          }
        }
      }
    }
  }
}

TEST(ReduceMany, OutMayBeAnyInput) {
  std::mt19937_64 random(kSeed);
  constexpr std::size_t kCount = 1100;  // more than two blocks
  for (const DType dtype : {DType::kBool, DType::kI64, DType::kF16, DType::kF32}) {
    for (std::size_t inputs = 1; inputs <= 9; ++inputs) {
      std::vector<Bytes> values;
      for (std::size_t k = 0; k < inputs; ++k) values.push_back(random_elements(kCount, dtype, random));
      Bytes wanted = expected(values, kCount, dtype, ReduceOp::kMax);
      if (inputs == 1 && dtype == DType::kBool) {
        for (std::uint8_t& byte : wanted) byte = byte != 0 ? 1 : 0;
      }
      for (std::size_t target = 0; target < inputs; ++target) {
        std::vector<Elements> memory(inputs, Elements(kCount, dtype, 2));
        std::vector<const void*> pointers;
        for (std::size_t k = 0; k < inputs; ++k) {
          memory[k].set(values[k]);
          pointers.push_back(memory[k].data());
        }
        reduce_many(memory[target].data(), pointers, kCount, dtype, ReduceOp::kMax);
        EXPECT_TRUE(same(memory[target].copy(), wanted, dtype)) << name(dtype) << " " << target << " of " << inputs;
      }
    }
  }
}

TEST(ReduceMany, SixteenBitTypesAreRoundedOnce) {
  // 2048 + 1 rounds to 2048 in binary16, so rounding after each addition would lose both ones.
  std::vector<Half> large(3, to_half(2048.0F)), one(3, to_half(1.0F)), out(3);
  const std::vector<const void*> inputs{large.data(), one.data(), one.data()};
  reduce_many(out.data(), inputs, 3, DType::kF16, ReduceOp::kSum);
  for (const Half value : out) EXPECT_EQ(to_float(value), 2050.0F);
}

}  // namespace
}  // namespace farandole
