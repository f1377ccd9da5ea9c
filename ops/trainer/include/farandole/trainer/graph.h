// SPDX-License-Identifier: Apache-2.0
// Graphs of layers: models with skips, with layers used several times, and with several inputs and outputs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "farandole/core/export.h"
#include "farandole/trainer/layers.h"

namespace farandole FARANDOLE_API {
namespace trainer {

template <class Scalar>
class LayerGraph;

/// A value of a graph: an input, or the result of a layer or operation. A handle, cheap to copy; belongs to the
/// GraphBuilder that returned it.
struct Node {
  std::uint64_t graph = 0;
  std::size_t index = 0;
};

/// A layer that a graph uses at several nodes, with one set of parameters. Belongs to the GraphBuilder that returned
/// it.
struct SharedLayer {
  std::uint64_t graph = 0;
  std::size_t index = 0;
};

/// Name and shape of an input or output of a model.
struct GraphPort {
  std::string name;
  Shape shape;
  friend bool operator==(const GraphPort&, const GraphPort&) = default;
};

/// Builds a model whose layers form a graph, in the manner of Keras's functional API: each call adds a node and returns
/// it, and the node is an argument of later calls. Shapes are computed and checked in each call. Two inputs and two
/// outputs:
///
///     GraphBuilder<float> graph;
///     const Node image = graph.input("image", {32, 32, 3}), age = graph.input("age", {1});
///     const Node seen = graph.add(layers<float>(conv2d<float>({.channels = 16}), relu<float>(),
///                                               global_average_pool<float>()), image);
///     const Node all = graph.add(dense<float>(32), graph.concatenate({seen, age}));
///     graph.output("class", graph.add(dense<float>(10), all));
///     graph.output("price", graph.add(dense<float>(1), all));
///     Model<float> model(std::move(graph));
///
/// A skip, as in a U-Net:
///
///     const Node fine = graph.add(conv2d<float>({.channels = 8, .padding = 1}), image);
///     const Node coarse = graph.add(layers<float>(max_pool2d<float>(2), conv2d<float>({.channels = 16, .padding = 1}),
///                                                 upsample2d<float>(2)), fine);
///     const Node both = graph.concatenate({fine, coarse});   // {32, 32, 24}
///
/// A layer used twice (a siamese net):
///
///     const SharedLayer tower = graph.shared(sequence<float>(layers<float>(dense<float>(64), relu<float>())),
///     "tower"); const Node product = graph.multiply({graph.add(tower, left), graph.add(tower, right)});
///
/// Samples. A sample's input is one tensor. A graph with one input takes its shape. A graph with several inputs takes
/// samples of shape {n}, in which the inputs lie one behind the other in the order of the calls of `input`;
/// `joined_inputs` makes such samples of several data sets. Likewise the outputs of several lie one behind the other in
/// the order of the calls of `output`; `combined_loss` gives each output its own loss.
///
/// Names. A name begins with a letter and has letters, digits, '_' and '-'; each is given to one node only. Inputs and
/// outputs need a name; other nodes may have one, for messages. The parameters of a layer with the name "tower" are
/// "tower.weight" and "tower.bias"; those of a layer without a name begin with its number among the graph's layers and
/// its kind, "3.dense.weight".
///
/// Cost. A value used at several nodes costs an addition of gradients per further use. `sum`, `concatenate`, `multiply`
/// and `slice` copy values. A layer at n nodes runs forward 2n - 1 times in a training step, because backward restores
/// its state of each use.
///
/// Not thread-safe. Every function throws InvalidArgument if a name is taken or wrong, a node belongs to another graph,
/// or the builder was moved from, and names the node.
template <class Scalar>
class GraphBuilder {
 public:
  GraphBuilder();
  ~GraphBuilder();
  GraphBuilder(GraphBuilder&&) noexcept;

  /// Adds an input of the model.
  Node input(const std::string& name, const Shape& shape);

  /// Applies a layer. @throws InvalidArgument  the layer cannot take the shape of `from` (names both)
  Node add(std::unique_ptr<Layer<Scalar>> layer, Node from, const std::string& name = "");
  /// Applies layers in order, each at a node of its own; returns the last.
  /// @throws InvalidArgument  there are no layers; or a layer cannot take the result of the layer before (names both)
  Node add(LayerList<Scalar> layers, Node from);
  /// Adds a layer that several calls of `add` apply. Every use must have the same input shape. A second use of a layer
  /// with batch statistics is an error, because only one use could have them.
  SharedLayer shared(std::unique_ptr<Layer<Scalar>> layer, const std::string& name = "");
  Node add(SharedLayer layer, Node from, const std::string& name = "");

  /// Element by element, from left to right. The nodes have the same shape. @throws InvalidArgument  fewer than two
  /// nodes, or different shapes (names both)
  Node sum(const std::vector<Node>& nodes, const std::string& name = "");
  Node multiply(const std::vector<Node>& nodes, const std::string& name = "");
  /// Puts channels (the last axis) side by side: {8, 8, 3} and {8, 8, 5} give {8, 8, 8}. All other extents must agree.
  Node concatenate(const std::vector<Node>& nodes, const std::string& name = "");
  /// Channels [first, first + count) of the last axis.
  Node slice(Node from, std::int64_t first, std::int64_t count, const std::string& name = "");

  /// Makes the node's value an output of the model. A name of an output may be that of its node.
  void output(const std::string& name, Node node);

  const Shape& shape(Node node) const;  ///< of a sample's value

  /// Ends the building; for Model and `graph_layer`. The builder is moved from afterwards.
  /// @throws InvalidArgument  there is no input or output, an output is an input, or no output depends on some node
  /// (names it)
  std::unique_ptr<LayerGraph<Scalar>> build() &&;

 private:
  struct State;
  State& state() const;
  std::unique_ptr<State> state_;
};

/// The graph as one layer of another model, for example as a shared layer. Its parameters have the names that they have
/// in the graph.
template <class Scalar>
FARANDOLE_API std::unique_ptr<Layer<Scalar>> graph_layer(GraphBuilder<Scalar> graph);

}  // namespace trainer
}  // namespace FARANDOLE_API
