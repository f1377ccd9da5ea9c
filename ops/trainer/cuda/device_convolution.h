// SPDX-License-Identifier: Apache-2.0
// Convolution on a device as a matrix product ("im2col"), as conv2d_eigen.cpp has it, but for many samples at a time.
#pragma once

#include <algorithm>
#include <cstdint>

#include "convolution.h"
#include "kernels/kernels.h"
#include "launcher.h"

namespace farandole::trainer::cuda {

/// The patches of a chunk of samples are the rows of a matrix, which takes kPatchBytes at most.
template <class Scalar>
class DeviceConvolution final : public Convolution<Scalar> {
 public:
  /// @param kernels, launcher  outlive the convolution
  DeviceConvolution(const ConvolutionGeometry& geometry, const Kernels<Scalar>& kernels, const Launcher& launcher)
      : geometry_(geometry), kernels_(kernels), launcher_(launcher) {}

  void forward(Workspace& workspace, std::int64_t samples, const Scalar* input, const Scalar* weights,
               const Scalar* bias, Scalar* output) override {
    Workspace::Scope scope(workspace);
    Scalar* const patches = take_patches(scope, samples);
    if (bias != nullptr) kernels_.fill_rows(bias, rows(samples), geometry_.channels, output);
    for_each_chunk(samples, [&](std::int64_t first, std::int64_t count) {
      gather(input + first * geometry_.input_elements(), count, patches);
      kernels_.multiply({patches, rows(count), geometry_.patch_elements()}, weight_matrix(weights), bias != nullptr,
                        output + rows(first) * geometry_.channels);
    });
  }

  void backward(Workspace& workspace, std::int64_t samples, const Scalar* input, const Scalar* weights,
                const Scalar* output_gradient, Scalar* weight_gradient, Scalar* bias_gradient,
                Scalar* input_gradient) override {
    Workspace::Scope scope(workspace);
    Scalar* const patches = take_patches(scope, samples);
    if (bias_gradient != nullptr) {
      kernels_.sum_rows(output_gradient, rows(samples), geometry_.channels, bias_gradient);
    }
    for_each_chunk(samples, [&](std::int64_t first, std::int64_t count) {
      Workspace::Scope of_chunk(workspace);
      const Factor<Scalar> gradient = kernels_.rounded(
          of_chunk, {output_gradient + rows(first) * geometry_.channels, rows(count), geometry_.channels});
      gather(input + first * geometry_.input_elements(), count, patches);
      kernels_.multiply({patches, rows(count), geometry_.patch_elements(), true}, gradient, first > 0, weight_gradient);
      if (input_gradient == nullptr) return;
      kernels_.multiply(gradient, weight_matrix(weights).transpose(), false, patches);
      scatter(patches, count, input_gradient + first * geometry_.input_elements());
    });
  }

 private:
  static constexpr std::int64_t kPatchBytes = std::int64_t{256} << 20;

  std::int64_t rows(std::int64_t samples) const { return samples * geometry_.output_positions(); }
  std::int64_t patch_elements(std::int64_t samples) const { return rows(samples) * geometry_.patch_elements(); }
  std::int64_t chunk(std::int64_t samples) const {
    const std::int64_t bytes = patch_elements(1) * static_cast<std::int64_t>(sizeof(Scalar));
    return std::clamp<std::int64_t>(kPatchBytes / bytes, 1, samples);
  }
  Scalar* take_patches(Workspace::Scope& scope, std::int64_t samples) const {
    return scope.take<Scalar>(static_cast<std::size_t>(patch_elements(chunk(samples)))).data();
  }
  template <class Use>
  void for_each_chunk(std::int64_t samples, const Use& use) const {
    const std::int64_t most = chunk(samples);
    for (std::int64_t first = 0; first < samples; first += most) use(first, std::min(most, samples - first));
  }
  Factor<Scalar> weight_matrix(const Scalar* weights) const {
    return {weights, geometry_.patch_elements(), geometry_.channels};
  }

  void gather(const Scalar* images, std::int64_t samples, Scalar* patches) const {
    const ConvolutionGeometry& g = geometry_;
    const std::int64_t count = patch_elements(samples);
    launcher_.launch<Scalar>(
        Kernel::kGatherPatches, count, {writes(patches, count), reads(images, samples * g.input_elements())},
        {count, g.height, g.width, g.inputs, g.kernel, g.stride, g.padding, g.output_height, g.output_width});
  }
  void scatter(const Scalar* patches, std::int64_t samples, Scalar* images) const {
    const ConvolutionGeometry& g = geometry_;
    const std::int64_t count = samples * g.input_elements();
    launcher_.launch<Scalar>(
        Kernel::kScatterPatches, count, {writes(images, count), reads(patches, patch_elements(samples))},
        {count, g.height, g.width, g.inputs, g.kernel, g.stride, g.padding, g.output_height, g.output_width});
  }

  const ConvolutionGeometry geometry_;
  const Kernels<Scalar>& kernels_;
  const Launcher& launcher_;
};

}  // namespace farandole::trainer::cuda
