// SPDX-License-Identifier: Apache-2.0
#include "model_table.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <utility>

#include "farandole/trainer/model.h"
#include "text_table.h"

namespace farandole::trainer {
namespace {

/// 11689512 as "11,689,512".
std::string with_commas(std::int64_t number) {
  const std::string digits = std::to_string(number);
  std::string text;
  for (std::size_t place = 0; place < digits.size(); ++place) {
    if (place > 0 && (digits.size() - place) % 3 == 0) text += ',';
    text += digits[place];
  }
  return text;
}

/// 3628146688 as "3.63 G".
std::string with_unit(double number) {
  constexpr std::array<const char*, 5> kUnits{"", " K", " M", " G", " T"};
  std::size_t unit = 0;
  while (number >= 999.5 && unit + 1 < kUnits.size()) {
    number /= 1000;
    ++unit;
  }
  return fmt::format("{:.3g}{}", number, kUnits[unit]);
}

/// A line of the table: layer, sources, output shape, parameters, operations.
using Line = std::array<std::string, 5>;
constexpr std::size_t kSources = 1;

/// True if the node's only source is the node before.
bool follows(const NodeSpec& spec, std::size_t node) {
  return spec.sources.size() == 1 && spec.sources[0] + 1 == node;
}

/// Name of a node in the table: its own, or kind and number.
template <class Scalar>
std::string short_name(const LayerGraph<Scalar>& graph, std::size_t node) {
  const NodeSpec& spec = graph.node(node);
  if (!spec.name.empty()) return spec.name;
  if (spec.kind == NodeKind::kLayer) {
    std::string label = graph.place(spec.layer).label;  // "layer 3", "layer 'tower'"
    label.erase(0, label.find(' ') + 1);
    std::erase(label, '\'');
    return label;
  }
  return fmt::format("{} {}", name_of(spec.kind), node);
}

template <class Scalar>
std::string title(const LayerGraph<Scalar>& graph, std::size_t node) {
  constexpr std::size_t kMaxName = 60;
  const NodeSpec& spec = graph.node(node);
  if (spec.kind == NodeKind::kInput) return spec.name == "input" ? spec.name : fmt::format("input {}", spec.name);
  if (spec.kind != NodeKind::kLayer)
    return spec.name.empty() ? short_name(graph, node) : fmt::format("{} {}", spec.name, name_of(spec.kind));
  return cut_to(fmt::format("{} {}", short_name(graph, node), graph.layer(spec.layer).name()), kMaxName);
}

template <class Scalar>
std::int64_t parameters_of(const Layer<Scalar>& layer) {
  std::int64_t count = 0;
  for (const ParameterSpec& spec : layer.parameters()) count += elements(spec.shape);
  return count;
}

}  // namespace

template <class Scalar>
std::string table_of(const LayerGraph<Scalar>& graph) {
  std::vector<Line> lines{{"layer", "of", "output", "parameters", "FLOPs"}};
  bool with_sources = false;
  std::int64_t parameters = 0;
  for (std::size_t node = 0; node < graph.size(); ++node) {
    const NodeSpec& spec = graph.node(node);
    Line& line = lines.emplace_back(Line{title(graph, node), "", trainer::describe(spec.shape), "", ""});
    if (spec.kind != NodeKind::kInput && !follows(spec, node)) {
      with_sources = true;
      std::vector<std::string> sources;
      for (const std::size_t source : spec.sources) sources.push_back(short_name(graph, source));
      line[kSources] = fmt::format("{}", fmt::join(sources, ", "));
    }
    if (spec.kind != NodeKind::kLayer) continue;
    const std::int64_t count = spec.use == 0 ? parameters_of(graph.layer(spec.layer)) : 0;
    parameters += count;
    line[3] = spec.use == 0 ? with_commas(count) : "shared";
    line[4] = with_unit(graph.layer(spec.layer).flops());
  }
  const auto& outputs = graph.output_nodes();
  for (const auto& [name, node] : outputs) {
    if (outputs.size() == 1) break;
    lines.push_back({"output " + name, short_name(graph, node), trainer::describe(graph.node(node).shape), "", ""});
    with_sources = true;
  }
  lines.push_back(
      {"total", "", trainer::describe(graph.output_shape()), with_commas(parameters), with_unit(graph.flops())});
  constexpr std::size_t kTexts = 2;
  return with_sources ? format_table(lines, kTexts) : format_table(lines, kTexts, kSources);
}

template <class Scalar>
std::vector<std::string> describe_nodes(const LayerGraph<Scalar>& graph) {
  std::vector<std::string> texts;
  for (std::size_t node = 0; node < graph.size(); ++node) {
    const NodeSpec& spec = graph.node(node);
    if (spec.kind == NodeKind::kInput) {
      if (graph.inputs().size() > 1) {
        texts.push_back(fmt::format("input '{}' of shape {}", spec.name, trainer::describe(spec.shape)));
      }
      continue;
    }
    std::string sources;
    if (!follows(spec, node)) {
      std::vector<std::string> names;
      for (const std::size_t source : spec.sources) names.push_back(graph.describe(source));
      sources = fmt::format(" of {}", fmt::join(names, ", "));
    }
    const std::string what = spec.kind != NodeKind::kLayer ? graph.describe(node)
                             : spec.use == 0               ? fmt::format("'{}'", graph.layer(spec.layer).name())
                                                           : graph.describe(node) + " again";
    const std::string range = spec.kind == NodeKind::kSlice ? fmt::format(" from channel {}", spec.first) : "";
    texts.push_back(fmt::format("{}{}{}, output {}", what, range, sources, trainer::describe(spec.shape)));
  }
  if (graph.output_nodes().size() > 1) {
    for (const auto& [name, node] : graph.output_nodes()) {
      texts.push_back(fmt::format("output '{}' of {}", name, graph.describe(node)));
    }
  }
  return texts;
}

template std::string table_of(const LayerGraph<float>&);
template std::string table_of(const LayerGraph<double>&);
template std::vector<std::string> describe_nodes(const LayerGraph<float>&);
template std::vector<std::string> describe_nodes(const LayerGraph<double>&);

std::string describe(const ModelDescription& model) {
  constexpr std::size_t kMaxLayers = 300;
  return fmt::format("{} to {}, {} parameters, {} layer{} ({})", describe(model.input), describe(model.output),
                     model.parameters, model.layers.size(), model.layers.size() == 1 ? "" : "s",
                     cut_to(fmt::format("{}", fmt::join(model.layers, "; ")), kMaxLayers));
}

}  // namespace farandole::trainer
