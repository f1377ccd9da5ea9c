// SPDX-License-Identifier: Apache-2.0
// Element-wise arithmetic of reductions, scalings and casts. CPU kernels (core/src/arithmetic) and GPU kernels
// (core/backends/cuda) share this code, so that both give the same bits. Exception: the sign and payload of a NaN that
// is added, multiplied or converted are unspecified; they differ even between CPUs.
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

/// A bool in memory: one byte, in which any non-zero value means true.
enum class Bool : std::uint8_t {};
FARANDOLE_HOST_DEVICE inline bool is_true(Bool value) {
  return static_cast<std::uint8_t>(value) != 0;
}
FARANDOLE_HOST_DEVICE inline Bool to_bool(int value) {
  return static_cast<Bool>(static_cast<std::uint8_t>(value));
}

/// Type in which values of the stored type `T` are combined.
template <class T>
using Accumulator = std::conditional_t<std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>, float, T>;

/// Type in which integers of type `T` are added for an average.
template <class T>
using SumType = std::conditional_t<(sizeof(T) < 4), std::int32_t, std::int64_t>;

/// Converts between a 16-bit floating-point type and its accumulator; identity for equal types.
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

/// Unsigned type at least as wide as int, so that integers of type `T` wrap on overflow. (std::uint16_t would be
/// promoted to signed int.)
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

/// Returns `left` if `left_wins` is true or `left` is a NaN, else `right`. A NaN on the right is returned, too, because
/// every comparison with a NaN is false.
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

/// Operations on the bits of unsigned integers, whose results signed integers share.
struct BitAnd {
  template <class T>
  FARANDOLE_HOST_DEVICE static T apply(T left, T right) {
    if constexpr (std::is_same_v<T, Bool>) {
      return Product::apply(left, right);
    } else {
      return static_cast<T>(left & right);
    }
  }
};

struct BitOr {
  template <class T>
  FARANDOLE_HOST_DEVICE static T apply(T left, T right) {
    if constexpr (std::is_same_v<T, Bool>) {
      return Sum::apply(left, right);
    } else {
      return static_cast<T>(left | right);
    }
  }
};

struct BitXor {
  template <class T>
  FARANDOLE_HOST_DEVICE static T apply(T left, T right) {
    if constexpr (std::is_same_v<T, Bool>) {
      return to_bool(static_cast<int>(is_true(left)) ^ static_cast<int>(is_true(right)));
    } else {
      return static_cast<T>(left ^ right);
    }
  }
};

/// Signed integer of the same size as the floating-point type `T`.
template <class T>
using OrderedInteger = std::conditional_t<sizeof(T) == 8, std::int64_t, std::int32_t>;

/// Maps f32 or f64 to signed integers, one to one, so that the minimum or maximum (`Op`) of the integers stands for the
/// minimum or maximum of the values. Any NaN wins against any number, as in Min and Max. Unlike in Min and Max, the
/// result never depends on the order of the arguments: -0 is less than +0, and among several NaNs the NaN with the
/// greatest integer (Max) or the smallest integer (Min) wins.
///
/// Read as integers, the bits of positive values are in the order of the values, and the bits of negative values are in
/// the reverse order. The first step reverses the negative values. The NaNs of each sign are then at one end: negative
/// NaNs before -infinity, positive NaNs after +infinity. The second step adds kOffset, so that the integers wrap
/// around: the NaNs at the end where they would lose move to the other end.
template <class T, class Op>
struct Ordered {
  using Integer = OrderedInteger<T>;
  using Bits = std::make_unsigned_t<Integer>;
  static constexpr int kShift = sizeof(T) * 8 - 1;
  static constexpr Bits kMagnitude = ~(Bits{1} << kShift);
  static constexpr Bits kNans = (Bits{1} << (std::numeric_limits<T>::digits - 1)) - 1;  ///< number of NaNs of each sign
  static constexpr Bits kOffset = std::is_same_v<Op, Min> ? kNans : Bits{0} - kNans;

  FARANDOLE_HOST_DEVICE static Integer to_integer(T value) {
    return static_cast<Integer>(reverse_if_negative(std::bit_cast<Bits>(value)) + kOffset);
  }
  FARANDOLE_HOST_DEVICE static T from_integer(Integer integer) {
    return std::bit_cast<T>(reverse_if_negative(static_cast<Bits>(integer) - kOffset));
  }

