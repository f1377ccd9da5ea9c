// SPDX-License-Identifier: Apache-2.0
#include "graph_structure.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "farandole/core/error.h"
#include "kernels/device_form.h"

namespace farandole::trainer {
namespace {

/// Kind of a layer, the first word of its name: "conv2d" of "conv2d 3x3, 32 channels".
std::string kind_of(const std::string& name) {
  return name.substr(0, name.find_first_of(" ,"));
}

template <class View>
std::vector<View> range_of(const std::vector<View>& views, std::size_t first, std::size_t count) {
  const auto begin = views.begin() + static_cast<std::ptrdiff_t>(first);
  return {begin, begin + static_cast<std::ptrdiff_t>(count)};
}

/// Appends the specs of parameters or statistics, with `prefix` before their names.
template <class Spec>
void append_specs(std::vector<Spec>& all, const std::string& prefix, std::vector<Spec> specs) {
  for (Spec& spec : specs) {
    spec.name = prefix + spec.name;
    all.push_back(std::move(spec));
  }
}

}  // namespace

const char* name_of(NodeKind kind) {
  switch (kind) {
    case NodeKind::kInput:
      return "input";
    case NodeKind::kLayer:
      return "layer";
    case NodeKind::kSum:
      return "sum";
    case NodeKind::kMultiply:
      return "multiply";
    case NodeKind::kConcatenate:
      return "concatenate";
    case NodeKind::kSlice:
      return "slice";
  }
  return "";
}

template <class Scalar>
std::string prefix_of(std::size_t number, const Layer<Scalar>& layer) {
  return fmt::format("{}.{}.", number, kind_of(layer.name()));
}
template std::string prefix_of(std::size_t, const Layer<float>&);
template std::string prefix_of(std::size_t, const Layer<double>&);

template <class Scalar>
std::size_t GraphStructure<Scalar>::add_node(NodeSpec spec) {
  nodes_.push_back(std::move(spec));
  return nodes_.size() - 1;
}

template <class Scalar>
std::size_t GraphStructure<Scalar>::add_input(const std::string& name, const Shape& shape) {
  inputs_.push_back(add_node({.kind = NodeKind::kInput, .name = name, .shape = shape}));
  return inputs_.back();
}

template <class Scalar>
std::size_t GraphStructure<Scalar>::add_layer(std::unique_ptr<Layer<Scalar>> layer, LayerPlace place) {
  if (layer == nullptr) throw InvalidArgument(fmt::format("{}: {} is null", owner_, place.label));
  Stage& stage = stages_.emplace_back();
  stage.layer = std::move(layer);
  stage.place = std::move(place);
  return stages_.size() - 1;
}

template <class Scalar>
std::size_t GraphStructure<Scalar>::add_use(std::size_t layer, std::size_t from, const std::string& name) {
  return add_node(
      {.kind = NodeKind::kLayer, .name = name, .sources = {from}, .layer = layer, .use = stages_[layer].uses++});
}

template <class Scalar>
std::size_t GraphStructure<Scalar>::add_row(LayerList<Scalar> layers, std::size_t from, std::uint64_t branch,
                                            const std::string& row, const std::string& prefix) {
  if (layers.empty()) {
    throw InvalidArgument(
        fmt::format("{}: {}", owner_, row.empty() ? "it has no layers" : "the " + row + "has no layers"));
  }
  for (std::size_t number = 0; number < layers.size(); ++number) {
    std::unique_ptr<Layer<Scalar>>& layer = layers[number];
    LayerPlace place{fmt::format("{}layer {}", row, number), "", branch, number};
    if (layer != nullptr) place.prefix = prefix + prefix_of(number, *layer);
    from = add_use(add_layer(std::move(layer), std::move(place)), from);
  }
  return from;
}

template <class Scalar>
void GraphStructure<Scalar>::add_output(std::string name, std::size_t node) {
  outputs_.emplace_back(std::move(name), node);
}

template <class Scalar>
void GraphStructure<Scalar>::nest(std::string owner) {
  owner_ = std::move(owner);
  for (Stage& stage : stages_) stage.place.branch = 1;
}

template <class Scalar>
std::string GraphStructure<Scalar>::describe(std::size_t node) const {
  const NodeSpec& spec = nodes_[node];
  if (spec.kind == NodeKind::kLayer) {
    const Stage& stage = stages_[spec.layer];
    const std::string where = spec.name.empty() || stage.uses == 1 ? "" : fmt::format(" at '{}'", spec.name);
    return fmt::format("{}{} ({})", stage.place.label, where, stage.layer->name());
  }
  if (!spec.name.empty()) return fmt::format("{} '{}'", name_of(spec.kind), spec.name);
  if (spec.kind == NodeKind::kInput) return fmt::format("the {}'s input", owner_);
  return fmt::format("{} (node {})", name_of(spec.kind), node);
}

template <class Scalar>
std::string GraphStructure<Scalar>::why_not_on_devices(DeviceForm needed) const {
  for (const Stage& stage : stages_) {
    const std::string what = fmt::format("{}: {} ({})", owner_, stage.place.label, stage.layer->name());
    if (std::string problem = device_problem(what, stage.layer->device_form(), needed); !problem.empty())
      return problem;
  }
  return {};
}

template <class Scalar>
DeviceForm GraphStructure<Scalar>::device_form() const {
  DeviceForm form = DeviceForm::kGraphs;
  for (const Stage& stage : stages_) form = std::min(form, stage.layer->device_form());
  return form;
}

template <class Scalar>
std::string GraphStructure<Scalar>::describe_layers() const {
  std::vector<std::string> names;
  for (const Stage& stage : stages_) names.push_back(stage.layer->name());
  return fmt::format("{}", fmt::join(names, "; "));
}

template <class Scalar>
void GraphStructure<Scalar>::prepare_node(std::size_t node) {
  NodeSpec& spec = nodes_[node];
  if (spec.kind == NodeKind::kInput) return;
  if (spec.kind == NodeKind::kLayer) {
    spec.shape = prepare_layer(node);
    return;
  }
  spec.shape = shape_of_operation(node);
}

template <class Scalar>
Shape GraphStructure<Scalar>::prepare_layer(std::size_t node) {
  const NodeSpec& spec = nodes_[node];
  Stage& stage = stages_[spec.layer];
  const NodeSpec& source = nodes_[spec.sources[0]];
  if (spec.use > 0) {
    if (source.shape != stage.input_shape) {
      throw InvalidArgument(fmt::format(
          "{}: {} does not fit {}: its first use has samples of shape {}, this use has {}; every use of a shared layer "
          "needs the same shape",
          owner_, stage.place.label, describe(spec.sources[0]), trainer::describe(stage.input_shape),
          trainer::describe(source.shape)));
    }
    if (!stage.layer->statistics().empty()) {
      throw InvalidArgument(fmt::format("{}: {} ({}) has batch statistics, so it can be used at one node only", owner_,
                                        stage.place.label, stage.layer->name()));
    }
    return stage.output_shape;
  }
  stage.input_shape = source.shape;
  try {
    stage.output_shape = stage.layer->prepare(source.shape);
  } catch (const InvalidArgument& error) {
    throw InvalidArgument(fmt::format("{}: {} does not fit {}: {}", owner_, stage.place.label,
                                      describe(spec.sources[0]), error.message()));
  }
  check_specs(stage);
  return stage.output_shape;
}

template <class Scalar>
Shape GraphStructure<Scalar>::shape_of_operation(std::size_t node) const {
  const NodeSpec& spec = nodes_[node];
  const Shape& first = nodes_[spec.sources[0]].shape;
  const auto refuse = [&](std::size_t source, const char* expects) {
    throw InvalidArgument(fmt::format("{}: {} expects {}; {} gives {}, and {} gives {}", owner_, describe(node),
                                      expects, describe(spec.sources[0]), trainer::describe(first), describe(source),
                                      trainer::describe(nodes_[source].shape)));
  };
  if (spec.kind == NodeKind::kSlice) {
    if (first.empty() || spec.first < 0 || spec.count < 1 || spec.first + spec.count > first.back()) {
      throw InvalidArgument(fmt::format("{}: {} takes channels {} to {} of {}, whose shape is {}", owner_,
                                        describe(node), spec.first, spec.first + spec.count - 1,
                                        describe(spec.sources[0]), trainer::describe(first)));
    }
    Shape shape = first;
    shape.back() = spec.count;
    return shape;
  }
  const bool concatenates = spec.kind == NodeKind::kConcatenate;
  Shape result = first;
  for (std::size_t k = 1; k < spec.sources.size(); ++k) {
    Shape shape = nodes_[spec.sources[k]].shape;
    if (!concatenates) {
      if (shape != first) refuse(spec.sources[k], "nodes of the same shape");
      continue;
    }
    constexpr const char* kExpects = "nodes whose shapes differ in the last extent only";
    if (shape.empty() || shape.size() != first.size()) refuse(spec.sources[k], kExpects);
    result.back() += std::exchange(shape.back(), first.back());
    if (shape != first) refuse(spec.sources[k], kExpects);
  }
  return result;
}

/// Throws if a parameter or statistic of a layer has no name, the name of another one, or a negative size. The names
/// become names of tensors in a checkpoint, which must be unique.
template <class Scalar>
void GraphStructure<Scalar>::check_specs(const Stage& stage) const {
  const Layer<Scalar>& layer = *stage.layer;
  std::set<std::string> names;
  const auto refuse = [&](const std::string& reason) {
    throw InvalidArgument(fmt::format("{}: {} ({}) has {}", owner_, stage.place.label, layer.name(), reason));
  };
  const auto add = [&](const char* kind, const std::string& name) {
    if (name.empty()) refuse(fmt::format("a {} without a name; give each a name, as \"weight\"", kind));
    if (names.insert(name).second) return;
    refuse(fmt::format("two values named '{}'; give each parameter and statistic of a layer its own name", name));
  };
  for (const ParameterSpec& spec : layer.parameters()) {
    add("parameter", spec.name);
    if (std::all_of(spec.shape.begin(), spec.shape.end(), [](std::int64_t extent) { return extent >= 0; })) continue;
    refuse(fmt::format("the parameter '{}' of shape {}; every extent must be at least 0", spec.name,
                       trainer::describe(spec.shape)));
  }
  for (const StatisticSpec& spec : layer.statistics()) {
    add("statistic", spec.name);
    if (spec.count < 0)
      refuse(fmt::format("the statistic '{}' of {} numbers; it must have at least 0", spec.name, spec.count));
  }
}

template <class Scalar>
void GraphStructure<Scalar>::check_not_resized(std::size_t node, const char* function, const char* what,
                                               const Tensor<Scalar>& tensor, std::int64_t samples,
                                               const Shape& shape) const {
  if (tensor.samples() == samples && tensor.shape() == shape) return;
  throw InvalidArgument(
      fmt::format("{}: {}: {} must not resize the {}, which had {} samples of shape {}, and has {} of shape {} now",
                  owner_, describe(node), function, what, samples, trainer::describe(shape), tensor.samples(),
                  trainer::describe(tensor.shape())));
}

/// A layer that is used several times is left out, because its forward pass may run again before its backward pass.
template <class Scalar>
void GraphStructure<Scalar>::find_relus() {
  std::vector<std::size_t> users(nodes_.size(), 0);
  for (const NodeSpec& spec : nodes_) {
    for (const std::size_t source : spec.sources) ++users[source];
  }
  for (const auto& [name, node] : outputs_) ++users[node];
  for (std::size_t node = 0; node < nodes_.size(); ++node) {
    if (nodes_[node].kind != NodeKind::kLayer || !is_relu(*stages_[nodes_[node].layer].layer)) continue;
    NodeSpec& source = nodes_[nodes_[node].sources[0]];
    if (source.kind != NodeKind::kLayer || users[nodes_[node].sources[0]] > 1) continue;
    Stage& stage = stages_[source.layer];
    stage.rectifiable = dynamic_cast<RectifiableLayer<Scalar>*>(stage.layer.get());
    if (stage.uses == 1 && stage.rectifiable != nullptr) source.relu = node;
  }
}

template <class Scalar>
void GraphStructure<Scalar>::finish() {
  find_relus();
  std::size_t parameters = 0, statistics = 0;
  for (Stage& stage : stages_) {
    stage.first_parameter = parameters;
    stage.first_statistic = statistics;
    parameters += stage.parameters = stage.layer->parameters().size();
    statistics += stage.statistics = stage.layer->statistics().size();
  }
  const auto joined = [](const std::vector<GraphPort>& ports) {
    if (ports.size() == 1) return ports[0].shape;
    Shape shape{0};
    for (const GraphPort& port : ports) shape[0] += elements(port.shape);
    return shape;
  };
  input_shape_ = joined(inputs());
  output_shape_ = joined(outputs());
}

template <class Scalar>
Shape GraphStructure<Scalar>::prepare(const Shape& input) {
  nodes_[inputs_[0]].shape = input;
  for (std::size_t node = 0; node < nodes_.size(); ++node) prepare_node(node);
  finish();
  return output_shape_;
}

template <class Scalar>
std::vector<ParameterSpec> GraphStructure<Scalar>::parameters() const {
  std::vector<ParameterSpec> all;
  for (const Stage& stage : stages_) append_specs(all, stage.place.prefix, stage.layer->parameters());
  return all;
}

template <class Scalar>
std::vector<StatisticSpec> GraphStructure<Scalar>::statistics() const {
  std::vector<StatisticSpec> all;
  for (const Stage& stage : stages_) append_specs(all, stage.place.prefix, stage.layer->statistics());
  return all;
}

template <class Scalar>
double GraphStructure<Scalar>::flops() const {
  double sum = 0;
  for (const Stage& stage : stages_) sum += static_cast<double>(stage.uses) * stage.layer->flops();
  return sum;
}

template <class Scalar>
void GraphStructure<Scalar>::bind(const LayerMemory<Scalar>& memory) {
  for (Stage& stage : stages_) {
    LayerMemory<Scalar> own{range_of(memory.parameters, stage.first_parameter, stage.parameters),
                            range_of(memory.gradients, stage.first_parameter, stage.parameters),
                            range_of(memory.batch_statistics, stage.first_statistic, stage.statistics),
                            range_of(memory.moving_statistics, stage.first_statistic, stage.statistics)};
    stage.gradients = own.gradients;
    stage.layer->bind(own);
  }
}

template <class Scalar>
std::vector<GraphPort> GraphStructure<Scalar>::inputs() const {
  std::vector<GraphPort> ports;
  for (const std::size_t node : inputs_) ports.push_back({nodes_[node].name, nodes_[node].shape});
  return ports;
}

template <class Scalar>
std::vector<GraphPort> GraphStructure<Scalar>::outputs() const {
  std::vector<GraphPort> ports;
  for (const auto& [name, node] : outputs_) ports.push_back({name, nodes_[node].shape});
  return ports;
}

template class GraphStructure<float>;
template class GraphStructure<double>;

}  // namespace farandole::trainer
