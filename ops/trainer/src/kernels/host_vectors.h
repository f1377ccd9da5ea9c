// SPDX-License-Identifier: Apache-2.0
// Vectors in host memory, element by element.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>

#include "farandole/trainer/random.h"
#include "kernels/kernels.h"
#include "vectorized.h"

namespace farandole::trainer {

/// result[i] = function(left[i], right[i]). `function` is marked FARANDOLE_HOST_DEVICE. @param result  another vector
template <class Scalar, class Function>
void combine(std::int64_t count, const Scalar* left, const Scalar* right, Scalar* result, Function function) {
  vectorized([=]() FARANDOLE_INLINED {
    const Scalar* __restrict a = left, * __restrict b = right;
    Scalar* __restrict y = result;
    for (std::int64_t i = 0; i < count; ++i) y[i] = function(a[i], b[i]);
  });
}
/// values[i] = function(values[i], right[i])
template <class Scalar, class Function>
void combine_into(std::int64_t count, Scalar* values, const Scalar* right, Function function) {
  vectorized([=]() FARANDOLE_INLINED {
    const Scalar* __restrict b = right;
    Scalar* __restrict y = values;
    for (std::int64_t i = 0; i < count; ++i) y[i] = function(y[i], b[i]);
  });
}
/// As `combine`, where the result may be an operand.
template <class Scalar, class Function>
void combine_any(std::int64_t count, const Scalar* left, const Scalar* right, Scalar* result, Function function) {
  if (result == left) {
    combine_into(count, result, right, function);
  } else if (result == right) {
    combine_into(count, result, left,
                 [function](Scalar one, Scalar other) FARANDOLE_INLINED { return function(other, one); });
  } else {
    combine(count, left, right, result, function);
  }
}

template <class Scalar>
struct Plus {
  FARANDOLE_HOST_DEVICE Scalar operator()(Scalar left, Scalar right) const { return left + right; }
};
template <class Scalar>
struct Times {
  FARANDOLE_HOST_DEVICE Scalar operator()(Scalar left, Scalar right) const { return left * right; }
};

template <class Scalar>
void host_scale(std::int64_t count, Scalar factor, Scalar* values) {
  for (std::int64_t i = 0; i < count; ++i) values[i] *= factor;
}

template <class Scalar>
void host_approach(std::int64_t count, Scalar weight, const Scalar* target, Scalar* values) {
  for (std::int64_t i = 0; i < count; ++i) values[i] += weight * (target[i] - values[i]);
}

template <class Scalar>
void host_draw_dropout(const DropoutDraw& draw, std::int64_t count, Scalar* factors) {
  constexpr std::int64_t kBits = 1024;  // drawn at a time
  std::array<std::uint32_t, kBits> bits;
  const CounterRandom random(
      draw.seed, random_stream(RandomPurpose::kDropout, {static_cast<std::uint64_t>(draw.training_step), draw.layer}));
  const double dropped_below = draw.rate * 0x1p32;
  const auto kept = static_cast<Scalar>(1 / (1 - draw.rate));
  for (std::int64_t first = 0; first < count; first += kBits) {
    const std::int64_t some = std::min(kBits, count - first);
    random.bits(draw.first + static_cast<std::uint64_t>(first), std::span(bits).first(static_cast<std::size_t>(some)));
    for (std::int64_t i = 0; i < some; ++i) {
      factors[first + i] = bits[static_cast<std::size_t>(i)] < dropped_below ? Scalar{0} : kept;
    }
  }
}

/// Sum of the squares, in double and in a fixed order.
template <class Scalar>
double host_squares(std::int64_t count, const Scalar* values) {
  // Eight interleaved sums: one fixed order that still vectorises.
  constexpr std::int64_t kLanes = 8;
  std::array<double, kLanes> sums{};
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (std::int64_t lane = 0; lane < kLanes; ++lane) {
      const auto value = static_cast<double>(values[i + lane]);
      sums[static_cast<std::size_t>(lane)] += value * value;
    }
  }
  for (; i < count; ++i) {
    sums[static_cast<std::size_t>(i % kLanes)] += static_cast<double>(values[i]) * static_cast<double>(values[i]);
  }
  double sum = 0;
  for (const double part : sums) sum += part;
  return sum;
}

template <class Scalar>
void host_copy_columns(std::int64_t rows, const Scalar* values, const Columns& from, Scalar* result,
                       const Columns& to) {
  for (std::int64_t row = 0; row < rows; ++row) {
    std::copy_n(values + row * from.width + from.first, from.count, result + row * to.width + to.first);
  }
}

}  // namespace farandole::trainer
