// SPDX-License-Identifier: Apache-2.0
#include "farandole/trainer/graph.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <set>
#include <utility>

#include "farandole/core/error.h"
#include "layer_graph.h"

namespace farandole::trainer {
namespace {

/// Number of a builder in this process, by which it knows its nodes.
std::uint64_t next_graph() {
  static std::atomic<std::uint64_t> count{0};
  return ++count;
}

bool is_name(const std::string& name) {
  const auto is_letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); };
  return !name.empty() && is_letter(name[0]) && std::all_of(name.begin(), name.end(), [&](char c) {
    return is_letter(c) || (c >= '0' && c <= '9') || c == '_' || c == '-';
  });
}

void check_name(const std::string& name, const char* what) {
  if (is_name(name)) return;
  throw InvalidArgument(fmt::format(
      "graph: '{}' is no name of {}; a name begins with a letter and has letters, digits, '_' and '-'", name, what));
}

}  // namespace

template <class Scalar>
struct GraphBuilder<Scalar>::State {
  const std::uint64_t id = next_graph();
  std::unique_ptr<LayerGraph<Scalar>> graph = std::make_unique<LayerGraph<Scalar>>("graph");
  std::set<std::string> names;  ///< of nodes and shared layers

  /// @param what  "a node"
  void take_name(const std::string& name, const char* what) {
    check_name(name, what);
    if (!names.insert(name).second) throw InvalidArgument(fmt::format("graph: two nodes are named '{}'", name));
  }
  void take_optional_name(const std::string& name) {
    if (!name.empty()) take_name(name, "a node");
  }
  std::size_t index_of(Node node) const {
    if (node.graph == id && node.index < graph->size()) return node.index;
    throw InvalidArgument("graph: a node that this GraphBuilder has not returned");
  }
  /// Prepares the node that was added last.
  Node prepared(std::size_t node) {
    graph->prepare_node(node);
    return {id, node};
  }
  std::size_t add_layer(std::unique_ptr<Layer<Scalar>> layer, const std::string& name) {
    const std::size_t number = graph->layers();
    LayerPlace place{name.empty() ? fmt::format("layer {}", number) : fmt::format("layer '{}'", name), name + ".", 0,
                     number};
    if (name.empty() && layer != nullptr) place.prefix = prefix_of(number, *layer);
    return graph->add_layer(std::move(layer), std::move(place));
  }
  Node add_operation(NodeKind kind, const std::vector<Node>& nodes, const std::string& name) {
    NodeSpec spec{.kind = kind, .name = name};
    for (const Node node : nodes) spec.sources.push_back(index_of(node));
    if (nodes.size() < 2) {
      throw InvalidArgument(fmt::format("graph: {} nodes for {}; at least two", nodes.size(), name_of(kind)));
    }
    take_optional_name(name);
    return prepared(graph->add_node(std::move(spec)));
  }
};

template <class Scalar>
GraphBuilder<Scalar>::GraphBuilder() : state_(std::make_unique<State>()) {}
template <class Scalar>
GraphBuilder<Scalar>::~GraphBuilder() = default;
template <class Scalar>
GraphBuilder<Scalar>::GraphBuilder(GraphBuilder&&) noexcept = default;

template <class Scalar>
typename GraphBuilder<Scalar>::State& GraphBuilder<Scalar>::state() const {
  if (!state_) throw InvalidArgument("this graph was moved from");
  return *state_;
}

template <class Scalar>
Node GraphBuilder<Scalar>::input(const std::string& name, const Shape& shape) {
  state().take_name(name, "an input");
  if (elements(shape) < 1) {
    throw InvalidArgument(
        fmt::format("graph: input '{}' has the shape {}, without elements", name, trainer::describe(shape)));
  }
  return {state().id, state().graph->add_input(name, shape)};
}

template <class Scalar>
Node GraphBuilder<Scalar>::add(std::unique_ptr<Layer<Scalar>> layer, Node from, const std::string& name) {
  const std::size_t source = state().index_of(from);
  state().take_optional_name(name);
  return state().prepared(state().graph->add_use(state().add_layer(std::move(layer), name), source, name));
}

