// SPDX-License-Identifier: Apache-2.0
// The interface of layers. Implement Layer to add a layer of your own.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "farandole/collectives/communicator.h"
#include "farandole/core/export.h"
#include "farandole/trainer/execution.h"
#include "farandole/trainer/step_numbers.h"
#include "farandole/trainer/tensor.h"

namespace farandole FARANDOLE_API {
namespace trainer {

class StepProfiler;

/// Context of a pass of a batch through a layer. The default is a prediction; training passes `Pass{.training = true,
/// .seed = 1, .training_step = step}`.
struct Pass {
  bool training = false;   ///< false: prediction, without dropout and with moving statistics
  std::uint64_t seed = 0;  ///< the program's seed
  std::int64_t training_step = 0;
  /// Position of this batch's first sample in the global batch. Layers derive random numbers from the positions of
  /// samples.
  std::int64_t first_sample = 0;
  /// Number of the layer, for random_stream; set by Model. A layer of the model has its index. A layer inside another
  /// layer has a hash of its path, so that no two layers draw the same random numbers.
  std::uint64_t layer = 0;
  /// In a pass that is captured into a graph: the numbers of the training step at hand, on the device, where the work
  /// must read the training step. Null: `training_step`.
  const StepNumbers* step_numbers = nullptr;
  Communicator* replicas = nullptr;  ///< for layers that synchronise across replicas; null: this replica only
  Execution execution = {};          ///< where and how to compute, and scratch memory; set by Model
  /// Measures the layers of a training step; set by the trainer (TrainerOptions::profile). Null: nothing is measured.
  StepProfiler* profiler = nullptr;
};

/// Initial values of a parameter. kUniformFanIn: U(-b, b) with b = 1/sqrt(fan_in), as PyTorch's default. kNormalFanIn:
/// normal with mean 0 and standard deviation 1/sqrt(fan_in).
enum class Initial { kZero, kOne, kUniformFanIn, kNormalFanIn };

/// Description of a parameter, for which the model provides memory.
struct ParameterSpec {
  std::string name;  ///< not empty, and unique within the layer: "weight"
  Shape shape;       ///< every extent at least 0
  Initial initial = Initial::kZero;
  std::int64_t fan_in = 1;
  bool decays = true;  ///< weight decay applies; false for biases and normalisation
};

/// Description of a running statistic, for example a moving mean. In training the layer writes the statistic of the
/// batch; the trainer averages these over micro-batches and replicas, and updates the moving statistic once per
/// training step.
struct StatisticSpec {
  std::string name;  ///< as ParameterSpec::name
  std::int64_t count = 0;
  double initial = 0;
  double momentum = 0.1;  ///< moving += momentum * (batch - moving)
};

/// Memory of a layer inside the model's flat vectors, in the order of the layer's specs.
template <class Scalar>
struct LayerMemory {
  std::vector<VectorView<Scalar>> parameters, gradients;
  /// Written by `forward` in training. `backward` must not read them: the trainer may have scaled or reduced them.
  std::vector<VectorView<Scalar>> batch_statistics;
  std::vector<VectorView<const Scalar>> moving_statistics;  ///< read by forward in evaluation
};

/// A differentiable function of a batch, with parameters. Calls come in this order: `prepare`, `bind`, then for each
/// batch `forward` and in training `backward`. One object per replica; not thread-safe.
template <class Scalar>
class Layer {
  static_assert(kIsTrainable<Scalar>, "farandole::trainer computes in float and double only");

 public:
  virtual ~Layer() = default;
  /// Kind and settings, for messages: "conv2d 3x3, 32 channels".
  virtual std::string name() const = 0;
  /// Sets the shape of input samples, and returns the shape of output samples. @throws InvalidArgument  the layer
  /// cannot take this input
  virtual Shape prepare(const Shape& input) = 0;
  virtual std::vector<ParameterSpec> parameters() const { return {}; }
  virtual std::vector<StatisticSpec> statistics() const { return {}; }
  /// Floating-point operations of matrix products and convolutions in a forward pass of one sample: a multiply-add
  /// counts as 2, and element-wise operations, sums of biases, pooling and normalisation as 0. Called after `prepare`.
  virtual double flops() const { return 0; }
  /// Floating-point operations of a backward pass of one sample, counted as in `flops`. The default holds for layers
  /// whose backward pass has two products for each one of the forward pass: for the gradients of parameters and input.
  /// @param input_gradient  true: backward computes the gradient of the input, too
  virtual double backward_flops(bool input_gradient) const { return input_gradient ? 2 * flops() : flops(); }
  /// What `forward` and `backward` can do on devices. The default is host memory only; Model::move_to refuses such
  /// layers.
  virtual DeviceForm device_form() const { return DeviceForm::kNone; }
  /// Passes the memory of the layer's parameters and statistics, which stays valid until the next `bind` or the layer's
  /// destruction. Called after `prepare`, and again when the model moves the memory (Model::place_reducible,
  /// Model::move_to).
  virtual void bind(const LayerMemory<Scalar>& memory) { (void)memory; }

  /// Computes `output`, which the caller has resized to the input's samples and the prepared shape. If the layer
  /// resizes it, the model throws InvalidArgument.
  virtual void forward(const Pass& pass, const Tensor<Scalar>& input, Tensor<Scalar>& output) = 0;
  /// Overwrites the gradients of the parameters and `*input_gradient`, which has the size of `input` and must keep it,
  /// or the model throws InvalidArgument. `input_gradient` is null for a layer whose input
  /// is computed by no layer, such as the first. `input` and `output` are the tensors of the last forward pass, or
  /// equal to them.
  virtual void backward(const Pass& pass, const Tensor<Scalar>& input, const Tensor<Scalar>& output,
                        const Tensor<Scalar>& output_gradient, Tensor<Scalar>* input_gradient) = 0;
};

}  // namespace trainer
}  // namespace FARANDOLE_API
