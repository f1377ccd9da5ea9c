// SPDX-License-Identifier: Apache-2.0
// Convolution on a device by cuDNN.
#pragma once

#include <cstdint>

#include "convolution.h"
#include "cudnn_plans.h"
#include "device_convolution.h"
#include "kernels/kernels.h"
#include "launcher.h"

namespace farandole::trainer::cuda {

/// In f32: cuDNN documents no convolution with channels last in f64. Shapes for which cuDNN has no algorithm are
/// computed by patches.
class CudnnConvolution final : public Convolution<float> {
 public:
  /// @param plans, kernels, launcher  outlive the convolution
  CudnnConvolution(const ConvolutionGeometry& geometry, CudnnPlans& plans, const Kernels<float>& kernels,
                   const Launcher& launcher)
      : geometry_(geometry),
        plans_(plans),
        kernels_(kernels),
        launcher_(launcher),
        by_patches_(geometry, kernels, launcher) {}

  void forward(Workspace& workspace, std::int64_t samples, const float* input, const float* weights, const float* bias,
               float* output) override {
    Workspace::Scope scope(workspace);
    float* const filters = take_filters(scope);
    const PassArrays arrays{input, filters, output};
    CudnnPlan* const plan = plans_.plan(geometry_, samples);
    const CudnnAlgorithm* const algorithm =
        plan == nullptr ? nullptr : plan->algorithm(ConvolutionPass::kForward, workspace, arrays);
    if (algorithm == nullptr) return by_patches_.forward(workspace, samples, input, weights, bias, output);
    transpose(geometry_.patch_elements(), geometry_.channels, weights, filters);
    plan->compute(ConvolutionPass::kForward, *algorithm, workspace, arrays);
    if (bias != nullptr) add_bias(samples, bias, output);
  }

  void backward(Workspace& workspace, std::int64_t samples, const float* input, const float* weights,
                const float* output_gradient, float* weight_gradient, float* bias_gradient,
                float* input_gradient) override {
    Workspace::Scope scope(workspace);
    float* const filters = take_filters(scope);  // the gradient of the filters, then the filters
    const PassArrays of_filters{input, output_gradient, filters}, of_input{filters, output_gradient, input_gradient};
    const auto found = plans_.gradient_plan(geometry_, samples, workspace, of_filters,
                                            input_gradient == nullptr ? nullptr : &of_input);
    if (!found) {
      return by_patches_.backward(workspace, samples, input, weights, output_gradient, weight_gradient, bias_gradient,
                                  input_gradient);
    }
    if (bias_gradient != nullptr) {
      kernels_.sum_rows(output_gradient, samples * geometry_.output_positions(), geometry_.channels, bias_gradient);
    }
    found->plan->compute(ConvolutionPass::kFilterGradient, *found->for_filters, workspace, of_filters);
    transpose(geometry_.channels, geometry_.patch_elements(), filters, weight_gradient);
    if (input_gradient == nullptr) return;
    transpose(geometry_.patch_elements(), geometry_.channels, weights, filters);
    found->plan->compute(ConvolutionPass::kInputGradient, *found->for_input, workspace, of_input);
  }

 private:
  std::int64_t weights() const { return geometry_.patch_elements() * geometry_.channels; }
  float* take_filters(Workspace::Scope& scope) const {
    return scope.take<float>(static_cast<std::size_t>(weights())).data();
  }
  /// Weights are {kernel, kernel, inputs, channels}, and filters {channels, kernel, kernel, inputs}.
  void transpose(std::int64_t rows, std::int64_t columns, const float* matrix, float* transposed) const {
    launcher_.launch<float>(Kernel::kTranspose, weights(), {writes(transposed, weights()), reads(matrix, weights())},
                            {weights(), rows, columns});
  }
  void add_bias(std::int64_t samples, const float* bias, float* output) const {
    const std::int64_t count = samples * geometry_.output_positions() * geometry_.channels;
    launcher_.launch<float>(Kernel::kAddRow, count,
                            {writes(output, count), reads(output, count), reads(bias, geometry_.channels)},
                            {count, geometry_.channels});
  }

  const ConvolutionGeometry geometry_;
  CudnnPlans& plans_;
  const Kernels<float>& kernels_;
  const Launcher& launcher_;
  DeviceConvolution<float> by_patches_;
};

}  // namespace farandole::trainer::cuda
