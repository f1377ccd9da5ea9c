// SPDX-License-Identifier: Apache-2.0
// The interface of a layer; users may write their own.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "farandole/collectives/communicator.h"
#include "farandole/core/export.h"
#include "farandole/trainer/tensor.h"

namespace farandole FARANDOLE_API {
namespace trainer {

/// What a layer knows about the batch that passes through it. By default a prediction; training says so:
/// `Pass{.training = true, .seed = 1, .training_step = step}`.
struct Pass {
  bool training = false;   ///< else prediction: no dropout, moving statistics
  std::uint64_t seed = 0;  ///< of the program
  std::int64_t training_step = 0;
  std::int64_t first_sample = 0;     ///< place of this batch's first sample in the global batch; keys random numbers
  int layer = 0;                     ///< place of the layer in the model; set by Model
  Communicator* replicas = nullptr;  ///< for layers that synchronise across replicas; null: this replica only
};

/// How parameters start.
enum class Initial {
  kZero,
  kOne,
  kUniformFanIn
};  ///< kUniformFanIn: U(-b, b) with b = 1/sqrt(fan_in), as PyTorch's default

/// A parameter that a layer wants.
struct ParameterSpec {
  std::string name;  ///< within the layer, e.g. "weight"
  Shape shape;
  Initial initial = Initial::kZero;
  std::int64_t fan_in = 1;
  bool decays = true;  ///< weight decay applies (not to biases and normalisation)
};

/// Running statistics that a layer wants, e.g. a moving mean. In training a layer writes the batch's own value; the
/// trainer averages it over micro-batches and replicas and moves the statistic once per training step.
struct StatisticSpec {
  std::string name;
  std::int64_t count = 0;
  double initial = 0;
  double momentum = 0.1;  ///< moving += momentum * (batch - moving)
};

/// Memory of one layer inside the model's flat vectors, in the order of its specs.
template <class Scalar>
struct LayerMemory {
  std::vector<std::span<Scalar>> parameters, gradients;
  std::vector<std::span<Scalar>> batch_statistics;         ///< written by forward in training; gone before backward
  std::vector<std::span<const Scalar>> moving_statistics;  ///< read by forward in evaluation
};

/// A differentiable function of a batch, with parameters. One object serves one replica; not thread-safe.
template <class Scalar>
class Layer {
 public:
  virtual ~Layer() = default;
  /// "conv2d 3x3, 32 channels"
  virtual std::string name() const = 0;
  /// Fixes the shapes; returns the output's. Called once, first. @throws InvalidArgument  the input does not fit
  virtual Shape prepare(const Shape& input) = 0;
  virtual std::vector<ParameterSpec> parameters() const { return {}; }
  virtual std::vector<StatisticSpec> statistics() const { return {}; }
  /// Called once, after `prepare`.
  virtual void bind(const LayerMemory<Scalar>& memory) { (void)memory; }

  /// Computes `output`, which has been resized to the input's samples and the prepared shape.
  virtual void forward(const Pass& pass, const Tensor<Scalar>& input, Tensor<Scalar>& output) = 0;
  /// Overwrites the gradients of the parameters, and `input_gradient` unless it is null (first layer).
  /// `input` and `output` are those of the forward pass before it.
  virtual void backward(const Pass& pass, const Tensor<Scalar>& input, const Tensor<Scalar>& output,
                        const Tensor<Scalar>& output_gradient, Tensor<Scalar>* input_gradient) = 0;
};

}  // namespace trainer
}  // namespace FARANDOLE_API
