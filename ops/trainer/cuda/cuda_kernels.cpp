// SPDX-License-Identifier: Apache-2.0
#include "cuda_kernels.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <type_traits>
#include <vector>

#include "cudnn_attention.h"
#include "cudnn_convolution.h"
#include "device_convolution.h"
#include "device_images.h"
#include "device_losses.h"
#include "device_normalization.h"
#include "device_samples.h"
#include "device_sequence.h"
#include "device_sums.h"
#include "farandole/trainer/random.h"
#include "half_convolution.h"
#include "half_products.h"
#include "products.h"

namespace farandole::trainer::cuda {
namespace {

template <class Scalar>
class CudaKernels final : public Kernels<Scalar> {
 public:
  /// @param halves  null: products and convolutions in Scalar   @param attention  null: no fused attention
  /// @param launcher, cublas, cudnn, halves, attention  outlive this object
  CudaKernels(const Launcher& launcher, const Cublas& cublas, CudnnPlans& cudnn, const HalfProducts* halves,
              FusedAttention<Scalar>* attention)
      : launcher_(launcher),
        cublas_(cublas),
        cudnn_(cudnn),
        halves_(halves),
        images_(launcher),
        normalization_(launcher),
        sequence_(launcher, cublas, halves, attention),
        losses_(launcher),
        samples_(launcher) {}

  void clear(std::int64_t count, Scalar* values) const override {
    if (count > 0) device().fill_zero(values, bytes_of(count), launcher_.stream());
  }
  void copy(std::int64_t count, const Scalar* from, Scalar* to) const override {
    if (count > 0 && from != to) device().copy(to, from, bytes_of(count), launcher_.stream());
  }
  void add(std::int64_t count, const Scalar* left, const Scalar* right, Scalar* sum) const override {
    run(Kernel::kAdd, count, {writes(sum, count), reads(left, count), reads(right, count)}, {count});
  }
  void multiply_elements(std::int64_t count, const Scalar* left, const Scalar* right, Scalar* product) const override {
    run(Kernel::kMultiply, count, {writes(product, count), reads(left, count), reads(right, count)}, {count});
  }
  void scale(std::int64_t count, Scalar factor, Scalar* values) const override {
    run(Kernel::kScale, count, {writes(values, count)}, {count}, {static_cast<double>(factor)});
  }
  void scale_by(std::int64_t count, const double* factor, Scalar* values) const override {
    run(Kernel::kScaleBy, count, {writes(values, count), reads(factor, 1)}, {count});
  }
  void approach(std::int64_t count, Scalar weight, const Scalar* target, Scalar* values,
                const LossScale* loss_scale) const override {
    run(Kernel::kApproach, count, {writes(values, count), reads(target, count), reads(loss_scale, 1)}, {count},
        {static_cast<double>(weight)});
  }
  void activate(const Activation& activation, std::int64_t count, const Scalar* x, Scalar* y) const override {
    run(Kernel::kActivate, count, {writes(y, count), reads(x, count)},
        {count, static_cast<std::int64_t>(activation.kind)}, {activation.slope});
  }
  void activate_backward(const Activation& activation, std::int64_t count, const Scalar* x, const Scalar* y,
                         const Scalar* dy, Scalar* dx) const override {
    run(Kernel::kActivateBackward, count, {writes(dx, count), reads(x, count), reads(y, count), reads(dy, count)},
        {count, static_cast<std::int64_t>(activation.kind)}, {activation.slope});
  }
  void draw_dropout(const DropoutDraw& draw, std::int64_t count, Scalar* factors) const override {
    const auto whole = [](std::uint64_t value) { return static_cast<std::int64_t>(value); };
    run(Kernel::kDrawDropout, count, {writes(factors, count), reads(draw.step_numbers, 1)},
        {count, whole(draw.seed), static_cast<std::int64_t>(RandomPurpose::kDropout), draw.training_step,
         whole(draw.layer), whole(draw.first)},
        {draw.rate, 1 / (1 - draw.rate)});
  }

