// SPDX-License-Identifier: Apache-2.0
// The structure of a graph of layers: nodes, shapes, parameters.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "farandole/trainer/graph.h"
#include "rectified_layer.h"

namespace farandole::trainer {

/// What a node of a graph computes.
enum class NodeKind { kInput, kLayer, kSum, kMultiply, kConcatenate, kSlice };
/// "sum", "slice", …
const char* name_of(NodeKind kind);

/// Structure of a node, without its value.
struct NodeSpec {
  NodeKind kind = NodeKind::kInput;
  std::string name = {};                  ///< the user's; may be empty
  std::vector<std::size_t> sources = {};  ///< nodes whose values the node takes, each before this node
  std::size_t layer = 0;                  ///< kLayer: number of the layer
  std::size_t use = 0;                    ///< kLayer: number of nodes of the same layer before this node
  std::int64_t first = 0, count = 0;      ///< kSlice: channels
  Shape shape = {};                       ///< of a sample's value; set by `prepare`
  static constexpr std::size_t kNoNode = SIZE_MAX;
  /// kLayer: the ReLU that is the only user of the value, if the layer is rectifiable; set by `finish`.
  std::size_t relu = kNoNode;
  static constexpr std::size_t kNoRow = SIZE_MAX;
  /// Place in Model::work; kNoRow for inputs, containers, and inside layers of the program's own.
  std::size_t row = kNoRow;
};

/// Place of a layer in its graph.
struct LayerPlace {
  std::string label;   ///< for messages: "layer 3", "body layer 0"
  std::string prefix;  ///< of the names of its parameters and statistics: "3.conv2d."
  /// 0 for the layers of a model, whose Pass::layer is `number`. A positive branch tells the layers of containers
  /// apart, so that every layer has its own random numbers.
  std::uint64_t branch = 0;
  std::uint64_t number = 0;
};

/// The default prefix of a layer's names: its number and kind, the first word of its name: "3.conv2d.".
template <class Scalar>
std::string prefix_of(std::size_t number, const Layer<Scalar>& layer);

/// Layers and operations in an order in which each node comes after its sources, and the layers' parameters and
/// statistics in one list, in the order of the layers. Calls come in the order of Layer's.
template <class Scalar>
class GraphStructure {
 public:
  /// @param owner  the model or layer that has these layers, for messages: "model"
  explicit GraphStructure(std::string owner) : owner_(std::move(owner)) {}

  std::size_t add_input(const std::string& name, const Shape& shape);
  /// @throws InvalidArgument  the layer is null
  std::size_t add_layer(std::unique_ptr<Layer<Scalar>> layer, LayerPlace place);
  /// Adds a node that applies a layer of `add_layer`.
  std::size_t add_use(std::size_t layer, std::size_t from, const std::string& name = "");
  std::size_t add_node(NodeSpec spec);
  /// Adds layers in order, with default names and labels, from number 0 on; returns the last node.
  /// @param row  name of the row for messages: "" or "body "   @param prefix  before the default prefixes
  std::size_t add_row(LayerList<Scalar> layers, std::size_t from, std::uint64_t branch, const std::string& row = "",
                      const std::string& prefix = "");
  void add_output(std::string name, std::size_t node);
  /// Makes the graph a part of a layer, from whose Pass::layer the layers derive theirs. @param owner  the layer
  void nest(std::string owner);

  /// Computes the shape of a node, whose sources have theirs, and prepares its layer.
  /// @throws InvalidArgument  a layer cannot take its input (names both), the specs of a layer's values are
  /// wrong, or the shapes of sources do not fit
  void prepare_node(std::size_t node);
  /// Computes input and output shape of a graph whose nodes are all prepared, and finds layers with a ReLU behind them.
  void finish();
  /// Sets the shape of the only input, and prepares all nodes. Returns the shape of the output.
  Shape prepare(const Shape& input);

  std::vector<ParameterSpec> parameters() const;
  std::vector<StatisticSpec> statistics() const;
  double flops() const;
  /// As Model's.
  std::string why_not_on_devices(DeviceForm needed) const;
  /// What all layers can do on devices.
  DeviceForm device_form() const;
  void bind(const LayerMemory<Scalar>& memory);

  const Shape& input_shape() const { return input_shape_; }
  const Shape& output_shape() const { return output_shape_; }
  std::vector<GraphPort> inputs() const;
  std::vector<GraphPort> outputs() const;
  std::size_t size() const { return nodes_.size(); }
  const NodeSpec& node(std::size_t node) const { return nodes_[node]; }
  const std::vector<std::pair<std::string, std::size_t>>& output_nodes() const { return outputs_; }
  std::size_t layers() const { return stages_.size(); }
  const Layer<Scalar>& layer(std::size_t number) const { return *stages_[number].layer; }
  Layer<Scalar>& layer(std::size_t number) { return *stages_[number].layer; }
  void set_row(std::size_t node, std::size_t row) { nodes_[node].row = row; }
  const LayerPlace& place(std::size_t layer) const { return stages_[layer].place; }
  std::size_t uses(std::size_t layer) const { return stages_[layer].uses; }
  /// A node in words: "layer 3 (dense, 10 units)", "input 'age'", "sum 'both'".
  std::string describe(std::size_t node) const;
  std::string describe_layers() const;  ///< the layers' names: "dense, 8 units; relu"

 protected:
  /// Checks that a layer has left its output, or the gradient of its input, at the size that the graph gave it: other
  /// nodes count on that size. @throws InvalidArgument  names the layer of the node
  void check_not_resized(std::size_t node, const char* function, const char* what, const Tensor<Scalar>& tensor,
                         std::int64_t samples, const Shape& shape) const;

  struct Stage {
    std::unique_ptr<Layer<Scalar>> layer;
    RectifiableLayer<Scalar>* rectifiable = nullptr;  ///< `layer`, if it is one; set by `finish`
    LayerPlace place;
    std::size_t uses = 0;
    Shape input_shape, output_shape;  ///< of all uses
    std::size_t first_parameter = 0, parameters = 0;
    std::size_t first_statistic = 0, statistics = 0;
    std::size_t state_of = 0;  ///< node whose forward pass the layer's state is from
    std::vector<VectorView<Scalar>> gradients;
  };

  std::string owner_;
  std::vector<NodeSpec> nodes_;
  std::vector<Stage> stages_;
  std::vector<std::size_t> inputs_;
  std::vector<std::pair<std::string, std::size_t>> outputs_;
  Shape input_shape_, output_shape_;

 private:
  Shape prepare_layer(std::size_t node);
  Shape shape_of_operation(std::size_t node) const;
  void check_specs(const Stage& stage) const;
  void find_relus();
};

}  // namespace farandole::trainer
