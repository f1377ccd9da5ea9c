// SPDX-License-Identifier: Apache-2.0
// The layers and operations of a graph with those inside its containers, and how much they compute.
#pragma once

#include <vector>

#include "farandole/trainer/model_description.h"
#include "graph_structure.h"

namespace farandole::trainer {

/// A layer that consists of layers.
template <class Scalar>
class LayerOfLayers : public Layer<Scalar> {
 public:
  virtual GraphStructure<Scalar>& graph() = 0;
};

/// Sets `result` to whether backward computes the gradient of its value, for each node.
/// @param input_gradient  whether the caller of backward wants the gradient of the graph's input
template <class Scalar>
void find_nodes_with_gradient(const GraphStructure<Scalar>& graph, bool input_gradient, std::vector<char>& result);

/// Floating-point operations of a backward pass of a sample: see Layer::backward_flops.
template <class Scalar>
double backward_flops(const GraphStructure<Scalar>& graph, bool input_gradient);

/// Lists the layers and operations of a model's graph, and sets NodeSpec::row of their nodes to their places in the
/// list. The layers of a container that several nodes use have one row for all uses. Call once, after all layers were
/// prepared.
template <class Scalar>
std::vector<LayerWork> number_rows(GraphStructure<Scalar>& graph);

}  // namespace farandole::trainer
