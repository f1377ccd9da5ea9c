// SPDX-License-Identifier: Apache-2.0
// Normalisation inside a sample: layer, group and RMS normalisation. A sample is cut into sets of elements, and each
// set is normalised on its own.
//   forward    x' = (x - mean) / sqrt(variance + epsilon),  y = scale * x' + shift
//   backward   dx = (g - mean(g) - x' * mean(g * x')) / sqrt(variance + epsilon),  with g = scale * dy
// RMS normalisation takes 0 for mean and mean(g), so that the variance is the mean of the squares. All sums are in
// double and in a fixed order.
#include <fmt/format.h>

#include <string>
#include <utility>

#include "farandole/core/error.h"
#include "farandole/trainer/layers.h"
#include "kernels/kernels.h"

namespace farandole::trainer {
namespace {

struct NormalizationKind {
  std::string name;
  bool centred = true;      ///< subtract the mean and add a shift; false for RMS normalisation
  std::int64_t groups = 0;  ///< sets of group normalisation; 0: each row of channels is a set
};

template <class Scalar>
class SampleNormalization final : public Layer<Scalar> {
 public:
  SampleNormalization(NormalizationKind kind, const NormalizationOptions& options)
      : kind_(std::move(kind)), options_(options) {
    if (!(options.epsilon > 0)) {
      throw InvalidArgument(fmt::format("{}: epsilon must be positive, got {}", kind_.name, options.epsilon));
    }
  }

  std::string name() const override {
    return fmt::format("{}, epsilon {}{}", kind_.name, options_.epsilon, options_.affine ? "" : ", not affine");
  }

  Shape prepare(const Shape& input) override {
    if (input.empty() || elements(input) < 1) {
      throw InvalidArgument(
          fmt::format("{}: expects samples with channels, the input is {}", kind_.name, trainer::describe(input)));
    }
    const std::int64_t channels = input.back(), rows = elements(input) / channels;
    if (kind_.groups > 0 && channels % kind_.groups != 0) {
      throw InvalidArgument(fmt::format("{}: expects a number of channels that is a multiple of {}, the input is {}",
                                        kind_.name, kind_.groups, trainer::describe(input)));
    }
    sets_ = kind_.groups > 0 ? NormalizationSets{kind_.groups, rows, channels / kind_.groups, channels}
                             : NormalizationSets{rows, 1, channels, channels};
    return input;
  }

  std::vector<ParameterSpec> parameters() const override {
    std::vector<ParameterSpec> specs;
    if (options_.affine) specs.push_back({"scale", {sets_.channels}, Initial::kOne, 1, false});
    if (options_.affine && kind_.centred) specs.push_back({"shift", {sets_.channels}, Initial::kZero, 1, false});
    return specs;
  }
  void bind(const LayerMemory<Scalar>& memory) override { memory_ = memory; }

  DeviceForm device_form() const override { return DeviceForm::kGraphs; }

  void forward(const Pass& pass, const Tensor<Scalar>& input, Tensor<Scalar>& output) override {
    const SequenceKernels<Scalar>& kernels = kernels_of<Scalar>(pass.execution).sequence();
    const SetNormalization all = normalization_of(input);
    if (execution_.changes(pass.execution)) statistics_ = Tensor<Scalar>(pass.execution.memory());
    statistics_.resize(2, {all.count()});
    kernels.measure_sets(all, input.data(), statistics());
    kernels.normalize_sets(all, input.data(), statistics(), scale(), shift(), output.data());
  }

  void backward(const Pass& pass, const Tensor<Scalar>& input, const Tensor<Scalar>&,
                const Tensor<Scalar>& output_gradient, Tensor<Scalar>* input_gradient) override {
    const SequenceKernels<Scalar>& kernels = kernels_of<Scalar>(pass.execution).sequence();
    const SetNormalization all = normalization_of(input);
    if (options_.affine) {
      kernels.set_gradients(pass.execution.workspace(), all, input.data(), output_gradient.data(), statistics(),
                            memory_.gradients[0].data(), kind_.centred ? memory_.gradients[1].data() : nullptr);
    }
    if (input_gradient == nullptr) return;
    kernels.propagate_sets(all, input.data(), output_gradient.data(), statistics(), scale(), input_gradient->data());
  }

 private:
  SetNormalization normalization_of(const Tensor<Scalar>& input) const {
    return {sets_, input.samples(), kind_.centred, options_.epsilon};
  }
  SetStatistics<Scalar> statistics() {
    return {statistics_.data(), statistics_.data() + statistics_.sample_elements()};
  }
  const Scalar* scale() const { return options_.affine ? memory_.parameters[0].data() : nullptr; }
  const Scalar* shift() const { return options_.affine && kind_.centred ? memory_.parameters[1].data() : nullptr; }

  const NormalizationKind kind_;
  const NormalizationOptions options_;
  NormalizationSets sets_;
  LayerMemory<Scalar> memory_;
  ExecutionMark execution_;
  Tensor<Scalar> statistics_;  ///< of the last forward pass, for each set: means, then inverse deviations
};

}  // namespace

template <class Scalar>
std::unique_ptr<Layer<Scalar>> layer_normalization(const NormalizationOptions& options) {
  return std::make_unique<SampleNormalization<Scalar>>(NormalizationKind{"layer_normalization"}, options);
}
template <class Scalar>
std::unique_ptr<Layer<Scalar>> group_normalization(std::int64_t groups, const NormalizationOptions& options) {
  if (groups < 1) {
    throw InvalidArgument(fmt::format("group_normalization: groups must be at least 1, got {}", groups));
  }
  return std::make_unique<SampleNormalization<Scalar>>(
      NormalizationKind{fmt::format("group_normalization, {} groups", groups), true, groups}, options);
}
template <class Scalar>
std::unique_ptr<Layer<Scalar>> rms_normalization(const NormalizationOptions& options) {
  return std::make_unique<SampleNormalization<Scalar>>(NormalizationKind{"rms_normalization", false}, options);
}
template std::unique_ptr<Layer<float>> layer_normalization<float>(const NormalizationOptions&);
template std::unique_ptr<Layer<double>> layer_normalization<double>(const NormalizationOptions&);
template std::unique_ptr<Layer<float>> group_normalization<float>(std::int64_t, const NormalizationOptions&);
template std::unique_ptr<Layer<double>> group_normalization<double>(std::int64_t, const NormalizationOptions&);
template std::unique_ptr<Layer<float>> rms_normalization<float>(const NormalizationOptions&);
template std::unique_ptr<Layer<double>> rms_normalization<double>(const NormalizationOptions&);

}  // namespace farandole::trainer
