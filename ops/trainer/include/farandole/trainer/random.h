// SPDX-License-Identifier: Apache-2.0
// Random numbers that depend only on their purpose, never on which replica draws them or in which order.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>

#include "farandole/core/export.h"

namespace farandole FARANDOLE_API {
namespace trainer {

/// A counter-based generator (Philox 4x32-10; Salmon et al., SC 2011): equal keys and counters give equal numbers on
/// every replica, whatever was drawn before. Stateless, so thread-safe.
class CounterRandom {
 public:
  /// @param seed  the program's seed   @param stream  purpose of the numbers, see random_stream
  CounterRandom(std::uint64_t seed, std::uint64_t stream) : seed_(seed), stream_(stream) {}
  /// Returns 32 random bits.
  std::uint32_t bits(std::uint64_t counter) const;
  /// Sets out[i] = bits(first + i). A number costs a quarter of a call of `bits(counter)`.
  void bits(std::uint64_t first, std::span<std::uint32_t> out) const;
  /// Uniform in [0, 1), with 32 bits.
  double uniform(std::uint64_t counter) const { return bits(counter) * 0x1p-32; }
  /// Standard normal, by Box-Muller from `bits` of the counters 2 * counter and 2 * counter + 1.
  double normal(std::uint64_t counter) const;
  /// Uniform in [0, bound), from 64 bits; bound > 0, counter < 2^62. Independent of `bits` of the same counter.
  std::uint64_t below(std::uint64_t counter, std::uint64_t bound) const;

 private:
  std::uint64_t seed_, stream_;
};

/// Purposes of random numbers; different purposes have different streams.
enum class RandomPurpose : std::uint64_t {
  kInitialValues = 1,
  kDropout = 2,
  kShuffle = 3,
  kOther = 4,
  kInnerLayer = 5,
  kAugmentation = 6,
  kShard = 7
};

/// Returns the stream for a purpose and indices such as training step and layer: a 64-bit hash.
std::uint64_t random_stream(RandomPurpose purpose, std::initializer_list<std::uint64_t> indices);

}  // namespace trainer
}  // namespace FARANDOLE_API
