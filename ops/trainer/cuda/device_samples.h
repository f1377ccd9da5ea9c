// SPDX-License-Identifier: Apache-2.0
// Synthetic samples on a device.
#pragma once

#include <cstdint>

#include "kernels/samples.h"
#include "launcher.h"

namespace farandole::trainer::cuda {

template <class Scalar>
class DeviceSamples final : public SampleKernels<Scalar> {
 public:
  /// @param launcher  outlives this object
  explicit DeviceSamples(const Launcher& launcher) : launcher_(launcher) {}

  void draw(const SyntheticClasses& source, const DrawnSamples<Scalar>& to) const override {
    const auto seed = static_cast<std::int64_t>(source.seed), draw = static_cast<std::int64_t>(source.draw);
    const std::int64_t elements = to.count * source.elements;
    launcher_.launch<Scalar>(Kernel::kLabelSamples, to.count,
                             {writes(to.labels, to.count), reads(to.indices, to.count)},
                             {to.count, seed, source.classes, draw});
    launcher_.launch<Scalar>(Kernel::kDrawSamples, elements,
                             {writes(to.inputs, elements), reads(to.labels, to.count), reads(to.indices, to.count)},
                             {elements, seed, source.classes, source.elements, draw}, {source.noise});
  }
  void draw(const SyntheticText& source, const DrawnSamples<Scalar>& to) const override {
    const std::int64_t symbols = to.count * source.length;
    launcher_.launch<Scalar>(Kernel::kDrawText, symbols,
                             {writes(to.inputs, symbols), writes(to.labels, symbols), reads(to.indices, to.count)},
                             {symbols, static_cast<std::int64_t>(source.seed), source.symbols, source.length,
                              static_cast<std::int64_t>(source.draw)});
  }

 private:
  const Launcher& launcher_;
};

}  // namespace farandole::trainer::cuda
