// SPDX-License-Identifier: Apache-2.0
// Synthetic samples as a function of (seed, index of the sample, index of the element), for host and device. Only whole
// numbers, products, sums and roundings of double: hosts and devices compute the same bits.
#pragma once

#include <cstdint>

#include "farandole/internal/host_device.h"
#include "random_streams.h"

namespace farandole::trainer {

/// 64 random bits of each counter: SplitMix64 (Steele, Lea, Flood, OOPSLA 2014), which a processor and a GPU compute
/// several times faster than Philox. The streams of several purposes differ by `salt`.
struct SyntheticBits {
  std::uint64_t start;

  FARANDOLE_HOST_DEVICE static SyntheticBits of(std::uint64_t seed, std::uint64_t salt) {
    return {mixed_bits(mixed_bits(seed) + salt)};
  }
  /// What differs from draw to draw.
  FARANDOLE_HOST_DEVICE static SyntheticBits of(std::uint64_t seed, std::uint64_t salt, std::uint64_t draw) {
    constexpr std::uint64_t kSalts = 4;
    return of(seed, salt + kSalts * draw);
  }
  FARANDOLE_HOST_DEVICE std::uint64_t at(std::uint64_t counter) const {
    return mixed_bits(start + (counter + 1) * 0x9E3779B97F4A7C15);
  }
  /// Uniform in [0, bound).
  FARANDOLE_HOST_DEVICE std::int32_t below(std::uint64_t counter, std::int32_t bound) const {
    return static_cast<std::int32_t>((at(counter) >> 32) * static_cast<std::uint64_t>(bound) >> 32);
  }
  /// The sum of the eight bytes, less its mean: nearly normal, with mean 0 and deviation 1 / kBellScale.
  FARANDOLE_HOST_DEVICE std::int32_t bell(std::uint64_t counter) const {
    constexpr std::uint64_t kEvenBytes = 0x00FF00FF00FF00FF, kMean = 1020;
    const std::uint64_t bits = at(counter), pairs = (bits & kEvenBytes) + (bits >> 8 & kEvenBytes);
    const std::uint64_t fours = (pairs & 0xFFFFFFFF) + (pairs >> 32), sum = (fours & 0xFFFF) + (fours >> 16);
    return static_cast<std::int32_t>(sum) - static_cast<std::int32_t>(kMean);
  }
};
/// 1 / sqrt(8 * (256^2 - 1) / 12)
inline constexpr double kBellScale = 0.00478419615453;

/// Samples with a class each: the prototype of the class plus noise.
struct SyntheticClasses {
  std::uint64_t seed = 0;
  std::int64_t elements = 0;  ///< of an input
  std::int32_t classes = 0;
  double noise = 0;        ///< deviation; the elements of the prototypes have deviation 1
  std::uint64_t draw = 0;  ///< all draws have the same prototypes

  FARANDOLE_HOST_DEVICE std::int32_t label(std::uint32_t sample) const {
    return SyntheticBits::of(seed, 0, draw).below(sample, classes);
  }
};

/// The elements of one sample of SyntheticClasses.
struct SyntheticElements {
  SyntheticBits prototypes, deviations;
  std::uint64_t first_prototype, first_deviation;  ///< counters of element 0
  double noise;

  FARANDOLE_HOST_DEVICE static SyntheticElements of(const SyntheticClasses& source, std::uint32_t sample,
                                                    std::int32_t label) {
    const auto elements = static_cast<std::uint64_t>(source.elements);
    return {SyntheticBits::of(source.seed, 1), SyntheticBits::of(source.seed, 2, source.draw),
            static_cast<std::uint64_t>(label) * elements, sample * elements, source.noise};
  }
  FARANDOLE_HOST_DEVICE float at(std::int64_t element) const {
    const auto offset = static_cast<std::uint64_t>(element);
    const double prototype = prototypes.bell(first_prototype + offset);
    const double deviation = deviations.bell(first_deviation + offset);
    return static_cast<float>((prototype + noise * deviation) * kBellScale);
  }
};

/// Random symbols; the label of each position is the next symbol.
struct SyntheticText {
  std::uint64_t seed = 0;
  std::int64_t length = 0;  ///< of a sample
  std::int32_t symbols = 0;
  std::uint64_t draw = 0;

  /// The symbol at a place of the whole text, of which sample k begins at place k * length.
  FARANDOLE_HOST_DEVICE std::int32_t symbol(std::uint64_t place) const {
    return SyntheticBits::of(seed, 3, draw).below(place, symbols);
  }
};

}  // namespace farandole::trainer
