// SPDX-License-Identifier: Apache-2.0
// The loops of reduce.cpp. Every loop is a template of always-inlined code that is compiled once per instruction set,
// inside a function that carries the target attribute; plain `target_clones` would need ifuncs, which run before thread
// sanitizer is ready.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "farandole/core/dtype.h"
#include "farandole/core/reduce.h"
#include "float16.h"

// No iteration depends on another: outputs are apart from inputs, or exactly the same memory.
#if defined(__clang__)
#define FARANDOLE_INDEPENDENT_ITERATIONS _Pragma("clang loop vectorize(assume_safety)")
#else
#define FARANDOLE_INDEPENDENT_ITERATIONS _Pragma("GCC ivdep")
#endif

namespace farandole::kernels {

/// A bool in memory: any byte, non-zero means true.
enum class Bool : std::uint8_t {};
[[gnu::always_inline]] inline bool is_true(Bool value) {
  return static_cast<std::uint8_t>(value) != 0;
}
[[gnu::always_inline]] inline Bool to_bool(int value) {
  return static_cast<Bool>(static_cast<std::uint8_t>(value));
}

/// What values of a stored type are combined as.
template <class T>
using Accumulator = std::conditional_t<std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>, float, T>;

template <class To, class From>
[[gnu::always_inline]] inline To convert(From value) {
  if constexpr (std::is_same_v<To, From>) {
    return value;
  } else if constexpr (std::is_same_v<To, Half>) {
    return narrow_to_half(value);
  } else if constexpr (std::is_same_v<To, BFloat16>) {
    return narrow_to_bfloat16(value);
  } else {
    static_assert(std::is_same_v<To, float>);
    return widen(value);
  }
}

/// Unsigned and at least as wide as int: its overflow wraps, where std::uint16_t would be promoted to a signed type.
template <class T>
using Wrapping = std::conditional_t<sizeof(T) == 8, std::uint64_t, std::uint32_t>;

struct Sum {
  template <class T>
  [[gnu::always_inline]] static T apply(T left, T right) {
    if constexpr (std::is_same_v<T, Bool>) {
      return to_bool(static_cast<int>(is_true(left)) | static_cast<int>(is_true(right)));
    } else if constexpr (std::is_integral_v<T>) {
      return static_cast<T>(static_cast<Wrapping<T>>(left) + static_cast<Wrapping<T>>(right));
    } else {
      return left + right;
    }
  }
};

struct Product {
  template <class T>
  [[gnu::always_inline]] static T apply(T left, T right) {
    if constexpr (std::is_same_v<T, Bool>) {
      return to_bool(static_cast<int>(is_true(left)) & static_cast<int>(is_true(right)));
    } else if constexpr (std::is_integral_v<T>) {
      return static_cast<T>(static_cast<Wrapping<T>>(left) * static_cast<Wrapping<T>>(right));
    } else {
      return left * right;
    }
  }
};

/// `left` if `left_wins` or `left` is a NaN, else `right`; so NaNs on the right stay too, as no comparison with them
/// holds.
template <class T>
[[gnu::always_inline]] inline T pick(bool left_wins, T left, T right) {
  if constexpr (std::is_integral_v<T>) {
    return left_wins ? left : right;
  } else {
    // Masks instead of a conditional expression: see select_bits.
    using Bits = std::conditional_t<sizeof(T) == 8, std::uint64_t, std::uint32_t>;
    const Bits mask = (Bits{0} - static_cast<Bits>(left_wins)) | (Bits{0} - static_cast<Bits>(left != left));
    return std::bit_cast<T>((std::bit_cast<Bits>(left) & mask) | (std::bit_cast<Bits>(right) & ~mask));
  }
}

struct Min {
  template <class T>
  [[gnu::always_inline]] static T apply(T left, T right) {
    if constexpr (std::is_same_v<T, Bool>) {
      return Product::apply(left, right);
    } else {
      return pick(left < right, left, right);
    }
  }
};

struct Max {
  template <class T>
  [[gnu::always_inline]] static T apply(T left, T right) {
    if constexpr (std::is_same_v<T, Bool>) {
      return Sum::apply(left, right);
    } else {
      return pick(left > right, left, right);
    }
  }
};

/// out[i] = the tree of inputs[k][first + i]. `out` may be one of them.
using Kernel = void (*)(void* out, const void* const* inputs, std::size_t first, std::size_t count);
using ScaleKernel = void (*)(void* out, const void* in, std::size_t count, double factor);

/// Combines 1, 2 or 4 inputs of type In as ((0,1),(2,3)), and stores them as Out.
template <class In, class Out, class Op, int kInputs>
struct Combine {
  [[gnu::always_inline]] static inline void run(void* out, const void* const* inputs, std::size_t first,
                                                std::size_t count) {
    using Acc = Accumulator<In>;
    auto* target = static_cast<Out*>(out);
    const auto* a = static_cast<const In*>(inputs[0]) + first;
    if constexpr (kInputs == 1) {
      FARANDOLE_INDEPENDENT_ITERATIONS
      for (std::size_t i = 0; i < count; ++i) target[i] = convert<Out>(convert<Acc>(a[i]));
    } else if constexpr (kInputs == 2) {
      const auto* b = static_cast<const In*>(inputs[1]) + first;
      FARANDOLE_INDEPENDENT_ITERATIONS
      for (std::size_t i = 0; i < count; ++i) {
        target[i] = convert<Out>(Op::template apply<Acc>(convert<Acc>(a[i]), convert<Acc>(b[i])));
      }
    } else {
      static_assert(kInputs == 4);
      const auto* b = static_cast<const In*>(inputs[1]) + first;
      const auto* c = static_cast<const In*>(inputs[2]) + first;
      const auto* d = static_cast<const In*>(inputs[3]) + first;
      FARANDOLE_INDEPENDENT_ITERATIONS
      for (std::size_t i = 0; i < count; ++i) {
        const Acc left = Op::template apply<Acc>(convert<Acc>(a[i]), convert<Acc>(b[i]));
        const Acc right = Op::template apply<Acc>(convert<Acc>(c[i]), convert<Acc>(d[i]));
        target[i] = convert<Out>(Op::template apply<Acc>(left, right));
      }
    }
  }
};

/// Multiplies in Wide. f32 is multiplied in double, so that the average of equal values is that value for any number of
/// ranks; the 16-bit types have that in float.
template <class T, class Wide>
struct Scale {
  [[gnu::always_inline]] static inline void run(void* out, const void* in, std::size_t count, double factor) {
    auto* target = static_cast<T*>(out);
    const auto* source = static_cast<const T*>(in);
    const auto wide_factor = static_cast<Wide>(factor);
    FARANDOLE_INDEPENDENT_ITERATIONS
    for (std::size_t i = 0; i < count; ++i) {
      using Acc = Accumulator<T>;
      target[i] = convert<T>(static_cast<Acc>(static_cast<Wide>(convert<Acc>(source[i])) * wide_factor));
    }
  }
};

template <Isa isa>
struct Target {
  template <class Loop>
  static void combine(void* out, const void* const* inputs, std::size_t first, std::size_t count) {
    Loop::run(out, inputs, first, count);
  }
  template <class Loop>
  static void scale(void* out, const void* in, std::size_t count, double factor) {
    Loop::run(out, in, count, factor);
  }
};

#if defined(__x86_64__)
#define FARANDOLE_AVX2 gnu::target("avx2,f16c")
#if defined(__clang__)
#define FARANDOLE_AVX512 gnu::target("avx512f,avx512bw,avx512dq,avx512vl"), clang::min_vector_width(512)
#else
#define FARANDOLE_AVX512 gnu::target("avx512f,avx512bw,avx512dq,avx512vl,prefer-vector-width=512")
#endif

template <>
struct Target<Isa::kAvx2> {
  template <class Loop>
  [[FARANDOLE_AVX2]] static void combine(void* out, const void* const* inputs, std::size_t first, std::size_t count) {
    Loop::run(out, inputs, first, count);
  }
  template <class Loop>
  [[FARANDOLE_AVX2]] static void scale(void* out, const void* in, std::size_t count, double factor) {
    Loop::run(out, in, count, factor);
  }
};

template <>
struct Target<Isa::kAvx512> {
  template <class Loop>
  [[FARANDOLE_AVX512]] static void combine(void* out, const void* const* inputs, std::size_t first, std::size_t count) {
    Loop::run(out, inputs, first, count);
  }
  template <class Loop>
  [[FARANDOLE_AVX512]] static void scale(void* out, const void* in, std::size_t count, double factor) {
    Loop::run(out, in, count, factor);
  }
};
#endif

}  // namespace farandole::kernels
