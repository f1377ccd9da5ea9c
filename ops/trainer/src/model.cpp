// SPDX-License-Identifier: Apache-2.0
#include "farandole/trainer/model.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "farandole/core/error.h"
#include "farandole/trainer/random.h"
#include "graph_work.h"
#include "kernels/kernels.h"
#include "kernels/transfer.h"
#include "layer_graph.h"
#include "model_table.h"

namespace farandole::trainer {
namespace {

template <class Scalar>
VectorView<Scalar> elements_of(Buffer& buffer) {
  return {buffer.as<Scalar>(), buffer.count(), buffer.space()};
}

template <class Scalar>
VectorView<Scalar> part(VectorView<Scalar> values, const NamedSpan& where) {
  return values.subview(where.first, where.count);
}

template <class Scalar>
void fill_initial(const ParameterSpec& spec, const CounterRandom& random, std::span<Scalar> values) {
  const double bound = 1 / std::sqrt(static_cast<double>(std::max<std::int64_t>(spec.fan_in, 1)));
  switch (spec.initial) {
    case Initial::kZero:
      return std::fill(values.begin(), values.end(), Scalar{0});
    case Initial::kOne:
      return std::fill(values.begin(), values.end(), Scalar{1});
    case Initial::kUniformFanIn: {
      std::vector<std::uint32_t> bits(values.size());
      random.bits(0, std::span(bits));
      for (std::size_t i = 0; i < values.size(); ++i) {
        values[i] = static_cast<Scalar>(bound * ((bits[i] + 0.5) * 0x1p-31 - 1));
      }
      return;
    }
    case Initial::kNormalFanIn:
      for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<Scalar>(bound * random.normal(i));
  }
}

/// Layers in order, as a graph.
template <class Scalar>
std::unique_ptr<LayerGraph<Scalar>> row_of(Shape input, LayerList<Scalar> layers) {
  auto graph = std::make_unique<LayerGraph<Scalar>>("model");
  graph->add_output("output", graph->add_row(std::move(layers), graph->add_input("input", input), 0));
  graph->prepare(input);
  return graph;
}

}  // namespace

template <class Scalar>
struct Model<Scalar>::State {
  explicit State(std::unique_ptr<LayerGraph<Scalar>> layers);

  std::unique_ptr<LayerGraph<Scalar>> graph;
  std::vector<NamedSpan> parameter_layout, statistic_layout;
  std::vector<ParameterSpec> parameter_specs;
  std::vector<StatisticSpec> statistic_specs;
  std::vector<LayerWork> work;
  std::size_t parameter_count = 0, statistic_count = 0;
  Execution execution{{dtype_of<Scalar>, dtype_of<Scalar>}};
  Buffer parameters, moving, reducible;
  Tensor<Scalar> output;  ///< of the last forward pass
  bool last_pass_trains = false;

