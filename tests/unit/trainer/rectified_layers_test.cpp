// SPDX-License-Identifier: Apache-2.0
// Layers that compute the ReLU behind them: the bits of two layers, and in which graphs they do.
#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "farandole/trainer/graph.h"
#include "farandole/trainer/model.h"
#include "forwarding_layer.h"
#include "layer_harness.h"
#include "step_profiler.h"

namespace farandole::trainer {
namespace {

/// Hides from the graph what it contains.
class HiddenRelu final : public ForwardingLayer {
 public:
  HiddenRelu() : ForwardingLayer(relu<float>()) {}
  std::string name() const override { return "hidden relu"; }
};

/// Everything that two training steps and a prediction compute.
struct PassResults {
  std::vector<float> outputs, gradients, statistics;
  bool operator==(const PassResults&) const = default;
};

template <class View>
void append(std::vector<float>& to, const View& values) {
  to.insert(to.end(), values.begin(), values.end());
}

PassResults results_of(Model<float>& model) {
  PassResults results;
  model.initialize(7);
  for (const std::int64_t samples : {5, 3, 0}) {
    const auto input = normal_tensor<float>(samples, model.input_shape(), 50 + static_cast<std::uint64_t>(samples));
    append(results.outputs, model.forward({.training = true}, input).host());
    model.backward({.training = true}, input, normal_tensor<float>(samples, model.output_shape(), 60));
    append(results.gradients, model.gradients().host());
    append(results.statistics, model.batch_statistics().host());
    append(results.outputs, model.forward({}, input).host());
  }
  return results;
}

/// The rows of the model whose forward and backward pass took time.
std::vector<std::string> rows_with_time(Model<float>& model) {
  StepProfiler profiler(model.work().size());
  const auto input = normal_tensor<float>(4, model.input_shape(), 70);
  const auto gradient = normal_tensor<float>(4, model.output_shape(), 71);
  for (int k = 0; k <= StepProfiler::kWarmUp; ++k) {
    profiler.begin_step();
    const Pass pass{.training = true, .profiler = &profiler};
    model.forward(pass, input);
    model.backward(pass, input, gradient);
    profiler.end_step(4);
  }
  std::vector<std::string> rows;
  for (const LayerProfile& layer : profiler.report(model.work()).layers) {
    if (layer.forward > 0 && layer.backward > 0) rows.push_back(layer.layer.name);
  }
  return rows;
}

using MakeLayer = std::function<std::unique_ptr<Layer<float>>()>;

LayerList<float> net(const MakeLayer& activation) {
  return layers<float>(
      conv2d<float>({.channels = 16, .padding = 1}), activation(), conv2d<float>({.channels = 24}), activation(),
      conv2d<float>({.channels = 16, .padding = 1, .bias = false}), batch_normalization<float>(), activation(),
      residual<float>(layers<float>(conv2d<float>({.channels = 16, .padding = 1}), batch_normalization<float>(),
                                    activation(), conv2d<float>({.channels = 16, .padding = 1}))),
      activation(), dense<float>(6), activation(), dense<float>(3));
}

TEST(RectifiedLayers, HaveTheBitsOfTwoLayers) {
  for (const std::int64_t channels : {1, 3, 16}) {
    const Shape input{9, 7, channels};
    Model<float> one(input, net(relu<float>)), two(input, net([] { return std::make_unique<HiddenRelu>(); }));
    EXPECT_TRUE(results_of(one) == results_of(two)) << channels << " input channels";
  }
}

TEST(RectifiedLayers, ANormalizationComputesTheReluBehindIt) {
  Model<float> model({64}, layers<float>(batch_normalization<float>(), relu<float>(), dense<float>(3)));
  EXPECT_EQ(rows_with_time(model), (std::vector<std::string>{"0.batch_normalization", "2.dense"}));
  Model<float> ends({64}, layers<float>(dense<float>(64), batch_normalization<float>(), relu<float>()));
  EXPECT_EQ(rows_with_time(ends), (std::vector<std::string>{"0.dense", "1.batch_normalization"}));
}

TEST(RectifiedLayers, OtherActivationsAndLayersStayOnTheirOwn) {
  Model<float> model({64}, layers<float>(batch_normalization<float>(), leaky_relu<float>(), dense<float>(64),
                                         relu<float>(), layer_normalization<float>(), relu<float>()));
  EXPECT_EQ(rows_with_time(model).size(), 6U);
}

/// A normalisation whose value goes to a ReLU and to `other(graph, value, relu)`.
GraphBuilder<float> with_two_users(const MakeLayer& activation,
                                   const std::function<void(GraphBuilder<float>&, Node, Node)>& other) {
  GraphBuilder<float> graph;
  const Node value = graph.add(batch_normalization<float>(), graph.input("input", {64}));
  other(graph, value, graph.add(activation(), value));
  return graph;
}

TEST(RectifiedLayers, AValueWithOtherUsersStays) {
  const auto hidden = [] { return std::make_unique<HiddenRelu>(); };
  const std::function<void(GraphBuilder<float>&, Node, Node)> users[] = {
      [](GraphBuilder<float>& graph, Node value, Node relu) {
        graph.output("output", graph.sum({value, relu}));
      },
      [](GraphBuilder<float>& graph, Node value, Node relu) {
        graph.output("value", value);
        graph.output("relu", relu);
      },
      [](GraphBuilder<float>& graph, Node value, Node first) {
        graph.output("output", graph.multiply({first, graph.add(relu<float>(), value)}));
      }};
  for (const auto& other : users) {
    Model<float> one(with_two_users(relu<float>, other)), two(with_two_users(hidden, other));
    EXPECT_TRUE(results_of(one) == results_of(two));
    const std::vector<std::string> rows = rows_with_time(one);
    EXPECT_NE(std::ranges::find(rows, "1.relu"), rows.end());
  }
}

TEST(RectifiedLayers, ASharedConvolutionStays) {
  const auto graph_with = [](const MakeLayer& activation) {
    GraphBuilder<float> graph;
    const SharedLayer shared = graph.shared(conv2d<float>({.channels = 16, .padding = 1}), "shared");
    const Node first = graph.add(activation(), graph.add(shared, graph.input("input", {6, 6, 16})));
    graph.output("output", graph.add(activation(), graph.add(shared, first)));
    return graph;
  };
  Model<float> one(graph_with(relu<float>)), two(graph_with([] { return std::make_unique<HiddenRelu>(); }));
  EXPECT_TRUE(results_of(one) == results_of(two));
  EXPECT_EQ(rows_with_time(one).size(), 4U);
}

}  // namespace
}  // namespace farandole::trainer
