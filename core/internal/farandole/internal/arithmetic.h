// SPDX-License-Identifier: Apache-2.0
// What reductions, scalings and casts do with one element: the same code for processors (core/src/reduce.cpp) and for
// GPUs (core/backends/cuda), so that both give the same bits. Of a NaN that is added, multiplied or converted only that
// it is one: which of them it is differs between processors already.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "farandole/core/dtype.h"
#include "farandole/internal/float16.h"
#include "farandole/internal/host_device.h"

namespace farandole::kernels {

/// A bool in memory: any byte, non-zero means true.
enum class Bool : std::uint8_t {};
FARANDOLE_HOST_DEVICE inline bool is_true(Bool value) {
  return static_cast<std::uint8_t>(value) != 0;
}
FARANDOLE_HOST_DEVICE inline Bool to_bool(int value) {
  return static_cast<Bool>(static_cast<std::uint8_t>(value));
}

/// What values of a stored type are combined as.
template <class T>
using Accumulator = std::conditional_t<std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>, float, T>;

/// What values of an integer type are added as for an average.
template <class T>
using SumType = std::conditional_t<(sizeof(T) < 4), std::int32_t, std::int64_t>;

template <class To, class From>
FARANDOLE_HOST_DEVICE inline To convert(From value) {
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
  FARANDOLE_HOST_DEVICE static T apply(T left, T right) {
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
  FARANDOLE_HOST_DEVICE static T apply(T left, T right) {
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
FARANDOLE_HOST_DEVICE inline T pick(bool left_wins, T left, T right) {
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
  FARANDOLE_HOST_DEVICE static T apply(T left, T right) {
    if constexpr (std::is_same_v<T, Bool>) {
      return Product::apply(left, right);
    } else {
      return pick(left < right, left, right);
    }
  }
};

struct Max {
  template <class T>
  FARANDOLE_HOST_DEVICE static T apply(T left, T right) {
    if constexpr (std::is_same_v<T, Bool>) {
      return Sum::apply(left, right);
    } else {
      return pick(left > right, left, right);
    }
  }
};

/// What values of a floating-point type are scaled in. f32 is multiplied in double, so that the average of equal values
/// is that value for any number of ranks; the 16-bit types have that in float.
template <class T>
using ScaleType = std::conditional_t<std::is_same_v<T, float>, double, Accumulator<T>>;

template <class T, class Wide>
FARANDOLE_HOST_DEVICE inline T multiply(T value, Wide factor) {
  using Acc = Accumulator<T>;
  return convert<T>(static_cast<Acc>(static_cast<Wide>(convert<Acc>(value)) * factor));
}

/// double → integer toward zero; values outside the type's range, which a cast must not see, become its nearest end.
template <class T>
FARANDOLE_HOST_DEVICE inline T truncate(double value) {
  constexpr T kMin = std::numeric_limits<T>::min();
  constexpr T kMax = std::numeric_limits<T>::max();
  // 2^(bits of the value): exact in double, unlike the maximum of a 64-bit type.
  constexpr double kAbove = 2.0 * static_cast<double>(std::uint64_t{1} << (std::numeric_limits<T>::digits - 1));
  if (value != value) return 0;
  if (value >= kAbove) return kMax;
  if (value <= static_cast<double>(kMin)) return kMin;
  return static_cast<T>(value);
}

/// The whole number n where `factor` is 1/n, as in averages; else 0.
FARANDOLE_HOST_DEVICE inline double divisor_of(double factor) {
  constexpr double kMaxExact = 0x1p53;
  if (!(factor > 1 / kMaxExact && factor < 1)) return 0;
  const double divisor = std::nearbyint(1 / factor);
  return 1 / divisor == factor ? divisor : 0;
}

/// What integers are divided in. Quotients of what a floating-point type holds exactly, with bits to spare, are right
/// once they are cut off. Double would do for all but 64 bits, but many GPUs have few units for it.
template <class T>
using QuotientType = std::conditional_t<sizeof(T) == 8, T, std::conditional_t<sizeof(T) == 4, double, float>>;

/// A product with 1/n may fall below a quotient that is a whole number (49 * (1.0 / 49) < 1), and be cut off to the
/// number before. So 1/n divides.
template <class T>
FARANDOLE_HOST_DEVICE inline T divide(T value, QuotientType<T> divisor) {
  return static_cast<T>(static_cast<QuotientType<T>>(value) / divisor);
}

/// The value, or the nearest end of the type's range, which `Wide` holds.
template <class T, class Wide>
FARANDOLE_HOST_DEVICE inline T bounded(Wide value) {
  constexpr Wide kMin = std::numeric_limits<T>::min();
  constexpr Wide kMax = std::numeric_limits<T>::max();
  return static_cast<T>(value < kMin ? kMin : value > kMax ? kMax : value);
}

/// double → float, but what lies between two floats becomes the one with an odd last bit: rounding that to fewer bits
/// then gives what rounding the double would give.
FARANDOLE_HOST_DEVICE inline float narrow_to_odd(double value) {
  const auto nearest = static_cast<float>(value);
  const double back = nearest;
  if (!(back < value || back > value)) return nearest;
  auto bits = std::bit_cast<std::uint32_t>(nearest);
  // Away from zero: one back. So infinity becomes the largest number, which is odd.
  if (value < 0 ? back < value : back > value) --bits;
  return std::bit_cast<float>(bits | 1U);
}

/// Among f16, bf16, f32 and f64, rounded once; between an integer and its SumType, bounded.
template <class To, class From>
FARANDOLE_HOST_DEVICE inline To cast(From value) {
  using Narrow = Accumulator<To>;
  if constexpr (std::is_integral_v<From>) {
    using Wide = std::conditional_t<(sizeof(From) > sizeof(To)), From, To>;
    return bounded<To>(static_cast<Wide>(value));
  } else if constexpr (std::is_same_v<From, double> && !std::is_same_v<To, Narrow>) {
    return convert<To>(narrow_to_odd(value));
  } else {
    return convert<To>(static_cast<Narrow>(convert<Accumulator<From>>(value)));
  }
}

}  // namespace farandole::kernels
