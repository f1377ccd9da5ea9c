// SPDX-License-Identifier: Apache-2.0
// Synthetic samples in host memory.
#pragma once

#include <cstdint>

#include "kernels/samples.h"
#include "vectorized.h"

namespace farandole::trainer {

template <class Scalar>
class HostSamples final : public SampleKernels<Scalar> {
 public:
  void draw(const SyntheticClasses& source, const DrawnSamples<Scalar>& to) const override {
    vectorized([=]() FARANDOLE_INLINED {
      for (std::int64_t k = 0; k < to.count; ++k) {
        const std::uint32_t sample = to.indices[k];
        const std::int32_t label = source.label(sample);
        const SyntheticElements elements = SyntheticElements::of(source, sample, label);
        Scalar* __restrict input = to.inputs + k * source.elements;
        for (std::int64_t i = 0; i < source.elements; ++i) input[i] = static_cast<Scalar>(elements.at(i));
        to.labels[k] = label;
      }
    });
  }
  void draw(const SyntheticText& source, const DrawnSamples<Scalar>& to) const override {
    for (std::int64_t k = 0; k < to.count; ++k) {
      const auto first = to.indices[k] * static_cast<std::uint64_t>(source.length);
      std::int32_t symbol = source.symbol(first);
      for (std::int64_t i = 0; i < source.length; ++i) {
        to.inputs[k * source.length + i] = static_cast<Scalar>(symbol);
        symbol = source.symbol(first + static_cast<std::uint64_t>(i) + 1);
        to.labels[k * source.length + i] = symbol;
      }
    }
  }
};

}  // namespace farandole::trainer
