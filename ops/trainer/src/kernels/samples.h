// SPDX-License-Identifier: Apache-2.0
// The drawing of synthetic samples, part of Kernels.
#pragma once

#include <cstdint>

#include "kernels/synthetic_samples.h"

namespace farandole::trainer {

/// Samples to draw, one behind the other.
template <class Scalar>
struct DrawnSamples {
  std::int64_t count = 0;
  const std::uint32_t* indices = nullptr;  ///< of the samples
  Scalar* inputs = nullptr;
  std::int32_t* labels = nullptr;
};

/// As Kernels: all addresses lie in one memory. All memories get the same bits.
template <class Scalar>
class SampleKernels {
 public:
  virtual ~SampleKernels() = default;
  virtual void draw(const SyntheticClasses& source, const DrawnSamples<Scalar>& to) const = 0;
  virtual void draw(const SyntheticText& source, const DrawnSamples<Scalar>& to) const = 0;
};

}  // namespace farandole::trainer
