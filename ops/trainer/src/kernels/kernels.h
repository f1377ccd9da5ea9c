// SPDX-License-Identifier: Apache-2.0
// The computations of the built-in layers, losses, metrics and optimizers, in host memory or on a device.
//
// A layer is written once, for all memories: it calls the kernels of its execution.
//
//     const Kernels<Scalar>& kernels = kernels_of<Scalar>(pass.execution);
//     kernels.fill_rows(bias, rows, units, output.data());
//     kernels.multiply({input.data(), rows, inputs}, weights, /*add=*/true, output.data());
//
// host_kernels.cpp computes with Eigen, oneDNN and loops of our own. To support a computation on a device, too, add a
// function to Kernels, and implement it for both.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "convolution.h"
#include "farandole/trainer/execution.h"
#include "farandole/trainer/step_numbers.h"
#include "kernels/activation.h"
#include "kernels/factor.h"
#include "kernels/images.h"
#include "kernels/losses.h"
#include "kernels/normalization.h"
#include "kernels/samples.h"
#include "kernels/sequence.h"

namespace farandole {
class Device;
}

namespace farandole::trainer {

/// A matrix's columns [first, first + count), in memory of `width` columns.
struct Columns {
  std::int64_t first = 0, count = 0, width = 0;
};

/// The random factors of a dropout: 0 with probability `rate`, else 1 / (1 - rate).
struct DropoutDraw {
  double rate = 0;
  std::uint64_t seed = 0;  ///< as CounterRandom's
  std::uint64_t layer = 0;
  std::int64_t training_step = 0;
  const StepNumbers* step_numbers = nullptr;  ///< in the memory of the kernels; replaces `training_step`. May be null
  std::uint64_t first = 0;                    ///< number of the first element's draw
};

/// Learning rate of an update.
struct UpdateRate {
  double rate = 0;  ///< with the factor of the parameter's group
  /// Null, or in the memory of the kernels: the numbers of the training step, which replace the rate by
  /// step_numbers->learning_rate * factor, and what `of_rule` has.
  const StepNumbers* step_numbers = nullptr;
  double factor = 1;
};
/// Factors of an update by SGD or Adam, see Optimizer. `scale`, the factor on the gradient, is in the memory of the
/// kernels.
struct SgdFactors {
  UpdateRate rate;
  double momentum, decay;
  bool nesterov;
  const double* scale;
};
struct AdamFactors {
  UpdateRate rate;
  double beta1, beta2, epsilon;
  double first_bias;  ///< 1 - beta1^t, or of_rule[0]
  double correction;  ///< 1 / sqrt(1 - beta2^t), or of_rule[1]
  double decay;       ///< added to the gradient, times the parameter
  double own_decay;   ///< AdamW's: the parameter is multiplied by 1 - rate * own_decay
  const double* scale;
  /// Null, or in the memory of the kernels: first_bias and correction, which replace those above.
  const double* corrections = nullptr;
};

/// What an update does to all gradients.
struct Clipping {
  double limit = 0;  ///< of the norm of the gradients; 0: no clipping
  /// Sum of the squares of the gradients, in the memory of the kernels. Needed with a limit or a loss scale.
  const double* squares = nullptr;
  LossScale* loss_scale = nullptr;  ///< in the memory of the kernels. May be null
};

/// How a loss scale changes.
struct LossScaleRule {
  bool is_dynamic = false;        ///< false: it stays
  std::int64_t growth_steps = 0;  ///< good training steps after which it is doubled
};

/// Computations on values in one memory: the host's, or a device's. All addresses lie there, matrices are stored row by
/// row, and a count may be 0. Functions on a device enqueue work in the stream of its execution, and return before it
/// is done. Results depend on the arguments only, never on the number of threads; AlgorithmChoice has an exception.
/// Those of host memory are thread-safe if the memory is; those of a device are used by one thread at a time.
template <class Scalar>
class Kernels {
 public:
  virtual ~Kernels() = default;

  // Vectors of `count` elements. A result is another vector than the operands, or exactly one of them.

  virtual void clear(std::int64_t count, Scalar* values) const = 0;
  virtual void copy(std::int64_t count, const Scalar* from, Scalar* to) const = 0;
  virtual void add(std::int64_t count, const Scalar* left, const Scalar* right, Scalar* sum) const = 0;
  virtual void multiply_elements(std::int64_t count, const Scalar* left, const Scalar* right,
                                 Scalar* product) const = 0;
  virtual void scale(std::int64_t count, Scalar factor, Scalar* values) const = 0;
  /// values *= *factor
  virtual void scale_by(std::int64_t count, const double* factor, Scalar* values) const = 0;
  /// values += weight * (target - values); nothing if `loss_scale` says that the training step is skipped.
  virtual void approach(std::int64_t count, Scalar weight, const Scalar* target, Scalar* values,
                        const LossScale* loss_scale = nullptr) const = 0;
  /// y = activation(x)
  virtual void activate(const Activation& activation, std::int64_t count, const Scalar* x, Scalar* y) const = 0;
  /// dx = dy * activation'(x), with y = activation(x)
  virtual void activate_backward(const Activation& activation, std::int64_t count, const Scalar* x, const Scalar* y,
                                 const Scalar* dy, Scalar* dx) const = 0;
  virtual void draw_dropout(const DropoutDraw& draw, std::int64_t count, Scalar* factors) const = 0;

  // Matrices.

