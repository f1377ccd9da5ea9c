// SPDX-License-Identifier: Apache-2.0
// A model: layers in a row, with all parameters and all gradients each in one flat vector.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "farandole/core/buffer.h"
#include "farandole/core/export.h"
#include "farandole/trainer/layers.h"

namespace farandole FARANDOLE_API {
namespace trainer {

/// Where a parameter or statistic lies in its flat vector.
struct NamedSpan {
  std::string name;  ///< "3.conv2d.weight"
  Shape shape;
  std::size_t first = 0, count = 0;
  bool decays = true;
};

/// Sum of losses and number of right answers of a batch.
struct BatchResult {
  double loss_sum = 0;
  std::int64_t correct = 0;
  std::int64_t samples = 0;
};

/// Owns its layers and their memory. One object serves one replica; not thread-safe. Every call on one that was moved
/// from throws InvalidArgument.
///
/// `reducible()` is what replicas sum up in each training step: the gradients, then the batch statistics.
template <class Scalar>
class Model {
 public:
  /// @throws InvalidArgument  a layer does not fit its input (names both), or gives two of its parameters and
  /// statistics one name
  Model(Shape input, LayerList<Scalar> layers);
  ~Model();
  Model(Model&&) noexcept;

  /// Sets parameters to their initial values for `seed` and statistics to theirs. The same on every replica.
  void initialize(std::uint64_t seed);

  const Shape& input_shape() const;
  const Shape& output_shape() const;
  std::string describe() const;  ///< a line per layer: name, output shape, parameters
  /// Of each layer: "'dense, 10 units', output 10".
  std::vector<std::string> layer_descriptions() const;

  std::span<Scalar> parameters();
  std::span<Scalar> gradients();         ///< as many as parameters
  std::span<Scalar> statistics();        ///< moving statistics
  std::span<Scalar> batch_statistics();  ///< as many as statistics
  std::span<Scalar> reducible();         ///< gradients and batch statistics, contiguous
  /// Moves what `reducible` gives to memory from `allocate(count, dtype)`, for example Communicator::allocate, so that
  /// it is reduced without copies. Its values are lost, and spans of it that were handed out before are invalid.
  void place_reducible(const std::function<Buffer(std::size_t, DType)>& allocate);
  const std::vector<NamedSpan>& parameter_layout() const;
  const std::vector<NamedSpan>& statistic_layout() const;
  /// moving += momentum * (batch - moving), with the batch statistics as they are now.
  void move_statistics();

  /// The outputs for `input`; valid until the next call. `forward({}, input)` predicts.
  const Tensor<Scalar>& forward(Pass pass, const Tensor<Scalar>& input);
  /// After `forward` of the same input: overwrites all gradients, last layer first. `on_ready(index)` is called when
  /// the gradient of parameter_layout()[index] has its value.
  /// @param pass  as in `forward`, with `training`   @throws InvalidArgument  one of both passes was a prediction
  void backward(Pass pass, const Tensor<Scalar>& input, const Tensor<Scalar>& output_gradient,
                const std::function<void(std::size_t)>& on_ready = {});

 private:
  struct State;
  /// @throws InvalidArgument  this model was moved from
  State& state() const;
  std::unique_ptr<State> state_;
};

/// Softmax cross-entropy. `gradient` (unless null) becomes scale * d(sum of losses)/d(logits).
/// @param labels  one class per sample, in [0, classes)
template <class Scalar>
FARANDOLE_API BatchResult softmax_cross_entropy(const Tensor<Scalar>& logits, std::span<const std::int32_t> labels,
                                                double scale, Tensor<Scalar>* gradient);

/// "mlp": dense 128, relu, dense 10.  "cnn": conv 3x3 32, relu, conv 3x3 64, relu, max pool 2, dense 128, relu,
/// dense 10.  "cnn_bn": the cnn with batch normalisation after each convolution and dropout 0.25 before the last layer.
template <class Scalar>
FARANDOLE_API LayerList<Scalar> layers_of(const std::string& model, bool synchronized_batch_normalization = false);
/// The names that `layers_of` knows.
std::vector<std::string> model_names();

}  // namespace trainer
}  // namespace FARANDOLE_API
