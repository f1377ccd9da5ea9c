// SPDX-License-Identifier: Apache-2.0
// Batch normalisation over all axes but the channels.
//   forward    x' = (x - mean) / sqrt(variance + epsilon),  y = scale * x' + shift
//   backward   dx = scale / sqrt(variance + epsilon) * (dy - mean(dy) - x' * mean(dy * x'))
// Means are over this replica's batch, or (synchronised) over the batches of all replicas. The synchronised form takes
// an allreduce of [sum(x), sum(x^2), count] in forward and an allreduce of [sum(dy), sum(dy * x')] in backward. All
// sums are in double. Source: Ioffe, Szegedy, ICML 2015.
#include <fmt/format.h>

#include <cstdint>

#include "farandole/core/error.h"
#include "farandole/trainer/layers.h"
#include "kernels/host_normalization.h"
#include "kernels/kernels.h"
#include "kernels/transfer.h"
#include "rectified_layer.h"

namespace farandole::trainer {
namespace {

template <class Scalar>
class BatchNormalization final : public RectifiableLayer<Scalar> {
 public:
  explicit BatchNormalization(const BatchNormalizationOptions& options) : options_(options) {
    if (!(options.epsilon > 0) || !(options.momentum >= 0 && options.momentum <= 1)) {
      throw InvalidArgument(
          fmt::format("batch_normalization: epsilon must be positive and momentum in [0, 1], got {} and {}",
                      options.epsilon, options.momentum));
    }
  }

  std::string name() const override {
    return options_.synchronized ? "batch_normalization, synchronized" : "batch_normalization";
  }

  Shape prepare(const Shape& input) override {
    if (input.empty() || elements(input) < 1) {
      throw InvalidArgument(fmt::format("{}: the input {} has no channels", name(), trainer::describe(input)));
    }
    channels_ = input.back();
    rows_per_sample_ = elements(input) / channels_;
    return input;
  }

  std::vector<ParameterSpec> parameters() const override {
    return {{"scale", {channels_}, Initial::kOne, 1, false}, {"shift", {channels_}, Initial::kZero, 1, false}};
  }
  std::vector<StatisticSpec> statistics() const override {
    return {{"mean", channels_, 0, options_.momentum}, {"variance", channels_, 1, options_.momentum}};
  }
  void bind(const LayerMemory<Scalar>& memory) override { memory_ = memory; }

  DeviceForm device_form() const override { return DeviceForm::kGraphs; }

  bool can_rectify(const Execution& execution) override { return execution.space().is_host(); }

  void forward(const Pass& pass, const Tensor<Scalar>& input, Tensor<Scalar>& output) override {
    use_statistics(pass, input);
    kernels_of<Scalar>(pass.execution)
        .normalization()
        .normalize(rows_of(input), statistics_in(pass.execution), scale_and_shift(), output.data());
  }

  void forward_rectified(const Pass& pass, const Tensor<Scalar>& input, Tensor<Scalar>& output) override {
    use_statistics(pass, input);
    host_normalize(rows_of(input), statistics_in(pass.execution), scale_and_shift(), Scalar{0}, output.data());
  }

  void backward(const Pass& pass, const Tensor<Scalar>& input, const Tensor<Scalar>&,
                const Tensor<Scalar>& output_gradient, Tensor<Scalar>* input_gradient) override {
    const NormalizationKernels<Scalar>& kernels = kernels_of<Scalar>(pass.execution).normalization();
    const ChannelStatistics<Scalar> statistics = this->statistics_in(pass.execution);
    compute_gradients(
        pass, input, input_gradient,
        [&](double* sums) {
          kernels.add_gradient_moments(pass.execution.workspace(), rows_of(input), output_gradient.data(), statistics,
                                       sums);
        },
        [&](const double* sums) {
          kernels.propagate(pass.execution.workspace(), rows_of(input), output_gradient.data(), statistics,
                            scale_and_shift().scale, sums, input_gradient->data());
        });
  }

  void backward_rectified(const Pass& pass, const Tensor<Scalar>& input, const Tensor<Scalar>&,
                          const Tensor<Scalar>& output_gradient, Tensor<Scalar>* input_gradient) override {
    const HostSlopes<Scalar, true> slopes{output_gradient.data(), scale_and_shift()};
    const ChannelStatistics<Scalar> statistics = this->statistics_in(pass.execution);
    compute_gradients(
        pass, input, input_gradient,
        [&](double* sums) { host_add_gradient_moments(rows_of(input), slopes, statistics, sums); },
        [&](const double* sums) {
          host_propagate(pass.execution.workspace(), rows_of(input), slopes, statistics, scale_and_shift().scale, sums,
                         input_gradient->data());
        });
  }

