// SPDX-License-Identifier: Apache-2.0
// Models as text.
#pragma once

#include <string>
#include <vector>

#include "layer_graph.h"

namespace farandole::trainer {

/// A table with a line per input, layer and operation, and a line with the sums.
template <class Scalar>
std::string table_of(const LayerGraph<Scalar>& graph);

/// A text per layer and operation, and a text per output of a graph with several outputs. A node that does not follow
/// the node before names its sources: "sum 'both' of layer 0 (dense, 8 units), layer 2 (relu), output 8".
template <class Scalar>
std::vector<std::string> describe_nodes(const LayerGraph<Scalar>& graph);

}  // namespace farandole::trainer