  void multiply(const Factor<Scalar>& left, const Factor<Scalar>& right, bool add, Scalar* result,
                std::int64_t stride) const override {
    if constexpr (std::is_same_v<Scalar, float>) {
      if (halves_ != nullptr) return halves_->multiply(left, right, add, result, stride);
    }
    trainer::cuda::multiply(cublas_, left, right, add, result, stride);
  }
  Factor<Scalar> rounded(Workspace::Scope& scope, const Factor<Scalar>& factor) const override {
    if constexpr (std::is_same_v<Scalar, float>) {
      if (halves_ != nullptr) return halves_->rounded(scope, factor);
    }
    return factor;
  }
  void fill_rows(const Scalar* row, std::int64_t rows, std::int64_t columns, Scalar* to) const override {
    run(Kernel::kFillRows, rows * columns, {writes(to, rows * columns), reads(row, columns)},
        {rows * columns, columns});
  }
  void sum_rows(const Scalar* values, std::int64_t rows, std::int64_t columns, Scalar* sums) const override {
    if (rows == 0) return clear(columns, sums);
    trainer::cuda::multiply<Scalar>(cublas_, {ones(rows), 1, rows}, {values, rows, columns}, false, sums, 0);
  }
  void copy_columns(std::int64_t rows, const Scalar* values, const Columns& from, Scalar* result,
                    const Columns& to) const override {
    const std::int64_t count = rows * from.count;
    run(Kernel::kCopyColumns, count, {writes(result, rows * to.width), reads(values, rows * from.width)},
        {count, from.count, from.first, from.width, to.first, to.width});
  }

  std::unique_ptr<Convolution<Scalar>> convolution(const ConvolutionGeometry& geometry,
                                                   const ConvolutionChoice& /*choice*/) const override {
    if constexpr (std::is_same_v<Scalar, float>) {
      if (cudnn_.can_be_used() && halves_ != nullptr) {
        return std::make_unique<HalfConvolution>(geometry, halves_->type(), cudnn_, *this, launcher_);
      }
      if (cudnn_.can_be_used()) return std::make_unique<CudnnConvolution>(geometry, cudnn_, *this, launcher_);
    }
    return std::make_unique<DeviceConvolution<Scalar>>(geometry, *this, launcher_);
  }

  const ImageKernels<Scalar>& images() const override { return images_; }
  const NormalizationKernels<Scalar>& normalization() const override { return normalization_; }
  const SequenceKernels<Scalar>& sequence() const override { return sequence_; }
  const LossKernels<Scalar>& losses() const override { return losses_; }
  const SampleKernels<Scalar>& samples() const override { return samples_; }

  void add_doubles(std::int64_t count, const double* from, double* to) const override {
    run(Kernel::kSumDoubles, count, {writes(to, count), reads(from, count)}, {count, count, 1});
  }
  void add_scaled(double factor, const double* from, double* to) const override {
    run(Kernel::kAddNumber, 1, {writes(to, 1), reads(from, 1)}, {}, {factor});
  }

  void sgd(const SgdFactors& f, std::int64_t count, const Scalar* gradient, Scalar* velocity,
           Scalar* parameter) const override {
    run(Kernel::kSgd, count,
        {writes(parameter, count), writes(velocity, count), reads(gradient, count), reads(f.scale, 1),
         reads(f.rate.step_numbers, 1)},
        {count, f.nesterov ? 1 : 0}, {rate_number(f.rate), f.momentum, f.decay});
  }
  void adam(const AdamFactors& f, std::int64_t count, const Scalar* gradient, Scalar* first, Scalar* second,
            Scalar* parameter) const override {
    run(Kernel::kAdam, count,
        {writes(parameter, count), writes(first, count), writes(second, count), reads(gradient, count),
         reads(f.scale, 1), reads(f.rate.step_numbers, 1), reads(f.corrections, kRuleNumbers)},
        {count}, {rate_number(f.rate), f.beta1, f.beta2, f.epsilon, f.first_bias, f.correction, f.decay, f.own_decay});
  }
  void set_adam_corrections(double beta1, double beta2, const UpdateCount& count, double* corrections) const override {
    run(Kernel::kSetAdamCorrections, 1,
        {writes(corrections, kRuleNumbers), reads(count.loss_scale, 1), reads(count.step_numbers, 1)},
        {count.training_step}, {beta1, beta2});
  }
  void move_average(std::int64_t count, Scalar keep, Scalar add, const Scalar* values, Scalar* average,
                    const LossScale* loss_scale) const override {
    run(Kernel::kMoveAverage, count, {writes(average, count), reads(values, count), reads(loss_scale, 1)}, {count},
        {static_cast<double>(keep), static_cast<double>(add)});
  }
  void add_squares(Workspace& workspace, std::int64_t count, const Scalar* values, double* sum) const override {
    Workspace::Scope scope(workspace);
    constexpr std::int64_t kPartials = 16384;
    const std::int64_t partials = std::min(count, kPartials);
    double* const squares = scope.take<double>(static_cast<std::size_t>(partials)).data();
    run(Kernel::kSumSquares, partials, {writes(squares, partials), reads(values, count)}, {partials, count});
    sum_doubles<Scalar>(launcher_, workspace, partials, squares, sum);
  }
  void set_gradient_scale(double factor, const Clipping& clip, double* scale) const override {
    const bool needs_squares = clip.limit > 0 || clip.loss_scale != nullptr;
    run(Kernel::kSetGradientScale, 1,
        {writes(scale, 1), reads(needs_squares ? clip.squares : nullptr, 1), writes(clip.loss_scale, 1)}, {},
        {factor, clip.limit});
  }
  void move_loss_scale(const LossScaleRule& rule, LossScale* loss_scale) const override {
    run(Kernel::kMoveLossScale, 1, {writes(loss_scale, 1)}, {rule.is_dynamic ? rule.growth_steps : 0});
  }

