// SPDX-License-Identifier: Apache-2.0
// Reference results of reductions, computed as plainly as possible, and buffers for the reductions under test.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "farandole/core/reduce.h"

namespace farandole::test {

using Bytes = std::vector<std::uint8_t>;  // elements of a run-time type; std::vector<bool> and alignment play no part

constexpr std::uint64_t kSeed = 20240607;

std::vector<Isa> supported_isas();

/// The reduction of `inputs` by the documented tree.
Bytes expected(const std::vector<Bytes>& inputs, std::size_t count, DType dtype, ReduceOp op);

/// Ordinary values, and now and then an extreme one. Random bits would be NaNs and huge numbers for the most part.
Bytes random_elements(std::size_t count, DType dtype, std::mt19937_64& random);

/// True if both have the same bits. Two NaNs are equal whatever their payloads: the surviving payload depends on the
/// compiler's order of operands.
testing::AssertionResult same(const Bytes& seen, const Bytes& wanted, DType dtype);

/// `count` elements from the `offset`-th element of 64-byte aligned memory on, between guards that must not change.
class Elements {
 public:
  Elements(std::size_t count, DType dtype, std::size_t offset)
      : element_bytes_(size_in_bytes(dtype)),
        bytes_(count * element_bytes_),
        start_(kGuardBytes + offset * element_bytes_),
        lines_((start_ + bytes_ + kGuardBytes + sizeof(Line) - 1) / sizeof(Line)) {
    std::memset(lines_.data(), kGuard, lines_.size() * sizeof(Line));
  }
  void* data() { return memory() + start_; }
  Bytes copy() const { return {memory() + start_, memory() + start_ + bytes_}; }
  void set(const Bytes& bytes) { std::copy(bytes.begin(), bytes.end(), memory() + start_); }
  bool guards_hold() const {
    for (std::size_t i = 0; i < lines_.size() * sizeof(Line); ++i) {
      if ((i < start_ || i >= start_ + bytes_) && memory()[i] != kGuard) return false;
    }
    return true;
  }

 private:
  static constexpr std::size_t kGuardBytes = 64;
  static constexpr std::uint8_t kGuard = 0xa5;
  struct alignas(64) Line {
    std::uint8_t bytes[64];
  };
  std::uint8_t* memory() { return reinterpret_cast<std::uint8_t*>(lines_.data()); }
  const std::uint8_t* memory() const { return reinterpret_cast<const std::uint8_t*>(lines_.data()); }

  std::size_t element_bytes_, bytes_, start_;
  std::vector<Line> lines_;
};

/// The inputs of a reduction, at addresses of different alignment.
class Inputs {
 public:
  Inputs(std::size_t inputs, std::size_t count, DType dtype, std::mt19937_64& random) {
    for (std::size_t k = 0; k < inputs; ++k) {
      values.push_back(random_elements(count, dtype, random));
      memory.emplace_back(count, dtype, random() % 9);
      memory.back().set(values.back());
    }
    for (Elements& input : memory) pointers.push_back(input.data());
  }
  std::vector<Bytes> values;
  std::vector<Elements> memory;
  std::vector<const void*> pointers;
};

}  // namespace farandole::test