  /// result = left * right, or adds the product to `result`. At most one factor is transposed. No extent is 0.
  /// @param stride  elements from a row of the result to the next; 0: its number of columns
  virtual void multiply(const Factor<Scalar>& left, const Factor<Scalar>& right, bool add, Scalar* result,
                        std::int64_t stride = 0) const = 0;
  /// Returns the factor of several products, rounded once for all of them, if products are computed in another type
  /// than Scalar. Valid until the scope ends, or the values change.
  virtual Factor<Scalar> rounded(Workspace::Scope& scope, const Factor<Scalar>& factor) const {
    (void)scope;
    return factor;
  }
  /// Sets each of `rows` rows to `row`.
  virtual void fill_rows(const Scalar* row, std::int64_t rows, std::int64_t columns, Scalar* to) const = 0;
  /// Sets `sums` to the sum of the rows.
  virtual void sum_rows(const Scalar* values, std::int64_t rows, std::int64_t columns, Scalar* sums) const = 0;
  /// Copies columns of `rows` rows; `from.count` equals `to.count`.
  virtual void copy_columns(std::int64_t rows, const Scalar* values, const Columns& from, Scalar* result,
                            const Columns& to) const = 0;

  /// A convolution of images, with channels last.
  virtual std::unique_ptr<Convolution<Scalar>> convolution(const ConvolutionGeometry& geometry,
                                                           const ConvolutionChoice& choice) const = 0;

  // Families of their own.

  virtual const ImageKernels<Scalar>& images() const = 0;
  virtual const NormalizationKernels<Scalar>& normalization() const = 0;
  virtual const SequenceKernels<Scalar>& sequence() const = 0;
  virtual const LossKernels<Scalar>& losses() const = 0;
  virtual const SampleKernels<Scalar>& samples() const = 0;

  // Sums of losses and metrics, in double.

  /// to += from
  virtual void add_doubles(std::int64_t count, const double* from, double* to) const = 0;
  /// *to += factor * *from
  virtual void add_scaled(double factor, const double* from, double* to) const = 0;

  // Optimizers. An update leaves everything as it is if `*scale` is NaN.

  virtual void sgd(const SgdFactors& factors, std::int64_t count, const Scalar* gradient, Scalar* velocity,
                   Scalar* parameter) const = 0;
  virtual void adam(const AdamFactors& factors, std::int64_t count, const Scalar* gradient, Scalar* first,
                    Scalar* second, Scalar* parameter) const = 0;
  /// Sets `corrections`, two numbers, to AdamFactors::first_bias and correction of the update `count.training_step`
  /// less the skipped training steps.
  virtual void set_adam_corrections(double beta1, double beta2, const UpdateCount& count,
                                    double* corrections) const = 0;
  /// average = keep * average + add * values; nothing if `loss_scale` says that the training step is skipped.
  virtual void move_average(std::int64_t count, Scalar keep, Scalar add, const Scalar* values, Scalar* average,
                            const LossScale* loss_scale = nullptr) const = 0;
  /// Adds the squares of all values to `*sum`, in double and in a fixed order.
  virtual void add_squares(Workspace& workspace, std::int64_t count, const Scalar* values, double* sum) const = 0;
  /// Sets `*scale` to `factor`, divided by the loss scale, times clipping_factor(norm of the scaled gradients,
  /// clip.limit). With a loss scale sets LossScale::is_skipped: to 1, and `*scale` to NaN, if `*clip.squares` is no
  /// finite number.
  virtual void set_gradient_scale(double factor, const Clipping& clip, double* scale) const = 0;
  /// Counts the training step, and changes the scale.
  virtual void move_loss_scale(const LossScaleRule& rule, LossScale* loss_scale) const = 0;
};

/// The kernels of host memory.
template <class Scalar>
FARANDOLE_API const Kernels<Scalar>& host_kernels();

/// How the kernels of a device choose among a library's algorithms for the same result.
enum class AlgorithmChoice : std::uint8_t {
  /// By the sizes, the device and the version of the library, so equal ranks choose alike, unless a device lacks the
  /// scratch memory of the best algorithm.
  kFixed,
  /// The fastest in a measurement at the first use of each shape. Ranks and runs may choose differently, and their
  /// results differ in the last digits then; results of one execution are still the same each time.
  kMeasured,
};

/// True for the types of 16 bits, in which only products and convolutions of devices are computed.
constexpr bool is_half(DType dtype) {
  return dtype == DType::kBF16 || dtype == DType::kF16;
}

/// How a device computes.
struct DeviceComputation {
  AlgorithmChoice choice = AlgorithmChoice::kFixed;
  /// Type of products and convolutions of floats: kF32, kBF16 or kF16.
  DType compute = DType::kF32;
};

/// The kernels of a device, enqueued in a stream. An Execution on a device has one.
class DeviceKernels {
 public:
  virtual ~DeviceKernels() = default;
  virtual const Kernels<float>& f32() const = 0;
  virtual const Kernels<double>& f64() const = 0;
  virtual Device& device() const = 0;  ///< for copies and events
  /// The library that computes convolutions in this type: "cuDNN 9.19.0", or "cuBLAS" with the reason.
  virtual std::string convolution_library(DType compute) const = 0;
  /// The library that computes attention in the type of this computation: "cuDNN 9.19.0", or "cuBLAS" with the reason.
  /// cuDNN may refuse a shape, which is known only after its first use.
  virtual std::string attention_library() const = 0;
};

/// Tells when a pass has another execution than the pass before, whose tensors must be dropped: their memory belongs to
/// the other execution.
class ExecutionMark {
 public:
  bool changes(const Execution& execution) {
    if (kernels_ == execution.device_kernels()) return false;
    kernels_ = execution.device_kernels();
    return true;
  }

 private:
  std::shared_ptr<const DeviceKernels> kernels_;  // null: host memory
};

/// The kernels for the memory of an execution. @throws InvalidArgument  an execution on a device without kernels
template <class Scalar>
FARANDOLE_API const Kernels<Scalar>& kernels_of(const Execution& execution);

}  // namespace farandole::trainer
