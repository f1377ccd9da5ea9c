// SPDX-License-Identifier: Apache-2.0
#include "farandole/trainer/model.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
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

/// Throws if two parameters or statistics of a layer have the same name: the names become names of tensors in a
/// checkpoint, which must be unique.
template <class Scalar>
void check_names(std::size_t place, const Layer<Scalar>& layer) {
  std::set<std::string> names;
  const auto add = [&](const std::string& name) {
    if (names.insert(name).second) return;
    throw InvalidArgument(fmt::format(
        "model: layer {} ({}) has two values named '{}'; give each parameter and statistic of a layer its own name",
        place, layer.name(), name));
  };
  for (const ParameterSpec& spec : layer.parameters()) add(spec.name);
  for (const StatisticSpec& spec : layer.statistics()) add(spec.name);
}

template <class Scalar>
std::span<Scalar> elements_of(Buffer& buffer) {
  return {buffer.as<Scalar>(), buffer.count()};
}

template <class Scalar>
std::span<Scalar> part(std::span<Scalar> values, const NamedSpan& where) {
  return values.subspan(where.first, where.count);
}

}  // namespace

template <class Scalar>
struct Model<Scalar>::State {
  explicit State(Shape input) : input_shape(std::move(input)) {}

  /// A layer, its ranges in the layouts, and its output.
  struct Stage {
    std::unique_ptr<Layer<Scalar>> layer;
    Shape output_shape;
    std::size_t first_parameter = 0, parameters = 0;
    std::size_t first_statistic = 0, statistics = 0;
    Tensor<Scalar> output;
  };

  Shape input_shape;
  std::vector<Stage> stages;
  std::vector<NamedSpan> parameter_layout, statistic_layout;
  std::vector<ParameterSpec> parameter_specs;
  std::vector<StatisticSpec> statistic_specs;
  std::size_t parameter_count = 0, statistic_count = 0;
  Buffer parameters, moving, reducible;
  Tensor<Scalar> gradients[2];  ///< the gradient of layer i's input is in gradients[i % 2]
  bool last_pass_trains = false;

  void add(std::unique_ptr<Layer<Scalar>> layer);
  void allocate();
  void bind();
  void check_input(const Tensor<Scalar>& input) const;
  std::span<Scalar> batch_statistics() {
    return elements_of<Scalar>(reducible).subspan(parameter_count, statistic_count);
  }
};

template <class Scalar>
void Model<Scalar>::State::add(std::unique_ptr<Layer<Scalar>> layer) {
  const std::size_t place = stages.size();
  if (layer == nullptr) throw InvalidArgument(fmt::format("model: layer {} is null", place));
  const std::string before = place == 0 ? std::string("the model's input")
                                        : fmt::format("layer {} ({})", place - 1, stages.back().layer->name());
  Stage stage;
  try {
    stage.output_shape = layer->prepare(place == 0 ? input_shape : stages.back().output_shape);
  } catch (const InvalidArgument& error) {
    throw InvalidArgument(fmt::format("model: layer {} does not fit {}: {}", place, before, error.message()));
  }
  check_names(place, *layer);
  const std::string prefix = fmt::format("{}.{}.", place, kind_of(layer->name()));
  stage.first_parameter = parameter_layout.size();
  for (const ParameterSpec& spec : layer->parameters()) {
    const auto count = static_cast<std::size_t>(elements(spec.shape));
    parameter_layout.push_back({prefix + spec.name, spec.shape, parameter_count, count, spec.decays});
    parameter_specs.push_back(spec);
    parameter_count += count;
    ++stage.parameters;
  }
  stage.first_statistic = statistic_layout.size();
  for (const StatisticSpec& spec : layer->statistics()) {
    statistic_layout.push_back(
        {prefix + spec.name, {spec.count}, statistic_count, static_cast<std::size_t>(spec.count), false});
    statistic_specs.push_back(spec);
    statistic_count += static_cast<std::size_t>(spec.count);
    ++stage.statistics;
  }
  stage.layer = std::move(layer);
  stages.push_back(std::move(stage));
}

template <class Scalar>
void Model<Scalar>::State::allocate() {
  parameters = Buffer(parameter_count, dtype_of<Scalar>);
  moving = Buffer(statistic_count, dtype_of<Scalar>);
  reducible = Buffer(parameter_count + statistic_count, dtype_of<Scalar>);
}

