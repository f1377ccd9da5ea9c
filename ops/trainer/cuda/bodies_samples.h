// SPDX-License-Identifier: Apache-2.0
// Bodies that draw synthetic samples. T is the type of the inputs.
#pragma once

#include <cstdint>

#include "body_arguments.h"
#include "kernels/synthetic_samples.h"

namespace farandole::trainer::cuda {

/// Operands: labels, indices of the samples. Sizes: samples, seed, classes.
template <class T>
struct LabelSamples {
  FARANDOLE_HOST_DEVICE static void run(const Arguments& a, Share share) {
    const SyntheticClasses source{static_cast<std::uint64_t>(a.sizes[1]), 0, static_cast<std::int32_t>(a.sizes[2]), 0,
                                  static_cast<std::uint64_t>(a.sizes[3])};
    const auto* samples = input<std::uint32_t>(a, 1);
    for (std::int64_t i = share.first; i < a.sizes[0]; i += share.stride) {
      output<std::int32_t>(a, 0)[i] = source.label(samples[i]);
    }
  }
};

/// Operands: inputs, labels, indices of the samples. Sizes: elements of all inputs, seed, classes, elements of an
/// input, draw. Numbers: noise.
template <class T>
struct DrawSamples {
  FARANDOLE_HOST_DEVICE static void run(const Arguments& a, Share share) {
    const std::int64_t elements = a.sizes[3];
    const SyntheticClasses source{static_cast<std::uint64_t>(a.sizes[1]), elements,
                                  static_cast<std::int32_t>(a.sizes[2]), a.numbers[0],
                                  static_cast<std::uint64_t>(a.sizes[4])};
    const auto* labels = input<std::int32_t>(a, 1);
    const auto* samples = input<std::uint32_t>(a, 2);
    for (std::int64_t i = share.first; i < a.sizes[0]; i += share.stride) {
      const std::int64_t k = i / elements;
      output<T>(a, 0)[i] = static_cast<T>(SyntheticElements::of(source, samples[k], labels[k]).at(i % elements));
    }
  }
};

/// Operands: inputs, labels, indices of the samples. Sizes: symbols of all samples, seed, kinds of symbols, length of a
/// sample, draw.
template <class T>
struct DrawText {
  FARANDOLE_HOST_DEVICE static void run(const Arguments& a, Share share) {
    const std::int64_t length = a.sizes[3];
    const SyntheticText text{static_cast<std::uint64_t>(a.sizes[1]), length, static_cast<std::int32_t>(a.sizes[2]),
                             static_cast<std::uint64_t>(a.sizes[4])};
    const auto* samples = input<std::uint32_t>(a, 2);
    for (std::int64_t i = share.first; i < a.sizes[0]; i += share.stride) {
      const auto place = static_cast<std::uint64_t>(samples[i / length] * length + i % length);
      output<T>(a, 0)[i] = static_cast<T>(text.symbol(place));
      output<std::int32_t>(a, 1)[i] = text.symbol(place + 1);
    }
  }
};

}  // namespace farandole::trainer::cuda