  void allocate();
  /// Sets parameters and moving statistics to values in host memory, laid out like them.
  void set(std::span<const Scalar> new_parameters, std::span<const Scalar> new_moving);
  void bind();
  void check_input(const Tensor<Scalar>& input) const;
  VectorView<Scalar> batch_statistics() {
    return elements_of<Scalar>(reducible).subview(parameter_count, statistic_count);
  }
};

template <class Scalar>
Model<Scalar>::State::State(std::unique_ptr<LayerGraph<Scalar>> layers) : graph(std::move(layers)) {
  parameter_specs = graph->parameters();
  for (const ParameterSpec& spec : parameter_specs) {
    const auto count = static_cast<std::size_t>(elements(spec.shape));
    parameter_layout.push_back({spec.name, spec.shape, parameter_count, count, spec.decays});
    parameter_count += count;
  }
  statistic_specs = graph->statistics();
  for (const StatisticSpec& spec : statistic_specs) {
    const auto count = static_cast<std::size_t>(spec.count);
    statistic_layout.push_back({spec.name, {spec.count}, statistic_count, count, false});
    statistic_count += count;
  }
  work = number_rows(*graph);
  allocate();
  bind();
}

template <class Scalar>
void Model<Scalar>::State::allocate() {
  parameters = allocate_zeros(execution, parameter_count, dtype_of<Scalar>);
  moving = allocate_zeros(execution, statistic_count, dtype_of<Scalar>);
  reducible = allocate_zeros(execution, parameter_count + statistic_count, dtype_of<Scalar>);
}

template <class Scalar>
void Model<Scalar>::State::set(std::span<const Scalar> new_parameters, std::span<const Scalar> new_moving) {
  copy_now(execution, parameters.view(), VectorView<const Scalar>(new_parameters));
  copy_now(execution, moving.view(), VectorView<const Scalar>(new_moving));
}

template <class Scalar>
void Model<Scalar>::State::bind() {
  LayerMemory<Scalar> memory;
  for (const NamedSpan& span : parameter_layout) {
    memory.parameters.push_back(part(elements_of<Scalar>(parameters), span));
    memory.gradients.push_back(part(elements_of<Scalar>(reducible), span));
  }
  for (const NamedSpan& span : statistic_layout) {
    memory.batch_statistics.push_back(part(batch_statistics(), span));
    memory.moving_statistics.push_back(part(elements_of<Scalar>(moving), span));
  }
  graph->bind(memory);
}

template <class Scalar>
void Model<Scalar>::State::check_input(const Tensor<Scalar>& input) const {
  execution.require(input.space(), "the input of the model");
  if (input.shape() == graph->input_shape()) return;
  throw InvalidArgument(fmt::format("model: expects samples of shape {}, got {}",
                                    trainer::describe(graph->input_shape()), trainer::describe(input.shape())));
}

template <class Scalar>
Model<Scalar>::Model(Shape input, LayerList<Scalar> layers)
    : state_(std::make_unique<State>(row_of(std::move(input), std::move(layers)))) {}
template <class Scalar>
Model<Scalar>::Model(GraphBuilder<Scalar> graph) : state_(std::make_unique<State>(std::move(graph).build())) {}
template <class Scalar>
typename Model<Scalar>::State& Model<Scalar>::state() const {
  if (!state_) throw InvalidArgument("this model was moved from");
  return *state_;
}
template <class Scalar>
const Execution& Model<Scalar>::execution() const {
  return state().execution;
}
template <class Scalar>
void Model<Scalar>::place_reducible(const std::function<Buffer(std::size_t, DType)>& allocate) {
  Buffer buffer = allocate(state().reducible.count(), dtype_of<Scalar>);
  state().execution.require(buffer.space(), "the memory for gradients and batch statistics");
  state().reducible = std::move(buffer);
  state().bind();
}
template <class Scalar>
std::string Model<Scalar>::why_not_on_devices(DeviceForm needed) const {
  return state().graph->why_not_on_devices(needed);
}
template <class Scalar>
void Model<Scalar>::move_to(const Execution& execution) {
  State& moved = state();
  if (const std::string problem = why_not_on_devices(); !execution.space().is_host() && !problem.empty()) {
    throw Unsupported(problem);
  }
  const bool has_own_compute = is_half(execution.precision().compute);
  const Execution moved_execution =
      execution.with({has_own_compute ? execution.precision().compute : dtype_of<Scalar>, dtype_of<Scalar>});
  const auto values = [&](BufferView old) {
    const std::vector<Scalar> copy =
        to_host<Scalar>(moved.execution, {static_cast<const Scalar*>(old.data), old.count, old.space});
    Buffer there = allocate_zeros(moved_execution, old.count, old.dtype);
    copy_now(moved_execution, there.view(), VectorView<const Scalar>(copy));
    return there;
  };
  Buffer new_parameters = values(moved.parameters.view()), new_moving = values(moved.moving.view());
  Buffer new_reducible = allocate_zeros(moved_execution, moved.reducible.count(), dtype_of<Scalar>);
  // From here on nothing throws.
  moved.execution = moved_execution;
  moved.output = Tensor<Scalar>(moved_execution.memory());
  moved.parameters = std::move(new_parameters);
  moved.moving = std::move(new_moving);
  moved.reducible = std::move(new_reducible);
  moved.bind();
}
template <class Scalar>
Model<Scalar>::~Model() = default;
template <class Scalar>
Model<Scalar>::Model(Model&&) noexcept = default;

template <class Scalar>
void Model<Scalar>::initialize(std::uint64_t seed) {
  std::vector<Scalar> values(state().parameter_count), moving(state().statistic_count);
  for (std::size_t k = 0; k < state().parameter_specs.size(); ++k) {
    const ParameterSpec& spec = state().parameter_specs[k];
    fill_initial(spec, CounterRandom(seed, random_stream(RandomPurpose::kInitialValues, {k})),
                 part(VectorView<Scalar>(values), state().parameter_layout[k]).host());
  }
  for (std::size_t k = 0; k < state().statistic_specs.size(); ++k) {
    std::ranges::fill(part(VectorView<Scalar>(moving), state().statistic_layout[k]).host(),
                      static_cast<Scalar>(state().statistic_specs[k].initial));
  }
  state().set(values, moving);
  clear(state().execution, reducible());
}

template <class Scalar>
const Shape& Model<Scalar>::input_shape() const {
  return state().graph->input_shape();
}
template <class Scalar>
const Shape& Model<Scalar>::output_shape() const {
  return state().graph->output_shape();
}
template <class Scalar>
std::vector<GraphPort> Model<Scalar>::inputs() const {
  return state().graph->inputs();
}
template <class Scalar>
std::vector<GraphPort> Model<Scalar>::outputs() const {
  return state().graph->outputs();
}
template <class Scalar>
double Model<Scalar>::flops() const {
  return state().graph->flops();
}
template <class Scalar>
const std::vector<LayerWork>& Model<Scalar>::work() const {
  return state().work;
}
template <class Scalar>
std::string Model<Scalar>::describe() const {
  return table_of(*state().graph);
}
template <class Scalar>
ModelDescription Model<Scalar>::description() const {
  return {.input = input_shape(),
          .output = output_shape(),
          .layers = describe_nodes(*state().graph),
          .parameters = static_cast<std::int64_t>(state().parameter_count)};
}

template <class Scalar>
VectorView<Scalar> Model<Scalar>::parameters() {
  return elements_of<Scalar>(state().parameters);
}
template <class Scalar>
VectorView<Scalar> Model<Scalar>::gradients() {
  return reducible().subview(0, state().parameter_count);
}
template <class Scalar>
VectorView<Scalar> Model<Scalar>::statistics() {
  return elements_of<Scalar>(state().moving);
}
template <class Scalar>
VectorView<Scalar> Model<Scalar>::batch_statistics() {
  return state().batch_statistics();
}
template <class Scalar>
VectorView<Scalar> Model<Scalar>::reducible() {
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
void Model<Scalar>::move_statistics(const LossScale* loss_scale) {
  for (std::size_t k = 0; k < state().statistic_specs.size(); ++k) {
    const auto momentum = static_cast<Scalar>(state().statistic_specs[k].momentum);
    const NamedSpan& span = state().statistic_layout[k];
    kernels_of<Scalar>(state().execution)
        .approach(static_cast<std::int64_t>(span.count), momentum, batch_statistics().data() + span.first,
                  statistics().data() + span.first, loss_scale);
  }
}

template <class Scalar>
const Tensor<Scalar>& Model<Scalar>::forward(Pass pass, const Tensor<Scalar>& input) {
  state().check_input(input);
  state().last_pass_trains = pass.training;
  pass.execution = state().execution;
  Tensor<Scalar>& output = state().output;
  output.resize(input.samples(), output_shape());
  state().graph->forward(pass, input, output);
  return output;
}

template <class Scalar>
void Model<Scalar>::backward(Pass pass, const Tensor<Scalar>& input, const Tensor<Scalar>& output_gradient,
                             const std::function<void(std::size_t)>& on_ready) {
  Tensor<Scalar>& output = state().output;
  state().check_input(input);
  if (output.samples() != input.samples() || output_gradient.samples() != input.samples() ||
      output_gradient.shape() != output_shape()) {
    throw InvalidArgument(fmt::format(
        "model: backward of {} samples with {} output gradients of shape {}, after a forward pass of {} samples with "
        "outputs of shape {}; call forward with the same input first",
        input.samples(), output_gradient.samples(), trainer::describe(output_gradient.shape()), output.samples(),
        trainer::describe(output_shape())));
  }
  if (!pass.training || !state().last_pass_trains) {
    throw InvalidArgument(
        fmt::format("model: {} is a prediction, without dropout and batch statistics; to train, call "
                    "forward and backward with {{.training = true}}",
                    pass.training ? "the forward pass before this backward" : "this backward pass"));
  }
  pass.execution = state().execution;
  state().execution.require(output_gradient.space(), "the gradient of the model's output");
  state().graph->backward(pass, input, output, output_gradient, nullptr, on_ready);
}

template class Model<float>;
template class Model<double>;

}  // namespace farandole::trainer
