// SPDX-License-Identifier: Apache-2.0
// Graphs of layers: values, gradients, names, and the errors of building.
#include "farandole/trainer/graph.h"

#include <algorithm>
#include <memory>
#include <set>

#include "farandole/trainer/model.h"
#include "layer_harness.h"

namespace farandole::trainer {
namespace {

template <class Scalar>
Tensor<Scalar> tensor_of(std::int64_t samples, const Shape& shape, const std::vector<Scalar>& values) {
  Tensor<Scalar> tensor(samples, shape);
  std::copy(values.begin(), values.end(), tensor.data());
  return tensor;
}

template <class Scalar>
std::vector<Scalar> values_of(const Tensor<Scalar>& tensor) {
  return {tensor.host().begin(), tensor.host().end()};
}

using Builder = GraphBuilder<double>;

/// The graph as a layer with the given parameters, checked by inputs and parameters.
void check_graph(Builder graph, const Shape& input, std::int64_t samples = 3) {
  LayerHarness<double> harness(graph_layer(std::move(graph)), input);
  check_gradients(harness, normal_tensor<double>(samples, input, 40));
}

TEST(Graph, OperationsComputeByElementAndChannel) {
  Builder graph;
  const Node x = graph.input("x", {2, 2}), y = graph.input("y", {2, 1});
  const Node both = graph.concatenate({x, y});
  EXPECT_EQ(graph.shape(both), Shape({2, 3}));
  const Node last = graph.slice(both, 1, 2);
  graph.output("sum", graph.sum({x, last, x}));
  graph.output("product", graph.multiply({x, last, x}));
  graph.output("both", both);
  LayerHarness<double> harness(graph_layer(std::move(graph)), {6});
  ASSERT_EQ(harness.output_shape, Shape({14}));
  const auto input = tensor_of<double>(2, {6},
                                       {1, 2, 3, 4, 10, 20,  //
                                        5, 6, 7, 8, 30, 40});
  EXPECT_EQ(values_of(harness.forward(input)),
            (std::vector<double>{4,  14, 10, 28, 2,   40,   36,  320,  1, 2, 10, 3, 4, 20,  //
                                 16, 42, 22, 56, 150, 1080, 392, 2560, 5, 6, 30, 7, 8, 40}));
}

TEST(Graph, GradientsOfSkips) {
  Builder graph;
  const Node x = graph.input("x", {5});
  const Node a = graph.add(layers<double>(dense<double>(5), hyperbolic_tangent<double>()), x);
  const Node b = graph.add(dense<double>(5), a);
  const Node c = graph.sum({x, a, b});
  graph.output("y", graph.sum({graph.add(dense<double>(5), c), a, c, x}));
  check_graph(std::move(graph), {5});
}

TEST(Graph, GradientsOfSumsOfOneNode) {
  Builder graph;
  const Node x = graph.input("x", {4});
  const Node twice = graph.sum({x, x});
  graph.output("y", graph.sum({twice, graph.multiply({twice, twice, x}), x}));
  check_graph(std::move(graph), {4});
}

TEST(Graph, GradientsOfAUNet) {
  Builder graph;
  const Node image = graph.input("image", {4, 4, 2});
  const Node fine =
      graph.add(layers<double>(conv2d<double>({.channels = 3, .padding = 1}), hyperbolic_tangent<double>()), image);
  const Node coarse = graph.add(
      layers<double>(max_pool2d<double>(2), conv2d<double>({.channels = 2, .padding = 1}), upsample2d<double>(2)),
      fine);
  const Node both = graph.concatenate({fine, coarse, fine});
  EXPECT_EQ(graph.shape(both), Shape({4, 4, 8}));
  graph.output("mask", graph.add(conv2d<double>({.channels = 1, .kernel = 1}), both));
  check_graph(std::move(graph), {4, 4, 2}, 2);
}

TEST(Graph, GradientsOfSlicesAndProducts) {
  Builder graph;
  const Node x = graph.input("x", {2, 5});
  const Node left = graph.slice(x, 0, 3), right = graph.slice(x, 1, 3);  // overlap
  const Node gate = graph.add(sigmoid<double>(), right);
  graph.output("y", graph.concatenate({graph.multiply({left, gate, right}), graph.slice(gate, 2, 1)}));
  check_graph(std::move(graph), {2, 5});
}

/// A layer that keeps values of its last forward pass, and draws random numbers.
std::unique_ptr<Layer<double>> tower() {
  return sequence<double>(layers<double>(dense<double>(6), layer_normalization<double>(), dropout<double>(0.3),
                                         reshape<double>({2, 3}), attention<double>({})));
}

TEST(Graph, GradientsOfSharedLayersAddUp) {
  Builder graph;
  const Node left = graph.input("left", {4}), right = graph.input("right", {4});
  const SharedLayer shared = graph.shared(tower(), "tower");
  const Node product = graph.multiply({graph.add(shared, left), graph.add(shared, right)});
  const Node third = graph.add(shared, graph.add(dense<double>(4), product));
  graph.output("y", graph.sum({product, third}));
  check_graph(std::move(graph), {8}, 4);
}

TEST(Graph, GradientsOfSeveralInputsAndOutputs) {
  Builder graph;
  const Node image = graph.input("image", {3, 3, 1}), age = graph.input("age", {2});
  const Node seen = graph.add(
      layers<double>(conv2d<double>({.channels = 2, .kernel = 2}), gelu<double>(), global_average_pool<double>()),
      image);
  const Node all = graph.add(dense<double>(4), graph.concatenate({seen, age}));
  graph.output("all", all);
  graph.output("class", graph.add(dense<double>(3), all));
  graph.output("again", all);
  check_graph(std::move(graph), {11});
}

TEST(Graph, EveryUseOfALayerDrawsItsOwnNumbers) {
  GraphBuilder<float> graph;
  const Node x = graph.input("x", {400});
  const SharedLayer drop = graph.shared(dropout<float>(0.5));
  graph.output("y", graph.add(drop, graph.add(drop, x)));
  LayerHarness<float> harness(graph_layer(std::move(graph)), {400});
  Tensor<float> input(1, {400});
  std::fill(input.host().begin(), input.host().end(), 1.0F);
  const std::vector<float> values = values_of(harness.forward(input));  // equal numbers would keep half of the elements
  EXPECT_NEAR(static_cast<double>(std::count(values.begin(), values.end(), 4.0F)), 100, 52);
}

Model<double> siamese() {
  Builder graph;
  const Node left = graph.input("left", {4}), right = graph.input("right", {4});
  const SharedLayer shared = graph.shared(dense<double>(3), "tower");
  const Node both = graph.concatenate({graph.add(shared, left), graph.add(shared, right)}, "both");
  graph.output("y", graph.add(dense<double>(2), graph.add(relu<double>(), both)));
  return Model<double>(std::move(graph));
}

TEST(Graph, ModelNamesParametersAndPorts) {
  Model<double> model = siamese();
  std::vector<std::string> names;
  for (const NamedSpan& span : model.parameter_layout()) names.push_back(span.name);
  EXPECT_EQ(names, (std::vector<std::string>{"tower.weight", "tower.bias", "2.dense.weight", "2.dense.bias"}));
  EXPECT_EQ(model.inputs(), (std::vector<GraphPort>{{"left", {4}}, {"right", {4}}}));
  EXPECT_EQ(model.outputs(), (std::vector<GraphPort>{{"y", {2}}}));
  EXPECT_EQ(model.input_shape(), Shape({8}));
  const std::string tower = "layer 'tower' (dense, 3 units)";
  EXPECT_EQ(
      model.description().layers,
      (std::vector<std::string>{
          "input 'left' of shape 4", "input 'right' of shape 4", "'dense, 3 units' of input 'left', output 3",
          tower + " again of input 'right', output 3", "concatenate 'both' of " + tower + ", " + tower + ", output 6",
          "'relu', output 6", "'dense, 2 units', output 2"}));
}

TEST(Graph, TellsWhenGradientsAreFinal) {
  Model<double> model = siamese();
  model.initialize(kTestSeed);
  const auto input = normal_tensor<double>(3, {8}, 50), gradient = normal_tensor<double>(3, {2}, 51);
  model.forward({.training = true}, input);
  model.backward({.training = true}, input, gradient);
  const std::vector<double> expected(model.gradients().host().begin(), model.gradients().host().end());
  std::fill(model.gradients().host().begin(), model.gradients().host().end(), NAN);
  model.forward({.training = true}, input);
  std::vector<std::size_t> ready;
  model.backward({.training = true}, input, gradient, [&](std::size_t index) {
    ready.push_back(index);
    const NamedSpan& span = model.parameter_layout()[index];
    for (std::size_t i = span.first; i < span.first + span.count; ++i)
      EXPECT_EQ(model.gradients().host()[i], expected[i]);
  });
  EXPECT_EQ(ready, (std::vector<std::size_t>{3, 2, 1, 0}));
}

/// Passes its input on, and remembers where its output's gradients were.
class GradientRecorder final : public Layer<double> {
 public:
  explicit GradientRecorder(std::set<const double*>& places) : places_(places) {}
  std::string name() const override { return "gradient recorder"; }
  Shape prepare(const Shape& input) override { return input; }
  void forward(const Pass&, const Tensor<double>& input, Tensor<double>& output) override {
    std::copy(input.host().begin(), input.host().end(), output.data());
  }
  void backward(const Pass&, const Tensor<double>&, const Tensor<double>&, const Tensor<double>& output_gradient,
                Tensor<double>* input_gradient) override {
    places_.insert(output_gradient.data());
    if (input_gradient == nullptr) return;
    std::copy(output_gradient.host().begin(), output_gradient.host().end(), input_gradient->data());
  }

