// SPDX-License-Identifier: Apache-2.0
// Functions such as exp and erf over a vector, in blocks of Eigen's fixed-size arrays.
#pragma once

#include <cstdint>

#include "matrix.h"
// After matrix.h, which configures Eigen. For erf.
#include <unsupported/Eigen/SpecialFunctions>

namespace farandole::trainer {

/// Number of elements of a block, a multiple of Eigen's packets.
constexpr std::int64_t kBlock = 64;
template <class Scalar>
using Block = Eigen::Array<Scalar, kBlock, 1>;

/// Copies up to kBlock values; sets the rest of the block to 0.
template <class Scalar>
Block<Scalar> load_block(const Scalar* from, std::int64_t count) {
  if (count >= kBlock) return Eigen::Map<const Block<Scalar>>(from);
  Block<Scalar> block = Block<Scalar>::Zero();
  for (std::int64_t i = 0; i < count; ++i) block[i] = from[i];
  return block;
}

/// Copies up to `count` values of a block.
template <class Scalar>
void store_block(const Block<Scalar>& block, std::int64_t count, Scalar* to) {
  if (count >= kBlock) {
    Eigen::Map<Block<Scalar>>{to} = block;
  } else {
    for (std::int64_t i = 0; i < count; ++i) to[i] = block[i];
  }
}

/// Sets to[i] = function(from[i]...). `function` takes and returns blocks. The last block is filled up with zeros, so
/// that Eigen computes all elements with the same vector instructions: an element's result depends on its value only,
/// never on its position in the batch or on the alignment of the memory.
template <class Scalar, class Function, class... From>
void transform_blocks(std::int64_t count, Scalar* to, const Function& function, const From*... from) {
  for (std::int64_t first = 0; first < count; first += kBlock) {
    const Block<Scalar> result = function(load_block(from + first, count - first)...);
    store_block(result, count - first, to + first);
  }
}

}  // namespace farandole::trainer
