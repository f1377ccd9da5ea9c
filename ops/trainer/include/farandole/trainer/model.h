// SPDX-License-Identifier: Apache-2.0
// A model: a graph of layers. All parameters lie in a flat vector, and all gradients in another.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "farandole/core/buffer.h"
#include "farandole/core/export.h"
#include "farandole/trainer/graph.h"
#include "farandole/trainer/model_description.h"
#include "farandole/trainer/models.h"

namespace farandole FARANDOLE_API {
namespace trainer {

/// Position of a parameter or statistic in its flat vector.
struct NamedSpan {
  std::string name;  ///< layer's index and kind, then the layer's own name: "3.conv2d.weight"
  Shape shape;
  std::size_t first = 0, count = 0;
  bool decays = true;
};

/// A graph of layers, and the memory of their parameters, gradients and statistics. Train a model with Trainer, or in a
/// loop of your own that calls `forward`, `backward` and an Optimizer:
///
///     Model<float> model({28, 28, 1}, layers_of<float>("cnn"));
///     model.initialize(1);
///     const Tensor<float>& logits = model.forward(pass, inputs);
///     softmax_cross_entropy<float>(logits, labels, 1.0 / batch, &gradient);
///     model.backward(pass, inputs, gradient, [&](std::size_t parameter) { averager.ready(parameter); });
///
/// `reducible()` is the vector that replicas sum in each training step: the gradients, then the batch statistics.
///
/// One object per replica; not thread-safe. After a move the source throws InvalidArgument from every function.
template <class Scalar>
class Model {
 public:
  /// Layers in order. @throws InvalidArgument  a layer cannot take its input (names both), or two of a layer's
  /// parameters and statistics have the same name
  Model(Shape input, LayerList<Scalar> layers);
  /// A model of a graph: `Model<float> model(std::move(graph))`. @throws InvalidArgument  as GraphBuilder::build
  explicit Model(GraphBuilder<Scalar> graph);
  ~Model();
  Model(Model&&) noexcept;

  /// Sets parameters to the initial values for `seed`, and statistics to their initial values. The result is the same
  /// on every replica.
  void initialize(std::uint64_t seed);

  const Shape& input_shape() const;
  const Shape& output_shape() const;
  std::vector<GraphPort> inputs() const;   ///< one behind the other in a sample's input; the only one has its shape
  std::vector<GraphPort> outputs() const;  ///< likewise
  /// A table with a line per layer and operation: output shape, parameters and floating-point operations, and the sums.
  std::string describe() const;
  ModelDescription description() const;
  /// Floating-point operations of a forward pass of a sample: see Layer::flops.
  double flops() const;
  /// The layers and operations in the order of the forward pass, without inputs and without the containers of layers.
  const std::vector<LayerWork>& work() const;

  VectorView<Scalar> parameters();
  VectorView<Scalar> gradients();         ///< as many as parameters
  VectorView<Scalar> statistics();        ///< moving statistics
  VectorView<Scalar> batch_statistics();  ///< as many as statistics
  VectorView<Scalar> reducible();         ///< gradients and batch statistics, contiguous
  /// Where and how the model computes: in host memory, unless `move_to` was called. All vectors and tensors of the
  /// model lie there.
  const Execution& execution() const;
  /// Empty if all layers have this form for devices; else a sentence that names the first that has not, and says what
  /// to do.
  std::string why_not_on_devices(DeviceForm needed = DeviceForm::kStreams) const;
  /// Moves the model to the memory of `execution`, with its parameters and moving statistics; the model keeps its
  /// types, but for Precision::compute of kBF16 and kF16, which the execution decides. Gradients and batch statistics
  /// become 0. Views that were returned before are invalid. Waits until the values are there. @throws Unsupported  a
  /// layer computes in host memory only (Layer::device_form); names it
  /// @throws DeviceError  the device has no memory for the model
  void move_to(const Execution& execution);
  /// Moves `reducible()` to memory from `allocate(count, dtype)`, for example Communicator::allocate, so that
  /// collectives on `reducible()` need no copies. The values are lost, and views that were returned before are invalid.
  /// @throws InvalidArgument  the memory lies elsewhere than the model
  void place_reducible(const std::function<Buffer(std::size_t, DType)>& allocate);
  const std::vector<NamedSpan>& parameter_layout() const;
  const std::vector<NamedSpan>& statistic_layout() const;
  /// Updates the moving statistics from the batch statistics: moving += momentum * (batch - moving).
  /// @param loss_scale  null, or in the memory of the model: no update if it says that the training step is skipped
  void move_statistics(const LossScale* loss_scale = nullptr);

  /// Computes the outputs for `input`. The result is valid until the next call. `forward({}, input)` predicts.
  /// @throws InvalidArgument  the input has another shape, or lies elsewhere than the model
  const Tensor<Scalar>& forward(Pass pass, const Tensor<Scalar>& input);
  /// Computes all gradients, last layer first, after `forward` of the same input; overwrites the old gradients. Calls
  /// `on_ready(index)` when the gradient of parameter_layout()[index] is final.
  /// @param pass  as in `forward`, with `training`   @throws InvalidArgument  this pass or the last forward pass is a
  /// prediction
  void backward(Pass pass, const Tensor<Scalar>& input, const Tensor<Scalar>& output_gradient,
                const std::function<void(std::size_t)>& on_ready = {});

 private:
  struct State;
  /// @throws InvalidArgument  this model was moved from
  State& state() const;
  std::unique_ptr<State> state_;
};

}  // namespace trainer
}  // namespace FARANDOLE_API