 private:
  FARANDOLE_HOST_DEVICE static Bits reverse_if_negative(Bits bits) {
    return bits ^ ((Bits{0} - (bits >> kShift)) & kMagnitude);
  }
};

/// Type in which floating-point values are scaled. f32 is multiplied in double, so that the average of equal values is
/// exactly that value for any number of ranks. For the 16-bit types float is enough.
template <class T>
using ScaleType = std::conditional_t<std::is_same_v<T, float>, double, Accumulator<T>>;

/// `value` * `factor`, computed in `Wide`, rounded to the accumulator and then to `T`.
template <class T, class Wide>
FARANDOLE_HOST_DEVICE inline T multiply(T value, Wide factor) {
  using Acc = Accumulator<T>;
  return convert<T>(static_cast<Acc>(static_cast<Wide>(convert<Acc>(value)) * factor));
}

/// Converts double to integer, truncating toward zero. Values outside the range of `T`, for which a cast is undefined,
/// are clamped; a NaN gives 0.
template <class T>
FARANDOLE_HOST_DEVICE inline T truncate(double value) {
  constexpr T kMin = std::numeric_limits<T>::min();
  constexpr T kMax = std::numeric_limits<T>::max();
  // 2^digits, the first value above the range: exact in double, unlike the maximum of a 64-bit type.
  constexpr double kAbove = 2.0 * static_cast<double>(std::uint64_t{1} << (std::numeric_limits<T>::digits - 1));
  if (value != value) return 0;
  if (value >= kAbove) return kMax;
  if (value <= static_cast<double>(kMin)) return kMin;
  return static_cast<T>(value);
}

/// Returns n if `factor` is 1/n for an integer n of at least 2, as in averages; else 0.
FARANDOLE_HOST_DEVICE inline double divisor_of(double factor) {
  constexpr double kMaxExact = 0x1p53;
  if (!(factor > 1 / kMaxExact && factor < 1)) return 0;
  const double divisor = std::nearbyint(1 / factor);
  return 1 / divisor == factor ? divisor : 0;
}

/// Type in which integers are divided: float for 8 and 16 bits, double for 32 bits, the integer type for 64 bits. These
/// floating-point types represent the operands exactly, with bits to spare, so the truncated quotient is exact. 8 and
/// 16 bits use float, because many GPUs have few double units.
template <class T>
using QuotientType = std::conditional_t<sizeof(T) == 8, T, std::conditional_t<sizeof(T) == 4, double, float>>;

/// `value` / `divisor`, truncated. Multiplying by 1/n instead could be wrong by 1: 49 * (1.0 / 49) is less than 1,
/// which truncates to 0.
template <class T>
FARANDOLE_HOST_DEVICE inline T divide(T value, QuotientType<T> divisor) {
  return static_cast<T>(static_cast<QuotientType<T>>(value) / divisor);
}

/// Clamps `value` to the range of `T`, which `Wide` can represent.
template <class T, class Wide>
FARANDOLE_HOST_DEVICE inline T bounded(Wide value) {
  constexpr Wide kMin = std::numeric_limits<T>::min();
  constexpr Wide kMax = std::numeric_limits<T>::max();
  return static_cast<T>(value < kMin ? kMin : value > kMax ? kMax : value);
}

/// Converts double to float with rounding to odd: a value between two floats becomes the float with an odd last bit.
/// Rounding the result to fewer bits then equals rounding the double directly, without double rounding.
FARANDOLE_HOST_DEVICE inline float narrow_to_odd(double value) {
  const auto nearest = static_cast<float>(value);
  const double back = nearest;
  if (!(back < value || back > value)) return nearest;
  auto bits = std::bit_cast<std::uint32_t>(nearest);
  // The cast rounded away from zero: step back by one. Infinity becomes the largest finite float, which is odd.
  if (value < 0 ? back < value : back > value) --bits;
  return std::bit_cast<float>(bits | 1U);
}

/// Casts among f16, bf16, f32 and f64 with a single rounding, and between an integer type and its SumType with
/// clamping.
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