template <class Scalar>
Node GraphBuilder<Scalar>::add(LayerList<Scalar> layers, Node from) {
  if (layers.empty()) throw InvalidArgument("graph: a list without layers");
  for (std::unique_ptr<Layer<Scalar>>& layer : layers) from = add(std::move(layer), from);
  return from;
}

template <class Scalar>
SharedLayer GraphBuilder<Scalar>::shared(std::unique_ptr<Layer<Scalar>> layer, const std::string& name) {
  state().take_optional_name(name);
  return {state().id, state().add_layer(std::move(layer), name)};
}

template <class Scalar>
Node GraphBuilder<Scalar>::add(SharedLayer layer, Node from, const std::string& name) {
  if (layer.graph != state().id || layer.index >= state().graph->layers()) {
    throw InvalidArgument("graph: a shared layer that this GraphBuilder has not returned");
  }
  const std::size_t source = state().index_of(from);
  state().take_optional_name(name);
  return state().prepared(state().graph->add_use(layer.index, source, name));
}

template <class Scalar>
Node GraphBuilder<Scalar>::sum(const std::vector<Node>& nodes, const std::string& name) {
  return state().add_operation(NodeKind::kSum, nodes, name);
}
template <class Scalar>
Node GraphBuilder<Scalar>::multiply(const std::vector<Node>& nodes, const std::string& name) {
  return state().add_operation(NodeKind::kMultiply, nodes, name);
}
template <class Scalar>
Node GraphBuilder<Scalar>::concatenate(const std::vector<Node>& nodes, const std::string& name) {
  return state().add_operation(NodeKind::kConcatenate, nodes, name);
}

template <class Scalar>
Node GraphBuilder<Scalar>::slice(Node from, std::int64_t first, std::int64_t count, const std::string& name) {
  const std::size_t source = state().index_of(from);
  state().take_optional_name(name);
  return state().prepared(state().graph->add_node(
      {.kind = NodeKind::kSlice, .name = name, .sources = {source}, .first = first, .count = count}));
}

template <class Scalar>
void GraphBuilder<Scalar>::output(const std::string& name, Node node) {
  check_name(name, "an output");
  const std::size_t index = state().index_of(node);
  LayerGraph<Scalar>& graph = *state().graph;
  for (const auto& [other, ignored] : graph.output_nodes()) {
    if (other == name) throw InvalidArgument(fmt::format("graph: two outputs are named '{}'", name));
  }
  if (graph.node(index).kind == NodeKind::kInput) {
    throw InvalidArgument(
        fmt::format("graph: output '{}' is {}, which no layer or operation changes", name, graph.describe(index)));
  }
  graph.add_output(name, index);
}

template <class Scalar>
const Shape& GraphBuilder<Scalar>::shape(Node node) const {
  return state().graph->node(state().index_of(node)).shape;
}

template <class Scalar>
std::unique_ptr<LayerGraph<Scalar>> GraphBuilder<Scalar>::build() && {
  const LayerGraph<Scalar>& graph = *state().graph;
  if (graph.inputs().empty()) throw InvalidArgument("graph: it has no input; call input() first");
  if (graph.output_nodes().empty()) throw InvalidArgument("graph: it has no output; call output() last");
  std::vector<bool> is_used(graph.size());
  for (const auto& [name, node] : graph.output_nodes()) is_used[node] = true;
  for (std::size_t node = graph.size(); node-- > 0;) {
    if (!is_used[node]) {
      throw InvalidArgument(fmt::format("graph: no output depends on {}, of shape {}; use the node, or leave it out",
                                        graph.describe(node), trainer::describe(graph.node(node).shape)));
    }
    for (const std::size_t source : graph.node(node).sources) is_used[source] = true;
  }
  for (std::size_t layer = 0; layer < graph.layers(); ++layer) {
    if (graph.uses(layer) > 0) continue;
    throw InvalidArgument(
        fmt::format("graph: no node uses the shared {} ({})", graph.place(layer).label, graph.layer(layer).name()));
  }
  state().graph->finish();
  std::unique_ptr<LayerGraph<Scalar>> result = std::move(state().graph);
  state_.reset();
  return result;
}

template class GraphBuilder<float>;
template class GraphBuilder<double>;

}  // namespace farandole::trainer