 private:
  Device& device() const { return launcher_.device(); }
  /// What kernel_bodies.h's rate_of takes.
  static double rate_number(const UpdateRate& rate) { return rate.step_numbers == nullptr ? rate.rate : rate.factor; }
  static std::size_t bytes_of(std::int64_t count) { return static_cast<std::size_t>(count) * sizeof(Scalar); }
  void run(Kernel kernel, std::int64_t threads, std::initializer_list<farandole::cuda::Operand> operands,
           std::initializer_list<std::int64_t> sizes, std::initializer_list<double> numbers = {}) const {
    launcher_.launch<Scalar>(kernel, threads, operands, sizes, numbers);
  }

  /// At least `count` ones, in memory of the device.
  const Scalar* ones(std::int64_t count) const {
    if (count > ones_) {
      // The old memory may be in use by work in the stream; the new is at least twice as large.
      const std::int64_t wanted = std::max(count, 2 * ones_);
      ones_memory_.reserve(ones_memory_.size() + 1);
      ones_memory_.push_back(device().allocate(bytes_of(wanted)));
      run(Kernel::kFillOnes, wanted, {writes(static_cast<Scalar*>(ones_memory_.back()), wanted)}, {wanted});
      ones_ = wanted;
    }
    return static_cast<const Scalar*>(ones_memory_.back());
  }

 public:
  ~CudaKernels() override {
    for (void* const memory : ones_memory_) device().release(memory);
  }

 private:
  const Launcher& launcher_;
  const Cublas& cublas_;
  CudnnPlans& cudnn_;
  const HalfProducts* const halves_;
  const DeviceImages<Scalar> images_;
  const DeviceNormalization<Scalar> normalization_;
  const DeviceSequence<Scalar> sequence_;
  const DeviceLosses<Scalar> losses_;
  const DeviceSamples<Scalar> samples_;
  mutable std::int64_t ones_ = 0;
  mutable std::vector<void*> ones_memory_;
};

class CudaDeviceKernels final : public DeviceKernels {
 public:
  CudaDeviceKernels(const LoadedKernels& kernels, const CublasApi& cublas, const CudnnLibrary& cudnn, Device& device,
                    StreamView stream, Workspace& workspace, const DeviceComputation& computation)
      : launcher_(kernels, device, stream),
        cublas_(cublas, device, stream),
        cudnn_(cudnn),
        plans_(cudnn, device, stream, computation),
        halves_(launcher_, cublas_, workspace, computation.compute),
        attention_(cudnn, plans_, launcher_, computation),
        f32_(launcher_, cublas_, plans_, is_half(computation.compute) ? &halves_ : nullptr, &attention_),
        f64_(launcher_, cublas_, plans_, nullptr, nullptr) {}
  ~CudaDeviceKernels() override {
    try {
      device().synchronize(launcher_.stream());  // memory must not be released while work uses it
    } catch (const std::exception&) {
      // The device has failed; whoever waits for results reports it.
    }
  }
  const Kernels<float>& f32() const override { return f32_; }
  const Kernels<double>& f64() const override { return f64_; }
  Device& device() const override { return launcher_.device(); }
  std::string convolution_library(DType compute) const override {
    if (!cudnn_.why_not.empty()) return fmt::format("cuBLAS ({})", cudnn_.why_not);
    return compute == DType::kF64 ? "cuBLAS (cuDNN is not used in f64)" : "cuDNN " + cudnn_.version;
  }
  std::string attention_library() const override {
    const std::string& reason = attention_.why_not();
    return reason.empty() ? "cuDNN " + cudnn_.version : fmt::format("cuBLAS ({})", reason);
  }

 private:
  const Launcher launcher_;
  const Cublas cublas_;
  const CudnnLibrary& cudnn_;
  CudnnPlans plans_;
  const HalfProducts halves_;  // used if the computation is in a 16-bit type
  CudnnAttention attention_;   // likewise
  const CudaKernels<float> f32_;
  const CudaKernels<double> f64_;
};

}  // namespace

std::unique_ptr<DeviceKernels> cuda_kernels(const LoadedKernels& kernels, const CublasApi& cublas,
                                            const CudnnLibrary& cudnn, Device& device, StreamView stream,
                                            Workspace& workspace, const DeviceComputation& computation) {
  return std::make_unique<CudaDeviceKernels>(kernels, cublas, cudnn, device, stream, workspace, computation);
}

}  // namespace farandole::trainer::cuda
