// SPDX-License-Identifier: Apache-2.0
// Kernels for f16 on processors with conversion instructions: a block is widened to float in a level-1 cache, combined
// there by the float kernels, and narrowed. The instructions give the same bits as float16.h at about five times the
// speed.
#pragma once

#if defined(__x86_64__)

#include <immintrin.h>

#include <algorithm>
#include <array>
#include <type_traits>

#include "arithmetic/reduce_kernels.h"

namespace farandole::kernels {

template <Isa isa>
struct HalfConversion;

template <>
struct HalfConversion<Isa::kAvx2> {
  [[FARANDOLE_AVX2]] static void widen_all(float* out, const Half* in, std::size_t count) {
    std::size_t i = 0;
    for (; i + 8 <= count; i += 8) {
      _mm256_storeu_ps(out + i, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(in + i))));
    }
    for (; i < count; ++i) out[i] = widen(in[i]);
  }
  [[FARANDOLE_AVX2]] static void narrow_all(Half* out, const float* in, std::size_t count) {
    std::size_t i = 0;
    for (; i + 8 <= count; i += 8) {
      _mm_storeu_si128(reinterpret_cast<__m128i*>(out + i),
                       _mm256_cvtps_ph(_mm256_loadu_ps(in + i), _MM_FROUND_TO_NEAREST_INT));
    }
    for (; i < count; ++i) out[i] = narrow_to_half(in[i]);
  }
};

template <>
struct HalfConversion<Isa::kAvx512> {
  // Masked forms with all lanes, because g++ 12 warns of an uninitialised register in the unmasked forms.
  static constexpr __mmask16 kAllLanes = 0xffff;
  [[FARANDOLE_AVX512]] static void widen_all(float* out, const Half* in, std::size_t count) {
    std::size_t i = 0;
    for (; i + 16 <= count; i += 16) {
      _mm512_storeu_ps(out + i,
                       _mm512_maskz_cvtph_ps(kAllLanes, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(in + i))));
    }
    for (; i < count; ++i) out[i] = widen(in[i]);
  }
  [[FARANDOLE_AVX512]] static void narrow_all(Half* out, const float* in, std::size_t count) {
    std::size_t i = 0;
    for (; i + 16 <= count; i += 16) {
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + i),
                          _mm512_maskz_cvtps_ph(kAllLanes, _mm512_loadu_ps(in + i), _MM_FROUND_TO_NEAREST_INT));
    }
    for (; i < count; ++i) out[i] = narrow_to_half(in[i]);
  }
};

struct alignas(64) HalfBlock {
  std::array<float, 512> values;
};

/// Kernel of Combine<In, Out, Op, kInputs> where In and Out are Half or float, and at least one is Half.
template <Isa isa, class In, class Out, class Op, int kInputs>
void combine_halves(void* out, const void* const* inputs, std::size_t first, std::size_t count) {
  std::array<HalfBlock, kInputs> wide;
  constexpr std::size_t kBlock = HalfBlock{}.values.size();
  for (std::size_t done = 0; done < count; done += kBlock) {
    const std::size_t length = std::min(kBlock, count - done);
    std::array<const void*, kInputs> operands;
    for (std::size_t k = 0; k < operands.size(); ++k) {
      const auto* input = static_cast<const In*>(inputs[k]) + first + done;
      operands[k] = input;
      if constexpr (std::is_same_v<In, Half>) {
        HalfConversion<isa>::widen_all(wide[k].values.data(), input, length);
        operands[k] = wide[k].values.data();
      }
    }
    auto* target = static_cast<Out*>(out) + done;
    constexpr auto kCombine = Target<isa>::template combine<Combine<float, float, Op, kInputs>>;
    if constexpr (std::is_same_v<Out, Half>) {
      kCombine(wide[0].values.data(), operands.data(), 0, length);
      HalfConversion<isa>::narrow_all(target, wide[0].values.data(), length);
    } else {
      kCombine(target, operands.data(), 0, length);
    }
  }
}

template <Isa isa>
void widen_halves(void* out, const void* const* inputs, std::size_t first, std::size_t count) {
  HalfConversion<isa>::widen_all(static_cast<float*>(out), static_cast<const Half*>(inputs[0]) + first, count);
}

template <Isa isa>
void scale_halves(void* out, const void* in, std::size_t count, double factor) {
  HalfBlock wide;
  float* const values = wide.values.data();
  for (std::size_t done = 0; done < count; done += wide.values.size()) {
    const std::size_t length = std::min(wide.values.size(), count - done);
    HalfConversion<isa>::widen_all(values, static_cast<const Half*>(in) + done, length);
    Target<isa>::template scale<Scale<float, float>>(values, values, length, factor);
    HalfConversion<isa>::narrow_all(static_cast<Half*>(out) + done, values, length);
  }
}

/// Kernel of ScaleSums<Half>.
template <Isa isa>
void scale_half_sums(void* out, const void* in, std::size_t count, double factor) {
  HalfBlock wide;
  float* const values = wide.values.data();
  for (std::size_t done = 0; done < count; done += wide.values.size()) {
    const std::size_t length = std::min(wide.values.size(), count - done);
    Target<isa>::template scale<Scale<float, float>>(values, static_cast<const float*>(in) + done, length, factor);
    HalfConversion<isa>::narrow_all(static_cast<Half*>(out) + done, values, length);
  }
}

}  // namespace farandole::kernels

#endif
