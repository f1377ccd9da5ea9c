// SPDX-License-Identifier: Apache-2.0
// Layers that run one after another: the core of Model and of the layers that contain layers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "farandole/trainer/layers.h"

namespace farandole::trainer {

/// Appends the specs of parameters or statistics, with `prefix` before their names.
template <class Spec>
void append_specs(std::vector<Spec>& all, const std::string& prefix, std::vector<Spec> specs) {
  for (Spec& spec : specs) {
    spec.name = prefix + spec.name;
    all.push_back(std::move(spec));
  }
}

/// Layers in order, the outputs between them, and their parameters and statistics in one list. A name in the list is
/// the layer's index and kind, then the layer's own name: "0.conv2d.weight". Calls come in the order of Layer's.
template <class Scalar>
class LayerChain {
 public:
  /// @param owner  the model or layer that has these layers, for messages: "model"
  /// @param branch  0 for the model's own layers, whose Pass::layer is their index. A positive number tells the chains
  /// of a container apart, so that every layer has its own random numbers.
  /// @throws InvalidArgument  there are no layers, or a layer is null
  LayerChain(std::string owner, LayerList<Scalar> layers, std::uint64_t branch);

  /// Prepares all layers; returns the shape of the last output.
  /// @throws InvalidArgument  a layer cannot take its input (names both), or two values of a layer have the same name
  Shape prepare(const Shape& input);
  std::vector<ParameterSpec> parameters() const;
  std::vector<StatisticSpec> statistics() const;
  void bind(const LayerMemory<Scalar>& memory);

  /// Computes `output`, which the caller has resized.
  void forward(const Pass& pass, const Tensor<Scalar>& input, Tensor<Scalar>& output);
  /// Overwrites all gradients, last layer first. Calls `on_ready(index)` when the gradient of parameters()[index] is
  /// final. `input_gradient` may be null.
  void backward(const Pass& pass, const Tensor<Scalar>& input, const Tensor<Scalar>& output,
                const Tensor<Scalar>& output_gradient, Tensor<Scalar>* input_gradient,
                const std::function<void(std::size_t)>& on_ready = {});

  std::size_t size() const { return stages_.size(); }
  const Layer<Scalar>& layer(std::size_t place) const { return *stages_[place].layer; }
  const Shape& output_shape(std::size_t place) const { return stages_[place].output_shape; }
  std::string describe() const;  ///< the layers' names: "dense, 8 units; relu"

 private:
  struct Stage {
    std::unique_ptr<Layer<Scalar>> layer;
    Shape output_shape;
    std::size_t first_parameter = 0, parameters = 0;
    std::size_t first_statistic = 0, statistics = 0;
    Tensor<Scalar> output;  ///< unused for the last layer
  };

  Pass inner_pass(const Pass& pass, std::size_t place) const;
  void check_names(std::size_t place) const;

  std::string owner_;
  std::uint64_t branch_;
  std::vector<Stage> stages_;
  Tensor<Scalar> gradients_[2];  ///< the gradient of layer i's input is in gradients_[i % 2], for i > 0
};

}  // namespace farandole::trainer
