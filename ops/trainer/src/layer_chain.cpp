// SPDX-License-Identifier: Apache-2.0
#include "layer_chain.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <set>
#include <utility>

#include "farandole/core/error.h"
#include "farandole/trainer/random.h"

namespace farandole::trainer {
namespace {

/// Kind of a layer, the first word of its name: "conv2d" of "conv2d 3x3, 32 channels".
std::string kind_of(const std::string& name) {
  return name.substr(0, name.find_first_of(" ,"));
}

template <class Scalar>
std::string prefix_of(std::size_t place, const Layer<Scalar>& layer) {
  return fmt::format("{}.{}.", place, kind_of(layer.name()));
}

template <class Span>
std::vector<Span> range_of(const std::vector<Span>& spans, std::size_t first, std::size_t count) {
  const auto begin = spans.begin() + static_cast<std::ptrdiff_t>(first);
  return {begin, begin + static_cast<std::ptrdiff_t>(count)};
}

}  // namespace

template <class Scalar>
LayerChain<Scalar>::LayerChain(std::string owner, LayerList<Scalar> layers, std::uint64_t branch)
    : owner_(std::move(owner)), branch_(branch) {
  if (layers.empty()) throw InvalidArgument(fmt::format("{}: it has no layers", owner_));
  for (auto& layer : layers) {
    if (layer == nullptr) throw InvalidArgument(fmt::format("{}: layer {} is null", owner_, stages_.size()));
    stages_.emplace_back().layer = std::move(layer);
  }
}

template <class Scalar>
Shape LayerChain<Scalar>::prepare(const Shape& input) {
  std::size_t parameters = 0, statistics = 0;
  for (std::size_t place = 0; place < stages_.size(); ++place) {
    Stage& stage = stages_[place];
    try {
      stage.output_shape = stage.layer->prepare(place == 0 ? input : stages_[place - 1].output_shape);
    } catch (const InvalidArgument& error) {
      const std::string before = place == 0 ? fmt::format("the {}'s input", owner_)
                                            : fmt::format("layer {} ({})", place - 1, stages_[place - 1].layer->name());
      throw InvalidArgument(fmt::format("{}: layer {} does not fit {}: {}", owner_, place, before, error.message()));
    }
    check_names(place);
    stage.first_parameter = parameters;
    stage.first_statistic = statistics;
    parameters += stage.parameters = stage.layer->parameters().size();
    statistics += stage.statistics = stage.layer->statistics().size();
  }
  return stages_.back().output_shape;
}

/// Throws if two parameters or statistics of a layer have the same name: the names become names of tensors in a
/// checkpoint, which must be unique.
template <class Scalar>
void LayerChain<Scalar>::check_names(std::size_t place) const {
  const Layer<Scalar>& layer = *stages_[place].layer;
  std::set<std::string> names;
  const auto add = [&](const std::string& name) {
    if (names.insert(name).second) return;
    throw InvalidArgument(
        fmt::format("{}: layer {} ({}) has two values named '{}'; give each parameter and statistic of a layer its own "
                    "name",
                    owner_, place, layer.name(), name));
  };
  for (const ParameterSpec& spec : layer.parameters()) add(spec.name);
  for (const StatisticSpec& spec : layer.statistics()) add(spec.name);
}

template <class Scalar>
std::vector<ParameterSpec> LayerChain<Scalar>::parameters() const {
  std::vector<ParameterSpec> all;
  for (std::size_t place = 0; place < stages_.size(); ++place) {
    const Layer<Scalar>& layer = *stages_[place].layer;
    append_specs(all, prefix_of(place, layer), layer.parameters());
  }
  return all;
}

template <class Scalar>
std::vector<StatisticSpec> LayerChain<Scalar>::statistics() const {
  std::vector<StatisticSpec> all;
  for (std::size_t place = 0; place < stages_.size(); ++place) {
    const Layer<Scalar>& layer = *stages_[place].layer;
    append_specs(all, prefix_of(place, layer), layer.statistics());
  }
  return all;
}

template <class Scalar>
void LayerChain<Scalar>::bind(const LayerMemory<Scalar>& memory) {
  for (Stage& stage : stages_) {
    stage.layer->bind({range_of(memory.parameters, stage.first_parameter, stage.parameters),
                       range_of(memory.gradients, stage.first_parameter, stage.parameters),
                       range_of(memory.batch_statistics, stage.first_statistic, stage.statistics),
                       range_of(memory.moving_statistics, stage.first_statistic, stage.statistics)});
  }
}

/// The number of a layer inside a container is a hash of its path: of the container's number, the branch and the
/// layer's index.
template <class Scalar>
Pass LayerChain<Scalar>::inner_pass(const Pass& pass, std::size_t place) const {
  Pass inner = pass;
  inner.layer = branch_ == 0 ? place : random_stream(RandomPurpose::kInnerLayer, {pass.layer, branch_, place});
  return inner;
}

template <class Scalar>
void LayerChain<Scalar>::forward(const Pass& pass, const Tensor<Scalar>& input, Tensor<Scalar>& output) {
  const Tensor<Scalar>* current = &input;
  for (std::size_t place = 0; place < stages_.size(); ++place) {
    Stage& stage = stages_[place];
    const bool last = place + 1 == stages_.size();
    if (!last) stage.output.resize(input.samples(), stage.output_shape);
    Tensor<Scalar>& result = last ? output : stage.output;
    stage.layer->forward(inner_pass(pass, place), *current, result);
    current = &result;
  }
}

template <class Scalar>
void LayerChain<Scalar>::backward(const Pass& pass, const Tensor<Scalar>& input, const Tensor<Scalar>& output,
                                  const Tensor<Scalar>& output_gradient, Tensor<Scalar>* input_gradient,
                                  const std::function<void(std::size_t)>& on_ready) {
  const Tensor<Scalar>* current = &output_gradient;
  for (std::size_t place = stages_.size(); place-- > 0;) {
    Stage& stage = stages_[place];
    const Tensor<Scalar>& stage_input = place == 0 ? input : stages_[place - 1].output;
    const Tensor<Scalar>& stage_output = place + 1 == stages_.size() ? output : stage.output;
    Tensor<Scalar>* by_input = place == 0 ? input_gradient : &gradients_[place % 2];
    if (place > 0) by_input->resize(input.samples(), stage_input.shape());
    stage.layer->backward(inner_pass(pass, place), stage_input, stage_output, *current, by_input);
    current = by_input;
    if (!on_ready) continue;
    for (std::size_t k = stage.parameters; k-- > 0;) on_ready(stage.first_parameter + k);
  }
}

template <class Scalar>
std::string LayerChain<Scalar>::describe() const {
  std::vector<std::string> names;
  for (const Stage& stage : stages_) names.push_back(stage.layer->name());
  return fmt::format("{}", fmt::join(names, "; "));
}

template class LayerChain<float>;
template class LayerChain<double>;

}  // namespace farandole::trainer