 private:
  std::set<const double*>& places_;
};

TEST(Graph, ARowOfLayersNeedsMemoryForTwoGradients) {
  std::set<const double*> places;
  Builder graph;
  Node node = graph.input("x", {5});
  for (int layer = 0; layer < 6; ++layer) node = graph.add(std::make_unique<GradientRecorder>(places), node);
  graph.output("y", node);
  LayerHarness<double> harness(graph_layer(std::move(graph)), {5});
  const auto input = normal_tensor<double>(2, {5}, 60), gradient = normal_tensor<double>(2, {5}, 61);
  harness.forward(input);
  EXPECT_EQ(values_of(harness.backward(input, gradient)), values_of(gradient));
  EXPECT_EQ(places.size(), 3U) << "the caller's gradient of the output, and two tensors";
}

TEST(Graph, DescribeIsATable) {
  EXPECT_EQ(siamese().describe(),
            "layer                 of            output  parameters  FLOPs\n"
            "input left                               4\n"
            "input right                              4\n"
            "tower dense, 3 units  left               3          15     24\n"
            "tower dense, 3 units  right              3      shared     24\n"
            "both concatenate      tower, tower       6\n"
            "1 relu                                   6           0      0\n"
            "2 dense, 2 units                         2          14     24\n"
            "total                                    2          29     72\n");
  Model<float> row({28, 28, 1}, layers<float>(conv2d<float>({.channels = 8}), relu<float>(), dense<float>(10)));
  EXPECT_EQ(row.describe(),
            "layer                      output  parameters   FLOPs\n"
            "input                     28x28x1\n"
            "0 conv2d 3x3, 8 channels  26x26x8          80  97.3 K\n"
            "1 relu                    26x26x8           0       0\n"
            "2 dense, 10 units              10      54,090   108 K\n"
            "total                          10      54,170   206 K\n");
}

TEST(Graph, WrongNodesAreNamed) {
  const auto fails = [](const std::function<void(Builder&, Node)>& call, const std::vector<std::string>& parts) {
    expect_invalid(
        [&] {
          Builder graph;
          const Node x = graph.input("x", {4, 4, 2});
          call(graph, x);
          graph.output("y", graph.add(relu<double>(), x));
          Model<double> model(std::move(graph));
        },
        parts);
  };
  fails([](Builder& g, Node x) { g.add(conv2d<double>({.kernel = 5}), x, "wide"); },
        {"layer 'wide' does not fit input 'x'", "conv2d 5x5", "4x4x2"});
  fails([](Builder& g, Node x) { g.add(conv2d<double>({}), g.add(dense<double>(3), x)); },
        {"layer 1 does not fit layer 0 (dense, 3 units)", "the input is 3"});
  fails(
      [](Builder& g, Node x) {
        g.sum({x, g.add(dense<double>(3), x)}, "both");
      },
      {"sum 'both' expects nodes of the same shape", "input 'x' gives 4x4x2", "layer 0 (dense, 3 units) gives 3"});
  fails(
      [](Builder& g, Node x) {
        g.concatenate({x, g.add(max_pool2d<double>(2), x)});
      },
      {"concatenate (node 2) expects", "last extent", "gives 4x4x2", "gives 2x2x2"});
  fails([](Builder& g, Node x) { g.concatenate({x, g.add(flatten<double>(), x)}); }, {"last extent", "gives 32"});
  fails([](Builder& g, Node x) { g.slice(x, 1, 2); }, {"slice (node 1) takes channels 1 to 2 of input 'x'", "4x4x2"});
  fails([](Builder& g, Node x) { g.slice(x, 0, 0); }, {"slice (node 1)"});
  fails([](Builder& g, Node x) { g.sum({x}); }, {"1 nodes for sum", "at least two"});
  fails([](Builder& g, Node) { g.multiply({}); }, {"0 nodes for multiply"});
  fails([](Builder& g, Node) { g.input("x", {1}); }, {"two nodes are named 'x'"});
  fails([](Builder& g, Node x) { g.add(relu<double>(), x, "x"); }, {"two nodes are named 'x'"});
  fails([](Builder& g, Node) { g.shared(relu<double>(), "x"); }, {"two nodes are named 'x'"});
  fails([](Builder& g, Node x) { g.add(relu<double>(), x, "1.2"); }, {"'1.2' is no name"});
  fails([](Builder& g, Node) { g.input("", {1}); }, {"'' is no name of an input"});
  fails([](Builder& g, Node) { g.input("none", {0}); }, {"input 'none'", "without elements"});
  fails([](Builder& g, Node x) { g.output("y", x); }, {"output 'y' is input 'x'"});
  fails([](Builder& g, Node x) { g.output("y", g.add(relu<double>(), x)); }, {"two outputs are named 'y'"});
  fails([](Builder& g, Node x) { g.add(std::unique_ptr<Layer<double>>(), x); }, {"layer 0 is null"});
  fails([](Builder& g, Node x) { g.add(LayerList<double>(), x); }, {"a list without layers"});
  fails([](Builder& g, Node) { g.add(relu<double>(), Builder().input("other", {1})); }, {"has not returned"});
  fails([](Builder& g, Node x) { g.add(Builder().shared(relu<double>()), x); }, {"has not returned"});
}

TEST(Graph, WrongUsesOfSharedLayersAreNamed) {
  Builder graph;
  const Node x = graph.input("x", {4}), y = graph.input("y", {3});
  const SharedLayer one = graph.shared(dense<double>(2), "one"), many = graph.shared(batch_normalization<double>());
  graph.add(one, x);
  expect_invalid([&] { graph.add(one, y); },
                 {"layer 'one' does not fit input 'y'", "samples of shape 4, this use has 3", "shared layer"});
  graph.add(many, x);
  expect_invalid([&] { graph.add(many, x); }, {"layer 1 (batch_normalization) has batch statistics", "one node only"});
}

TEST(Graph, UnfinishedGraphsAreRefused) {
  expect_invalid([] { Model<double> model{Builder()}; }, {"no input"});
  const auto build = [](const std::function<void(Builder&, Node)>& more) {
    Builder graph;
    const Node x = graph.input("x", {4});
    graph.output("y", graph.add(dense<double>(2), x));
    more(graph, x);
    Model<double> model(std::move(graph));
  };
  EXPECT_NO_THROW(build([](Builder&, Node) {}));
  expect_invalid(
      [] {
        Builder graph;
        graph.input("x", {4});
        Model<double> model(std::move(graph));
      },
      {"no output"});
  expect_invalid([&] { build([](Builder& g, Node x) {
                         g.sum({x, x}, "lost");
                       }); },
                 {"no output depends on sum 'lost', of shape 4"});
  expect_invalid([&] { build([](Builder& g, Node x) { g.add(dense<double>(7), x); }); },
                 {"no output depends on layer 1 (dense, 7 units), of shape 7"});
  expect_invalid([&] { build([](Builder& g, Node) { g.input("unused", {2}); }); },
                 {"no output depends on input 'unused', of shape 2"});
  expect_invalid([&] { build([](Builder& g, Node) { g.shared(relu<double>(), "idle"); }); },
                 {"no node uses the shared layer 'idle' (relu)"});
  Builder graph;
  const Builder taken(std::move(graph));
  expect_invalid([&] { graph.input("x", {1}); }, {"moved from"});  // NOLINT(bugprone-use-after-move)
}

TEST(Graph, AsALayerItTakesItsInputsOneBehindTheOther) {
  GraphBuilder<float> graph;
  const Node x = graph.input("x", {2}), y = graph.input("y", {3});
  graph.output("z", graph.concatenate({x, y}));
  const std::unique_ptr<Layer<float>> layer = graph_layer(std::move(graph));
  EXPECT_EQ(layer->prepare({5}), Shape({5}));
  expect_invalid([&] { layer->prepare({4}); }, {"one behind the other, 5", "the input is 4"});
}

}  // namespace
}  // namespace farandole::trainer
