// SPDX-License-Identifier: Apache-2.0
// Layers that contain layers: a sequence, a sum of two branches, and any graph. Their inner layers' parameters and
// statistics are their own, so that the model sees a container as one layer.
#include <fmt/format.h>

#include <string>
#include <utility>
#include <vector>

#include "farandole/core/error.h"
#include "farandole/trainer/graph.h"
#include "graph_work.h"
#include "layer_graph.h"

namespace farandole::trainer {
namespace {

constexpr std::uint64_t kBodyBranch = 1, kShortcutBranch = 2;

template <class Scalar>
class Container final : public LayerOfLayers<Scalar> {
 public:
  /// @param name  kind and layers: "sequence (dense, 8 units; relu)"
  Container(std::string name, std::unique_ptr<LayerGraph<Scalar>> graph)
      : name_(std::move(name)), graph_(std::move(graph)) {}

  std::string name() const override { return name_; }
  Shape prepare(const Shape& input) override {
    if (graph_->inputs().size() == 1) return graph_->prepare(input);
    if (input == graph_->input_shape()) return graph_->output_shape();
    throw InvalidArgument(
        fmt::format("graph: expects samples with its inputs one behind the other, {}; the input is {}",
                    trainer::describe(graph_->input_shape()), trainer::describe(input)));
  }
  std::vector<ParameterSpec> parameters() const override { return graph_->parameters(); }
  std::vector<StatisticSpec> statistics() const override { return graph_->statistics(); }
  double flops() const override { return graph_->flops(); }
  double backward_flops(bool input_gradient) const override { return trainer::backward_flops(*graph_, input_gradient); }
  GraphStructure<Scalar>& graph() override { return *graph_; }
  DeviceForm device_form() const override { return graph_->device_form(); }
  void bind(const LayerMemory<Scalar>& memory) override { graph_->bind(memory); }
  void forward(const Pass& pass, const Tensor<Scalar>& input, Tensor<Scalar>& output) override {
    graph_->forward(pass, input, output);
  }
  void backward(const Pass& pass, const Tensor<Scalar>& input, const Tensor<Scalar>& output,
                const Tensor<Scalar>& output_gradient, Tensor<Scalar>* input_gradient) override {
    graph_->backward(pass, input, output, output_gradient, input_gradient);
  }

 private:
  const std::string name_;
  const std::unique_ptr<LayerGraph<Scalar>> graph_;
};

template <class Scalar>
std::string names_of(const LayerList<Scalar>& layers) {
  std::vector<std::string> names;
  for (const auto& layer : layers) {
    if (layer != nullptr) names.push_back(layer->name());
  }
  return fmt::format("{}", fmt::join(names, "; "));
}

}  // namespace

template <class Scalar>
std::unique_ptr<Layer<Scalar>> sequence(LayerList<Scalar> layers) {
  std::string name = fmt::format("sequence ({})", names_of(layers));
  auto graph = std::make_unique<LayerGraph<Scalar>>("sequence");
  graph->add_output("", graph->add_row(std::move(layers), graph->add_input("", {}), kBodyBranch));
  return std::make_unique<Container<Scalar>>(std::move(name), std::move(graph));
}

template <class Scalar>
std::unique_ptr<Layer<Scalar>> residual(LayerList<Scalar> body, LayerList<Scalar> shortcut) {
  std::string name = fmt::format("residual ({})", names_of(body));
  if (!shortcut.empty()) name += fmt::format(", shortcut ({})", names_of(shortcut));
  auto graph = std::make_unique<LayerGraph<Scalar>>("residual");
  const std::size_t input = graph->add_input("", {});
  const std::size_t of_body = graph->add_row(std::move(body), input, kBodyBranch, "body ", "body.");
  std::size_t other = input;
  if (!shortcut.empty()) {
    other = graph->add_row(std::move(shortcut), input, kShortcutBranch, "shortcut ", "shortcut.");
  }
  graph->add_output("", graph->add_node({.kind = NodeKind::kSum, .sources = {of_body, other}}));
  return std::make_unique<Container<Scalar>>(std::move(name), std::move(graph));
}

template <class Scalar>
std::unique_ptr<Layer<Scalar>> graph_layer(GraphBuilder<Scalar> builder) {
  std::unique_ptr<LayerGraph<Scalar>> graph = std::move(builder).build();
  graph->nest("graph");
  std::string name = fmt::format("graph ({})", graph->describe_layers());
  return std::make_unique<Container<Scalar>>(std::move(name), std::move(graph));
}

template std::unique_ptr<Layer<float>> sequence<float>(LayerList<float>);
template std::unique_ptr<Layer<double>> sequence<double>(LayerList<double>);
template std::unique_ptr<Layer<float>> residual<float>(LayerList<float>, LayerList<float>);
template std::unique_ptr<Layer<double>> residual<double>(LayerList<double>, LayerList<double>);
template std::unique_ptr<Layer<float>> graph_layer<float>(GraphBuilder<float>);
template std::unique_ptr<Layer<double>> graph_layer<double>(GraphBuilder<double>);

}  // namespace farandole::trainer