 private:
  bool is_synchronized(const Pass& pass) const {
    return options_.synchronized && pass.training && pass.replicas != nullptr && pass.replicas->size() > 1;
  }
  ChannelRows<Scalar> rows_of(const Tensor<Scalar>& tensor) const {
    return {tensor.data(), tensor.samples() * rows_per_sample_, channels_};
  }
  /// Adds up the sums of all replicas, in the execution's stream.
  static void add_up(const Pass& pass, VectorView<double> sums) {
    pass.replicas->allreduce(sums, ReduceOp::kSum, {.stream = pass.execution.stream()});
  }

  ChannelParameters<Scalar> scale_and_shift() const {
    return {memory_.parameters[0].data(), memory_.parameters[1].data()};
  }

  /// Takes the statistics of the batch or, in prediction, the moving ones.
  void use_statistics(const Pass& pass, const Tensor<Scalar>& input) {
    const NormalizationKernels<Scalar>& kernels = kernels_of<Scalar>(pass.execution).normalization();
    if (pass.training) return use_batch(pass, kernels, input);
    kernels.use_moving(channels_, memory_.moving_statistics[0].data(), memory_.moving_statistics[1].data(),
                       options_.epsilon, statistics_in(pass.execution));
  }

  /// @param add_moments  adds the moments of the output's gradient to its argument
  /// @param propagate    computes the gradient of the input from such sums
  template <class AddMoments, class Propagate>
  void compute_gradients(const Pass& pass, const Tensor<Scalar>& input, const Tensor<Scalar>* input_gradient,
                         const AddMoments& add_moments, const Propagate& propagate) {
    Workspace::Scope scope(pass.execution.workspace());
    const VectorView<double> sums = scope.take<double>(static_cast<std::size_t>(2 * channels_));
    clear(pass.execution, sums);
    add_moments(sums.data());
    kernels_of<Scalar>(pass.execution)
        .normalization()
        .store_gradients(channels_, sums.data(), memory_.gradients[0].data(), memory_.gradients[1].data());
    // The allreduce needs every replica, even a replica that needs no input gradient.
    if (is_synchronized(pass)) add_up(pass, sums);
    if (input_gradient == nullptr || input.samples() == 0) return;
    // In evaluation the statistics are constants.
    if (!pass.training) clear(pass.execution, sums);
    propagate(sums.data());
  }

  void use_batch(const Pass& pass, const NormalizationKernels<Scalar>& kernels, const Tensor<Scalar>& input) {
    Workspace::Scope scope(pass.execution.workspace());
    const VectorView<double> sums = scope.take<double>(static_cast<std::size_t>(2 * channels_ + 1));
    clear(pass.execution, sums);
    kernels.add_moments(pass.execution.workspace(), rows_of(input), sums.data());
    if (is_synchronized(pass)) add_up(pass, sums);
    kernels.use_batch(channels_, sums.data(), options_.epsilon, statistics_in(pass.execution),
                      memory_.batch_statistics[0].data(), memory_.batch_statistics[1].data());
  }

  /// The statistics of the last forward pass, in the memory of the execution.
  ChannelStatistics<Scalar> statistics_in(const Execution& execution) {
    const auto channels = static_cast<std::size_t>(channels_);
    if (execution_.changes(execution) || count_.count() == 0 || statistics_.count() != 2 * channels) {
      statistics_ = allocate_zeros(execution, 2 * channels, dtype_of<Scalar>);
      count_ = allocate_zeros(execution, 1, DType::kF64);
    }
    Scalar* const values = statistics_.as<Scalar>();
    return {values, values + channels, count_.as<double>()};
  }

  const BatchNormalizationOptions options_;
  std::int64_t channels_ = 0, rows_per_sample_ = 0;
  LayerMemory<Scalar> memory_;
  ExecutionMark execution_;
  Buffer statistics_;  ///< of the last forward pass: means, then inverse deviations
  Buffer count_;       ///< of the rows over which the means were taken
};

}  // namespace

template <class Scalar>
std::unique_ptr<Layer<Scalar>> batch_normalization(const BatchNormalizationOptions& options) {
  return std::make_unique<BatchNormalization<Scalar>>(options);
}
template std::unique_ptr<Layer<float>> batch_normalization<float>(const BatchNormalizationOptions&);
template std::unique_ptr<Layer<double>> batch_normalization<double>(const BatchNormalizationOptions&);

}  // namespace farandole::trainer
