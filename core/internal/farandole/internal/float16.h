// SPDX-License-Identifier: Apache-2.0
// Conversions between float and the 16-bit floating-point types, without branches, so that loops vectorise.
//
// On a GPU, f16 is converted by the GPU's own instructions: integer arithmetic would be slower than the memory
// accesses. The instructions give the same values, except for the payload of a NaN.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "farandole/core/dtype.h"
#include "farandole/internal/host_device.h"

namespace farandole {

/// `condition ? yes : no` by masks. g++ compiles conditional expressions over floats to branches, because
/// floating-point arithmetic may trap.
FARANDOLE_HOST_DEVICE inline std::uint32_t select_bits(bool condition, std::uint32_t yes, std::uint32_t no) {
  const std::uint32_t mask = 0U - static_cast<std::uint32_t>(condition);
  return (yes & mask) | (no & ~mask);
}

/// Converts f16 to f32. Exact. Signalling NaNs become quiet.
FARANDOLE_HOST_DEVICE inline float widen(Half value) {
#if defined(__CUDA_ARCH__)
  float wide;
  asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(value.bits));
  return wide;
#else
  const std::uint32_t magnitude = value.bits & 0x7fffU;
  const std::uint32_t sign = (value.bits & 0x8000U) << 16;
  // The exponent bias is 15 in binary16 and 127 in binary32: add 112; infinities and NaNs need twice that.
  std::uint32_t bits = (magnitude << 13) + (112U << 23);
  bits += magnitude >= 0x7c00U ? 112U << 23 : 0U;
  bits |= magnitude > 0x7c00U ? 0x400000U : 0U;
  // A subnormal is an integer multiple of 2^-24. The product avoids subnormal floats, which some modes flush to zero.
  const float multiple = static_cast<float>(static_cast<std::int32_t>(magnitude)) * 0x1p-24F;
  bits = select_bits(magnitude < 0x0400U, std::bit_cast<std::uint32_t>(multiple), bits);
  return std::bit_cast<float>(bits | sign);
#endif
}

/// Converts bf16, the upper half of a float, to f32. Exact.
FARANDOLE_HOST_DEVICE inline float widen(BFloat16 value) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(value.bits) << 16);
}

/// Converts f32 to f16, to nearest, ties to even. NaNs become quiet and keep their sign and upper payload; overflow
/// gives infinity.
FARANDOLE_HOST_DEVICE inline Half narrow_to_half(float value) {
#if defined(__CUDA_ARCH__)
  Half narrow;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(narrow.bits) : "f"(value));
  return narrow;
#else
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t magnitude = bits & 0x7fffffffU;
  const std::uint32_t sign = (bits >> 16) & 0x8000U;
  // A carry out of the fraction increments the exponent, as rounding up requires.
  const std::uint32_t rounded = (magnitude + 0xfffU + ((magnitude >> 13) & 1U) - (112U << 23)) >> 13;
  // Subnormal: the last place of 0.5f is 2^-24, the spacing of binary16 subnormals, so the addition rounds correctly.
  const std::uint32_t subnormal =
      std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + 0.5F) - std::bit_cast<std::uint32_t>(0.5F);
  std::uint32_t result = select_bits(magnitude < 0x38800000U, subnormal, rounded);
  result = select_bits(magnitude >= 0x47800000U, 0x7c00U, result);
  result = select_bits(magnitude > 0x7f800000U, 0x7e00U | ((magnitude >> 13) & 0x1ffU), result);
  return Half{static_cast<std::uint16_t>(result | sign)};
#endif
}

/// Converts f32 to bf16, to nearest, ties to even. NaNs become quiet and keep their sign and upper payload; overflow
/// gives infinity.
FARANDOLE_HOST_DEVICE inline BFloat16 narrow_to_bfloat16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t rounded = (bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16;
  const bool is_nan = (bits & 0x7fffffffU) > 0x7f800000U;
  return BFloat16{static_cast<std::uint16_t>(is_nan ? (bits >> 16) | 0x40U : rounded)};
}

/// widen() of `count` elements in host memory, by the processor's conversion instructions where it has them.
void widen_all(float* out, const Half* in, std::size_t count);
/// narrow_to_half() of `count` elements in host memory, by the processor's conversion instructions where it has them.
void narrow_all(Half* out, const float* in, std::size_t count);

}  // namespace farandole
