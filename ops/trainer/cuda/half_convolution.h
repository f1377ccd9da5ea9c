// SPDX-License-Identifier: Apache-2.0
// Convolution on a device by cuDNN in a 16-bit type.
#pragma once

#include <cstdint>

#include "convolution.h"
#include "cudnn_plans.h"
#include "device_convolution.h"
#include "kernels/kernels.h"
#include "launcher.h"

namespace farandole::trainer::cuda {

/// A convolution of floats whose operands are rounded to bf16 or f16; cuDNN adds products up in f32, and rounds results
/// to the type. Shapes for which cuDNN has no algorithm are computed by patches.
class HalfConvolution final : public Convolution<float> {
 public:
  /// @param plans  in `type`   @param kernels  whose products are in `type`
  /// @param plans, kernels, launcher  outlive the convolution
  HalfConvolution(const ConvolutionGeometry& geometry, DType type, CudnnPlans& plans, const Kernels<float>& kernels,
                  const Launcher& launcher)
      : geometry_(geometry),
        type_(type),
        plans_(plans),
        kernels_(kernels),
        launcher_(launcher),
        by_patches_(geometry, kernels, launcher) {}

  void forward(Workspace& workspace, std::int64_t samples, const float* input, const float* weights, const float* bias,
               float* output) override {
    Workspace::Scope scope(workspace);
    const Narrow narrow = take(scope, samples);
    const PassArrays arrays{narrow.input, narrow.filters, narrow.output};
    CudnnPlan* const plan = plans_.plan(geometry_, samples);
    const CudnnAlgorithm* const algorithm =
        plan == nullptr ? nullptr : plan->algorithm(ConvolutionPass::kForward, workspace, arrays);
    if (algorithm == nullptr) return by_patches_.forward(workspace, samples, input, weights, bias, output);
    round(inputs(samples), input, narrow.input);
    round_weights(weights, narrow.filters);
    plan->compute(ConvolutionPass::kForward, *algorithm, workspace, arrays);
    widen(outputs(samples), narrow.output, bias, output);
  }

  void backward(Workspace& workspace, std::int64_t samples, const float* input, const float* weights,
                const float* output_gradient, float* weight_gradient, float* bias_gradient,
                float* input_gradient) override {
    Workspace::Scope scope(workspace);
    const Narrow narrow = take(scope, samples);  // `filters` is the gradient of the filters, then the filters
    const PassArrays of_filters{narrow.input, narrow.output, narrow.filters};
    const PassArrays of_input{narrow.filters, narrow.output, narrow.input};
    const auto found = plans_.gradient_plan(geometry_, samples, workspace, of_filters,
                                            input_gradient == nullptr ? nullptr : &of_input);
    if (!found) {
      return by_patches_.backward(workspace, samples, input, weights, output_gradient, weight_gradient, bias_gradient,
                                  input_gradient);
    }
    if (bias_gradient != nullptr) {
      kernels_.sum_rows(output_gradient, samples * geometry_.output_positions(), geometry_.channels, bias_gradient);
    }
    round(inputs(samples), input, narrow.input);
    round(outputs(samples), output_gradient, narrow.output);
    found->plan->compute(ConvolutionPass::kFilterGradient, *found->for_filters, workspace, of_filters);
    widen_weights(narrow.filters, weight_gradient);
    if (input_gradient == nullptr) return;
    round_weights(weights, narrow.filters);
    found->plan->compute(ConvolutionPass::kInputGradient, *found->for_input, workspace, of_input);
    widen(inputs(samples), narrow.input, nullptr, input_gradient);
  }

 private:
  /// Rounded arrays, in scratch memory.
  struct Narrow {
    HalfBits *input, *filters, *output;
  };
  std::int64_t weights() const { return geometry_.patch_elements() * geometry_.channels; }
  std::int64_t inputs(std::int64_t samples) const { return samples * geometry_.input_elements(); }
  std::int64_t outputs(std::int64_t samples) const {
    return samples * geometry_.output_positions() * geometry_.channels;
  }
  Narrow take(Workspace::Scope& scope, std::int64_t samples) const {
    const auto of = [&](std::int64_t count) { return scope.take<HalfBits>(static_cast<std::size_t>(count)).data(); };
    return {of(inputs(samples)), of(weights()), of(outputs(samples))};
  }

  void round(std::int64_t count, const float* values, HalfBits* narrow) const {
    launcher_.launch(HalfKernel::kNarrow, type_, count, {writes(narrow, count), reads(values, count)}, {count});
  }
  void widen(std::int64_t count, const HalfBits* narrow, const float* bias, float* values) const {
    launcher_.launch(HalfKernel::kWiden, type_, count,
                     {writes(values, count), reads(narrow, count), reads(bias, geometry_.channels)},
                     {count, geometry_.channels});
  }
  // Weights are {kernel, kernel, inputs, channels}, and filters {channels, kernel, kernel, inputs}.
  void round_weights(const float* values, HalfBits* filters) const {
    launcher_.launch(HalfKernel::kNarrowTransposed, type_, weights(),
                     {writes(filters, weights()), reads(values, weights())},
                     {weights(), geometry_.patch_elements(), geometry_.channels});
  }
  void widen_weights(const HalfBits* filters, float* values) const {
    launcher_.launch(HalfKernel::kWidenTransposed, type_, weights(),
                     {writes(values, weights()), reads(filters, weights())},
                     {weights(), geometry_.channels, geometry_.patch_elements()});
  }

  const ConvolutionGeometry geometry_;
  const DType type_;
  CudnnPlans& plans_;
  const Kernels<float>& kernels_;
  const Launcher& launcher_;
  DeviceConvolution<float> by_patches_;
};

}  // namespace farandole::trainer::cuda
