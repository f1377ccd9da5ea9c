// SPDX-License-Identifier: Apache-2.0
// Layers that form a graph: the core of Model and of the layers that contain layers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "gradient_pool.h"
#include "graph_structure.h"

namespace farandole::trainer {

/// A graph of layers with the values between them. Backward runs the nodes in reverse order. Calls come in the order of
/// Layer's.
///
/// One input: its node's value is the caller's tensor. Several inputs lie one behind the other in each sample of the
/// caller's tensor, and so do several outputs.
template <class Scalar>
class LayerGraph final : public GraphStructure<Scalar> {
 public:
  using GraphStructure<Scalar>::GraphStructure;

  /// Computes `output`, which the caller has resized.
  void forward(const Pass& pass, const Tensor<Scalar>& input, Tensor<Scalar>& output);
  /// Overwrites all gradients. Calls `on_ready(index)` when the gradient of parameters()[index] is final.
  /// `input_gradient` may be null.
  void backward(const Pass& pass, const Tensor<Scalar>& input, const Tensor<Scalar>& output,
                const Tensor<Scalar>& output_gradient, Tensor<Scalar>* input_gradient,
                const std::function<void(std::size_t)>& on_ready = {});

 private:
  using typename GraphStructure<Scalar>::Stage;
  using GraphStructure<Scalar>::nodes_;
  using GraphStructure<Scalar>::stages_;
  using GraphStructure<Scalar>::inputs_;
  using GraphStructure<Scalar>::outputs_;

  /// The caller's tensors of a pass.
  struct Run {
    const Pass& pass;
    const Tensor<Scalar>& input;
    const Tensor<Scalar>& output;
  };

  Pass inner_pass(const Pass& pass, const NodeSpec& spec) const;
  bool is_only_output(std::size_t node) const { return outputs_.size() == 1 && outputs_[0].second == node; }
  const Tensor<Scalar>& value(std::size_t node, const Run& run) const;
  /// The node whose value the layer of a node computes: the ReLU behind the layer, if the layer computes both at once,
  /// otherwise the node itself.
  std::size_t result_of(std::size_t node, const Execution& execution) const;
  /// True for a ReLU that the layer before it computes.
  bool is_computed_by_source(std::size_t node, const Execution& execution) const;
  /// Computes the value of result_of(node).
  void compute(std::size_t node, const Run& run, Tensor<Scalar>& result);
  /// Calls use(place among the sources, columns of the node's value, rows per sample) for each source of a
  /// concatenation.
  void for_each_source(const NodeSpec& spec,
                       const std::function<void(std::size_t, const Columns&, std::int64_t)>& use) const;
  /// The nodes of inputs or outputs, each with its number of elements per sample.
  std::vector<std::pair<std::size_t, std::int64_t>> input_parts() const;
  std::vector<std::pair<std::size_t, std::int64_t>> output_parts() const;
  /// Passes the gradient of a node on to its sources.
  void propagate(std::size_t node, const Run& run, Tensor<Scalar>* input_gradient);
  void propagate_layer(std::size_t node, const Run& run, Tensor<Scalar>* input_gradient);
  template <class Write>
  void contribute(std::size_t source, const Run& run, Tensor<Scalar>* input_gradient, const Write& write);
  void start_gradients(const Run& run, const Tensor<Scalar>& output_gradient, bool wants_input_gradient);
  void write_input_gradient(std::size_t node, const Execution& execution, Tensor<Scalar>& input_gradient);

  /// Gives the values memory of the execution.
  void place_values(const Execution& execution);

  std::vector<Tensor<Scalar>> values_;  ///< of each node whose value is not in the caller's tensor
  GradientPool<Scalar> gradients_;
  ExecutionMark execution_;           ///< of values_ and gradients_
  std::vector<char> needs_gradient_;  ///< for each node, in a backward pass
};

}  // namespace farandole::trainer
