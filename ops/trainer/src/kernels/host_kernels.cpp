// SPDX-License-Identifier: Apache-2.0
// Kernels of host memory.
#include <algorithm>
#include <cmath>
#include <type_traits>

#include "farandole/core/error.h"
#include "farandole/trainer/optimizer.h"
#include "kernels/host_activations.h"
#include "kernels/host_images.h"
#include "kernels/host_losses.h"
#include "kernels/host_normalization.h"
#include "kernels/host_samples.h"
#include "kernels/host_sequence.h"
#include "kernels/host_updates.h"
#include "kernels/host_vectors.h"
#include "kernels/kernels.h"
#include "kernels/transfer.h"
#include "matrix_product.h"

namespace farandole::trainer {
namespace {

template <class Scalar>
class HostKernels final : public Kernels<Scalar> {
 public:
  void clear(std::int64_t count, Scalar* values) const override { std::fill_n(values, count, Scalar{0}); }
  void copy(std::int64_t count, const Scalar* from, Scalar* to) const override { std::copy_n(from, count, to); }
  void add(std::int64_t count, const Scalar* left, const Scalar* right, Scalar* sum) const override {
    combine_any(count, left, right, sum, Plus<Scalar>{});
  }
  void multiply_elements(std::int64_t count, const Scalar* left, const Scalar* right, Scalar* product) const override {
    combine_any(count, left, right, product, Times<Scalar>{});
  }
  void scale(std::int64_t count, Scalar factor, Scalar* values) const override { host_scale(count, factor, values); }
  void scale_by(std::int64_t count, const double* factor, Scalar* values) const override {
    host_scale(count, static_cast<Scalar>(*factor), values);
  }
  void approach(std::int64_t count, Scalar weight, const Scalar* target, Scalar* values,
                const LossScale* loss_scale) const override {
    if (!is_skipped(loss_scale)) host_approach(count, weight, target, values);
  }
  void activate(const Activation& activation, std::int64_t count, const Scalar* x, Scalar* y) const override {
    host_activate<Scalar>(activation, {.count = count, .x = x, .result = y});
  }
  void activate_backward(const Activation& activation, std::int64_t count, const Scalar* x, const Scalar* y,
                         const Scalar* dy, Scalar* dx) const override {
    host_activate<Scalar>(activation, {.count = count, .x = x, .y = y, .dy = dy, .result = dx});
  }
  void draw_dropout(const DropoutDraw& draw, std::int64_t count, Scalar* factors) const override {
    host_draw_dropout(draw, count, factors);
  }

  void multiply(const Factor<Scalar>& left, const Factor<Scalar>& right, bool add, Scalar* result,
                std::int64_t stride) const override {
    trainer::multiply(left, right, add, result, stride);
  }
  void fill_rows(const Scalar* row, std::int64_t rows, std::int64_t columns, Scalar* to) const override {
    trainer::fill_rows<Scalar>({row, static_cast<std::size_t>(columns)}, rows, to);
  }
  void sum_rows(const Scalar* values, std::int64_t rows, std::int64_t columns, Scalar* sums) const override {
    trainer::sum_rows(values, rows, {sums, static_cast<std::size_t>(columns)});
  }
  void copy_columns(std::int64_t rows, const Scalar* values, const Columns& from, Scalar* result,
                    const Columns& to) const override {
    host_copy_columns(rows, values, from, result, to);
  }

  std::unique_ptr<Convolution<Scalar>> convolution(const ConvolutionGeometry& geometry,
                                                   const ConvolutionChoice& choice) const override {
    if constexpr (std::is_same_v<Scalar, float>) {
      const bool is_free = choice.library == ConvolutionLibrary::kAutomatic;
      if (is_free && choice.winograd && winograd_is_faster(geometry)) return winograd_convolution(geometry);
      if (is_free && few_inputs_is_faster(geometry)) return few_inputs_convolution(geometry);
      if (choice.library != ConvolutionLibrary::kEigen) return onednn_convolution(geometry, choice.winograd);
    }
    return eigen_convolution<Scalar>(geometry);
  }

  const ImageKernels<Scalar>& images() const override { return images_; }
  const NormalizationKernels<Scalar>& normalization() const override { return normalization_; }
  const SequenceKernels<Scalar>& sequence() const override { return sequence_; }
  const LossKernels<Scalar>& losses() const override { return losses_; }
  const SampleKernels<Scalar>& samples() const override { return samples_; }

  void add_doubles(std::int64_t count, const double* from, double* to) const override {
    for (std::int64_t i = 0; i < count; ++i) to[i] += from[i];
  }
  void add_scaled(double factor, const double* from, double* to) const override { *to += factor * *from; }

  void sgd(const SgdFactors& factors, std::int64_t count, const Scalar* gradient, Scalar* velocity,
           Scalar* parameter) const override {
    factors.nesterov ? host_sgd<Scalar, true>(factors, count, gradient, velocity, parameter)
                     : host_sgd<Scalar, false>(factors, count, gradient, velocity, parameter);
  }
  void adam(const AdamFactors& factors, std::int64_t count, const Scalar* gradient, Scalar* first, Scalar* second,
            Scalar* parameter) const override {
    host_adam(factors, count, gradient, first, second, parameter);
  }
  void set_adam_corrections(double beta1, double beta2, const UpdateCount& count, double* corrections) const override {
    const std::int64_t skipped = count.loss_scale == nullptr ? 0 : count.loss_scale->skipped_steps;
    const AdamCorrections found = adam_corrections(beta1, beta2, count.training_step - skipped);
    corrections[0] = found.first_bias;
    corrections[1] = found.correction;
  }
  void move_average(std::int64_t count, Scalar keep, Scalar add, const Scalar* values, Scalar* average,
                    const LossScale* loss_scale) const override {
    if (is_skipped(loss_scale)) return;
    for (std::int64_t i = 0; i < count; ++i) average[i] = keep * average[i] + add * values[i];
  }
  void add_squares(Workspace& /*workspace*/, std::int64_t count, const Scalar* values, double* sum) const override {
    *sum += host_squares(count, values);
  }
  void set_gradient_scale(double factor, const Clipping& clip, double* scale) const override {
    *scale = gradient_scale_of(factor, clip.limit, clip.squares, clip.loss_scale);
  }
  void move_loss_scale(const LossScaleRule& rule, LossScale* loss_scale) const override {
    trainer::move_loss_scale(rule.is_dynamic ? rule.growth_steps : 0, *loss_scale);
  }

 private:
  static bool is_skipped(const LossScale* loss_scale) { return loss_scale != nullptr && loss_scale->is_skipped == 1; }

  const HostImages<Scalar> images_{};
  const HostNormalization<Scalar> normalization_{};
  const HostSequence<Scalar> sequence_{};
  const HostLosses<Scalar> losses_{};
  const HostSamples<Scalar> samples_{};
};

}  // namespace

template <class Scalar>
const Kernels<Scalar>& host_kernels() {
  static const HostKernels<Scalar> kernels;
  return kernels;
}
template const Kernels<float>& host_kernels();
template const Kernels<double>& host_kernels();

template <class Scalar>
const Kernels<Scalar>& kernels_of(const Execution& execution) {
  if (execution.space().is_host()) return host_kernels<Scalar>();
  device_of(execution);  // throws without kernels
  if constexpr (std::is_same_v<Scalar, float>) {
    return execution.device_kernels()->f32();
  } else {
    return execution.device_kernels()->f64();
  }
}
template const Kernels<float>& kernels_of(const Execution&);
template const Kernels<double>& kernels_of(const Execution&);

}  // namespace farandole::trainer