template <class Scalar>
void Model<Scalar>::State::bind() {
  for (Stage& stage : stages) {
    LayerMemory<Scalar> memory;
    for (std::size_t k = stage.first_parameter; k < stage.first_parameter + stage.parameters; ++k) {
      memory.parameters.push_back(part(elements_of<Scalar>(parameters), parameter_layout[k]));
      memory.gradients.push_back(part(elements_of<Scalar>(reducible), parameter_layout[k]));
    }
    for (std::size_t k = stage.first_statistic; k < stage.first_statistic + stage.statistics; ++k) {
      memory.batch_statistics.push_back(part(batch_statistics(), statistic_layout[k]));
      memory.moving_statistics.push_back(part(elements_of<Scalar>(moving), statistic_layout[k]));
    }
    stage.layer->bind(memory);
  }
}

template <class Scalar>
void Model<Scalar>::State::check_input(const Tensor<Scalar>& input) const {
  if (input.shape() == input_shape) return;
  throw InvalidArgument(fmt::format("model: expects samples of shape {}, got {}", trainer::describe(input_shape),
                                    trainer::describe(input.shape())));
}

template <class Scalar>
Model<Scalar>::Model(Shape input, LayerList<Scalar> layers) : state_(std::make_unique<State>(std::move(input))) {
  if (layers.empty()) throw InvalidArgument("model: it has no layers");
  for (auto& layer : layers) state_->add(std::move(layer));
  state_->allocate();
  state_->bind();
}
template <class Scalar>
typename Model<Scalar>::State& Model<Scalar>::state() const {
  if (!state_) throw InvalidArgument("this model was moved from");
  return *state_;
}
template <class Scalar>
void Model<Scalar>::place_reducible(const std::function<Buffer(std::size_t, DType)>& allocate) {
  state().reducible = allocate(state().reducible.count(), dtype_of<Scalar>);
  state().bind();
}
template <class Scalar>
Model<Scalar>::~Model() = default;
template <class Scalar>
Model<Scalar>::Model(Model&&) noexcept = default;

template <class Scalar>
void Model<Scalar>::initialize(std::uint64_t seed) {
  for (std::size_t k = 0; k < state().parameter_specs.size(); ++k) {
    const ParameterSpec& spec = state().parameter_specs[k];
    const std::span<Scalar> values = part(parameters(), state().parameter_layout[k]);
    if (spec.initial != Initial::kUniformFanIn) {
      std::fill(values.begin(), values.end(), Scalar(spec.initial == Initial::kOne ? 1 : 0));
      continue;
    }
    const CounterRandom random(seed, random_stream(RandomPurpose::kInitialValues, {k}));
    const double bound = 1 / std::sqrt(static_cast<double>(std::max<std::int64_t>(spec.fan_in, 1)));
    std::vector<std::uint32_t> bits(values.size());
    random.bits(0, std::span(bits));
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] = static_cast<Scalar>(bound * ((bits[i] + 0.5) * 0x1p-31 - 1));
    }
  }
  for (std::size_t k = 0; k < state().statistic_specs.size(); ++k) {
    const std::span<Scalar> values = part(statistics(), state().statistic_layout[k]);
    std::fill(values.begin(), values.end(), static_cast<Scalar>(state().statistic_specs[k].initial));
  }
  std::fill(reducible().begin(), reducible().end(), Scalar{0});
}

template <class Scalar>
const Shape& Model<Scalar>::input_shape() const {
  return state().input_shape;
}
template <class Scalar>
const Shape& Model<Scalar>::output_shape() const {
  return state().stages.back().output_shape;
}
template <class Scalar>
std::string Model<Scalar>::describe() const {
  std::string text = fmt::format("input {}\n", trainer::describe(state().input_shape));
  for (std::size_t place = 0; place < state().stages.size(); ++place) {
    const auto& stage = state().stages[place];
    std::size_t count = 0;
    for (std::size_t k = 0; k < stage.parameters; ++k) {
      count += state().parameter_layout[stage.first_parameter + k].count;
    }
    text += fmt::format("{:>2} {:<32} {:>12} {:>10} parameters\n", place, stage.layer->name(),
                        trainer::describe(stage.output_shape), count);
  }
  return text;
}

