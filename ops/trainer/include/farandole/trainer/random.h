// SPDX-License-Identifier: Apache-2.0
// Random numbers that depend only on what they are for, never on who computes them or in which order.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>

#include "farandole/core/export.h"

namespace farandole FARANDOLE_API {
namespace trainer {

/// A counter-based generator (Philox 4x32-10; Salmon et al., SC 2011): the same key and counter give the same number
/// on every replica, whatever was drawn before.
class CounterRandom {
 public:
  /// @param seed  of the program   @param stream  what the numbers are for, e.g. a layer's index and the training step
  CounterRandom(std::uint64_t seed, std::uint64_t stream) : seed_(seed), stream_(stream) {}
  std::uint32_t bits(std::uint64_t counter) const;
  /// out[i] = bits(first + i), at a quarter of the cost.
  void bits(std::uint64_t first, std::span<std::uint32_t> out) const;
  /// In [0, 1), with 32 bits.
  double uniform(std::uint64_t counter) const { return bits(counter) * 0x1p-32; }
  /// Standard normal (Box-Muller; uses counters 2k and 2k+1).
  double normal(std::uint64_t counter) const;
  /// Uniform in [0, bound), from 64 bits; bound > 0, counter < 2^62. Independent of `bits` of the same counter.
  std::uint64_t below(std::uint64_t counter, std::uint64_t bound) const;

 private:
  std::uint64_t seed_, stream_;
};

/// What numbers can be for, so that streams of different purposes never meet.
enum class RandomPurpose : std::uint64_t { kInitialValues = 1, kDropout = 2, kShuffle = 3, kOther = 4 };

/// A stream for a purpose and indices such as the training step and the layer: a hash, 64 bits.
std::uint64_t random_stream(RandomPurpose purpose, std::initializer_list<std::uint64_t> indices);

}  // namespace trainer
}  // namespace FARANDOLE_API
