// SPDX-License-Identifier: Apache-2.0
#include "graph_work.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace farandole::trainer {
namespace {

/// True if another operation of this kind has no name either.
template <class Scalar>
bool has_namesake(const GraphStructure<Scalar>& graph, std::size_t node) {
  for (std::size_t other = 0; other < graph.size(); ++other) {
    if (other != node && graph.node(other).kind == graph.node(node).kind && graph.node(other).name.empty()) return true;
  }
  return false;
}

/// Name of a node in its graph: "0.conv2d", "tower at left", "tower (use 2)", "sum", "5.sum".
template <class Scalar>
std::string row_name(const GraphStructure<Scalar>& graph, std::size_t node) {
  const NodeSpec& spec = graph.node(node);
  if (spec.kind != NodeKind::kLayer) {
    if (!spec.name.empty()) return spec.name;
    return has_namesake(graph, node) ? fmt::format("{}.{}", node, name_of(spec.kind)) : name_of(spec.kind);
  }
  std::string name = graph.place(spec.layer).prefix;
  name.pop_back();  // the '.' before names of parameters
  if (graph.uses(spec.layer) == 1) return name;
  return spec.name.empty() ? fmt::format("{} (use {})", name, spec.use + 1) : fmt::format("{} at {}", name, spec.name);
}

template <class Scalar>
class RowList {
 public:
  /// @param prefix  of the names of the rows: "8.residual."
  void add(GraphStructure<Scalar>& graph, const std::string& prefix, bool input_gradient) {
    std::vector<char> has_gradient;
    find_nodes_with_gradient(graph, input_gradient, has_gradient);
    for (std::size_t node = 0; node < graph.size(); ++node) {
      const NodeSpec& spec = graph.node(node);
      if (spec.kind == NodeKind::kInput) continue;
      const std::string name = prefix + row_name(graph, node);
      if (spec.kind != NodeKind::kLayer) {
        add_row(graph, node, {.name = name, .kind = name_of(spec.kind), .output = spec.shape});
        continue;
      }
      Layer<Scalar>& layer = graph.layer(spec.layer);
      const bool of_input = has_gradient[spec.sources[0]] != 0;
      if (auto* const container = dynamic_cast<LayerOfLayers<Scalar>*>(&layer)) {
        add(container->graph(), prefix + graph.place(spec.layer).prefix, of_input);
      } else {
        add_row(graph, node,
                {.name = name,
                 .kind = layer.name(),
                 .output = spec.shape,
                 .forward_flops = layer.flops(),
                 .backward_flops = layer.backward_flops(of_input)});
      }
    }
  }
  std::vector<LayerWork> take() { return std::move(rows_); }

 private:
  void add_row(GraphStructure<Scalar>& graph, std::size_t node, LayerWork work) {
    const std::size_t row = graph.node(node).row;
    if (row == NodeSpec::kNoRow) {
      graph.set_row(node, rows_.size());
      rows_.push_back(std::move(work));
    } else {  // another use of the container
      rows_[row].forward_flops += work.forward_flops;
      rows_[row].backward_flops += work.backward_flops;
    }
  }

  std::vector<LayerWork> rows_;
};

}  // namespace

template <class Scalar>
void find_nodes_with_gradient(const GraphStructure<Scalar>& graph, bool input_gradient, std::vector<char>& result) {
  result.assign(graph.size(), 0);
  for (std::size_t node = 0; node < graph.size(); ++node) {
    const NodeSpec& spec = graph.node(node);
    const bool needs_by_sources =
        std::any_of(spec.sources.begin(), spec.sources.end(), [&](std::size_t source) { return result[source] != 0; });
    result[node] = spec.kind == NodeKind::kInput   ? input_gradient
                   : spec.kind == NodeKind::kLayer ? true
                                                   : needs_by_sources;
  }
}

template <class Scalar>
double backward_flops(const GraphStructure<Scalar>& graph, bool input_gradient) {
  std::vector<char> has_gradient;
  find_nodes_with_gradient(graph, input_gradient, has_gradient);
  double sum = 0;
  for (std::size_t node = 0; node < graph.size(); ++node) {
    const NodeSpec& spec = graph.node(node);
    if (spec.kind != NodeKind::kLayer) continue;
    sum += graph.layer(spec.layer).backward_flops(has_gradient[spec.sources[0]] != 0);
  }
  return sum;
}

template <class Scalar>
std::vector<LayerWork> number_rows(GraphStructure<Scalar>& graph) {
  RowList<Scalar> rows;
  rows.add(graph, "", false);
  return rows.take();
}

template void find_nodes_with_gradient(const GraphStructure<float>&, bool, std::vector<char>&);
template void find_nodes_with_gradient(const GraphStructure<double>&, bool, std::vector<char>&);
template double backward_flops(const GraphStructure<float>&, bool);
template double backward_flops(const GraphStructure<double>&, bool);
template std::vector<LayerWork> number_rows(GraphStructure<float>&);
template std::vector<LayerWork> number_rows(GraphStructure<double>&);

}  // namespace farandole::trainer