template <class Scalar>
std::vector<std::string> Model<Scalar>::layer_descriptions() const {
  std::vector<std::string> texts;
  for (const auto& stage : state().stages) {
    texts.push_back(fmt::format("'{}', output {}", stage.layer->name(), trainer::describe(stage.output_shape)));
  }
  return texts;
}

template <class Scalar>
std::span<Scalar> Model<Scalar>::parameters() {
  return elements_of<Scalar>(state().parameters);
}
template <class Scalar>
std::span<Scalar> Model<Scalar>::gradients() {
  return reducible().first(state().parameter_count);
}
template <class Scalar>
std::span<Scalar> Model<Scalar>::statistics() {
  return elements_of<Scalar>(state().moving);
}
template <class Scalar>
std::span<Scalar> Model<Scalar>::batch_statistics() {
  return state().batch_statistics();
}
template <class Scalar>
std::span<Scalar> Model<Scalar>::reducible() {
  return elements_of<Scalar>(state().reducible);
}
template <class Scalar>
const std::vector<NamedSpan>& Model<Scalar>::parameter_layout() const {
  return state().parameter_layout;
}
template <class Scalar>
const std::vector<NamedSpan>& Model<Scalar>::statistic_layout() const {
  return state().statistic_layout;
}

template <class Scalar>
void Model<Scalar>::move_statistics() {
  for (std::size_t k = 0; k < state().statistic_specs.size(); ++k) {
    const auto momentum = static_cast<Scalar>(state().statistic_specs[k].momentum);
    const std::span<Scalar> moving = part(statistics(), state().statistic_layout[k]);
    const std::span<Scalar> batch = part(batch_statistics(), state().statistic_layout[k]);
    for (std::size_t i = 0; i < moving.size(); ++i) moving[i] += momentum * (batch[i] - moving[i]);
  }
}

template <class Scalar>
const Tensor<Scalar>& Model<Scalar>::forward(Pass pass, const Tensor<Scalar>& input) {
  state().check_input(input);
  state().last_pass_trains = pass.training;
  const Tensor<Scalar>* current = &input;
  pass.layer = 0;
  for (auto& stage : state().stages) {
    stage.output.resize(input.samples(), stage.output_shape);
    stage.layer->forward(pass, *current, stage.output);
    current = &stage.output;
    ++pass.layer;
  }
  return *current;
}

template <class Scalar>
void Model<Scalar>::backward(Pass pass, const Tensor<Scalar>& input, const Tensor<Scalar>& output_gradient,
                             const std::function<void(std::size_t)>& on_ready) {
  auto& stages = state().stages;
  state().check_input(input);
  if (stages.back().output.samples() != input.samples() || output_gradient.samples() != input.samples() ||
      output_gradient.shape() != output_shape()) {
    throw InvalidArgument(fmt::format(
        "model: backward of {} samples with {} output gradients of shape {}, after a forward pass of {} samples with "
        "outputs of shape {}; call forward with the same input first",
        input.samples(), output_gradient.samples(), trainer::describe(output_gradient.shape()),
        stages.back().output.samples(), trainer::describe(output_shape())));
  }
  if (!pass.training || !state().last_pass_trains) {
    throw InvalidArgument(
        fmt::format("model: {} is a prediction, without dropout and batch statistics; to train, call "
                    "forward and backward with {{.training = true}}",
                    pass.training ? "the forward pass before this backward" : "this backward pass"));
  }
  const Tensor<Scalar>* current = &output_gradient;
  for (std::size_t place = stages.size(); place-- > 0;) {
    auto& stage = stages[place];
    const Tensor<Scalar>& stage_input = place == 0 ? input : stages[place - 1].output;
    Tensor<Scalar>* input_gradient = place == 0 ? nullptr : &state().gradients[place % 2];
    if (input_gradient != nullptr) input_gradient->resize(input.samples(), stage_input.shape());
    pass.layer = static_cast<int>(place);
    stage.layer->backward(pass, stage_input, stage.output, *current, input_gradient);
    current = input_gradient;
    if (!on_ready) continue;
    for (std::size_t k = stage.parameters; k-- > 0;) on_ready(stage.first_parameter + k);
  }
}

template class Model<float>;
template class Model<double>;

}  // namespace farandole::trainer
