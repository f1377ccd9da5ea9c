// SPDX-License-Identifier: Apache-2.0
// Conversions between float and the 16-bit floating-point types, without branches, so that loops over them vectorise.
#pragma once

#include <bit>
#include <cstdint>

#include "farandole/core/dtype.h"

namespace farandole {

/// `condition ? yes : no` by masks: g++ makes branches of conditional expressions over floats, as arithmetic may trap.
[[gnu::always_inline]] inline std::uint32_t select_bits(bool condition, std::uint32_t yes, std::uint32_t no) {
  const std::uint32_t mask = 0U - static_cast<std::uint32_t>(condition);
  return (yes & mask) | (no & ~mask);
}

/// Exact. Signalling NaNs become quiet.
[[gnu::always_inline]] inline float widen(Half value) {
  const std::uint32_t magnitude = value.bits & 0x7fffU;
  const std::uint32_t sign = (value.bits & 0x8000U) << 16;
  // Exponents are biased by 15 in binary16 and by 127 in binary32; those of infinities and NaNs move by twice as much.
  std::uint32_t bits = (magnitude << 13) + (112U << 23);
  bits += magnitude >= 0x7c00U ? 112U << 23 : 0U;
  bits |= magnitude > 0x7c00U ? 0x400000U : 0U;
  // Subnormal: an integer multiple of 2^-24. Not computed by a subnormal float, which some modes flush to zero.
  const float multiple = static_cast<float>(static_cast<std::int32_t>(magnitude)) * 0x1p-24F;
  bits = select_bits(magnitude < 0x0400U, std::bit_cast<std::uint32_t>(multiple), bits);
  return std::bit_cast<float>(bits | sign);
}

/// Exact. A bfloat16 is the upper half of a float.
[[gnu::always_inline]] inline float widen(BFloat16 value) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(value.bits) << 16);
}

/// To nearest, ties to even; NaNs become quiet and keep their sign and upper payload; overflow gives infinity.
[[gnu::always_inline]] inline Half narrow_to_half(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t magnitude = bits & 0x7fffffffU;
  const std::uint32_t sign = (bits >> 16) & 0x8000U;
  // A carry out of the fraction raises the exponent, which is what rounding up means.
  const std::uint32_t rounded = (magnitude + 0xfffU + ((magnitude >> 13) & 1U) - (112U << 23)) >> 13;
  // Subnormal: one unit in the last place of 0.5f is 2^-24, the spacing of binary16 subnormals, so the addition rounds.
  const std::uint32_t subnormal =
      std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + 0.5F) - std::bit_cast<std::uint32_t>(0.5F);
  std::uint32_t result = select_bits(magnitude < 0x38800000U, subnormal, rounded);
  result = select_bits(magnitude >= 0x47800000U, 0x7c00U, result);
  result = select_bits(magnitude > 0x7f800000U, 0x7e00U | ((magnitude >> 13) & 0x1ffU), result);
  return Half{static_cast<std::uint16_t>(result | sign)};
}

/// To nearest, ties to even; NaNs become quiet and keep their sign and upper payload; overflow gives infinity.
[[gnu::always_inline]] inline BFloat16 narrow_to_bfloat16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t rounded = (bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16;
  const bool is_nan = (bits & 0x7fffffffU) > 0x7f800000U;
  return BFloat16{static_cast<std::uint16_t>(is_nan ? (bits >> 16) | 0x40U : rounded)};
}

}  // namespace farandole
