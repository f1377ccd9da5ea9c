// SPDX-License-Identifier: Apache-2.0
#include "farandole/internal/average.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <type_traits>

#include "farandole/core/float_mode.h"
#include "farandole/core/reduce.h"
#include "farandole/internal/arithmetic.h"

namespace farandole {
namespace {

// Elements per block. Each block is summed over all inputs before the next block, so that the sums stay in a level-1
// cache.
constexpr std::size_t kAveragedBlock = 512;

/// Functor that turns a sum into an average of type T. The divisor is derived from the factor once.
template <class T>
class Quotient {
 public:
  using Wide = kernels::SumType<T>;
  explicit Quotient(double factor)
      : factor_(factor), divisor_(static_cast<kernels::QuotientType<Wide>>(kernels::divisor_of(factor))) {}
  T operator()(Wide sum) const {
    if (factor_ == 1.0) return kernels::bounded<T>(sum);
    return kernels::bounded<T>(divisor_ != 0 ? kernels::divide(sum, divisor_)
                                             : kernels::truncate<Wide>(static_cast<double>(sum) * factor_));
  }

 private:
  const double factor_;
  const kernels::QuotientType<Wide> divisor_;  // 0 if the factor is not 1/n
};

/// Calls `visitor(T{})` for the stored type T of `dtype`, an integer type with a wider sum.
template <class Visitor>
void with_summed_type(DType dtype, const Visitor& visitor) {
  with_stored_type(dtype, [&](auto zero) {
    using T = decltype(zero);
    if constexpr (std::is_integral_v<T> && sizeof(T) < 8) {
      visitor(zero);
    } else {
      assert(false);
    }
  });
}

}  // namespace

double user_factor(double factor, DType dtype) {
  if (factor == 1.0) return factor;
  if (dtype != DType::kF16 && dtype != DType::kBF16 && dtype != DType::kF32) return factor;
  const FloatMode mode;
  const volatile double given = factor;  // volatile: keeps the conversion inside the scope of FloatMode
  const volatile auto rounded = static_cast<float>(given);
  return rounded;
}

double average_factor(double user_postscale, DType dtype, int ranks) {
  const double factor = user_factor(user_postscale, dtype);
  const double divided = averaging_scale(factor, ranks);
  return factor == 1.0 ? divided : user_factor(divided, dtype);
}

void average_integers(void* out, std::span<const void* const> inputs, std::size_t count, DType dtype, double factor) {
  const FloatMode mode;
  with_summed_type(dtype, [&](auto zero) {
    using T = decltype(zero);
    std::array<kernels::SumType<T>, kAveragedBlock> sums;
    const Quotient<T> quotient(factor);
    for (std::size_t first = 0; first < count; first += kAveragedBlock) {
      const std::size_t length = std::min(kAveragedBlock, count - first);
      std::copy_n(static_cast<const T*>(inputs.front()) + first, length, sums.begin());
      for (const void* const input : inputs.subspan(1)) {
        const T* const values = static_cast<const T*>(input) + first;
        for (std::size_t i = 0; i < length; ++i) sums[i] = kernels::Sum::apply(sums[i], {values[i]});
      }
      T* const target = static_cast<T*>(out) + first;
      for (std::size_t i = 0; i < length; ++i) target[i] = quotient(sums[i]);
    }
  });
}

void widen_to_sum(void* out, const void* in, std::size_t count, DType dtype, double factor) {
  with_summed_type(dtype, [&](auto zero) {
    using T = decltype(zero);
    std::array<T, kAveragedBlock> scaled;
    for (std::size_t first = 0; first < count; first += kAveragedBlock) {
      const std::size_t length = std::min(kAveragedBlock, count - first);
      const T* source = static_cast<const T*>(in) + first;
      if (factor != 1.0) {
        scale(scaled.data(), source, length, dtype, factor);
        source = scaled.data();
      }
      std::copy_n(source, length, static_cast<kernels::SumType<T>*>(out) + first);
    }
  });
}

void narrow_from_sum(void* out, const void* in, std::size_t count, DType dtype, double factor) {
  const FloatMode mode;
  with_summed_type(dtype, [&](auto zero) {
    using T = decltype(zero);
    const auto* const sums = static_cast<const kernels::SumType<T>*>(in);
    const Quotient<T> quotient(factor);
    for (std::size_t i = 0; i < count; ++i) static_cast<T*>(out)[i] = quotient(sums[i]);
  });
}

}  // namespace farandole
