// SPDX-License-Identifier: Apache-2.0
// Layers of a program that break the rules of Layer.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>

#include "farandole/trainer/graph.h"
#include "farandole/trainer/layers.h"
#include "farandole/trainer/model.h"
#include "forwarding_layer.h"
#include "message_of.h"

namespace farandole::trainer {
namespace {

using farandole::test::message_of;
using testing::AllOf;
using testing::HasSubstr;

/// A relu that resizes a tensor which it must only write.
class Resizing final : public ForwardingLayer {
 public:
  enum class What { kNothing, kOutput, kInputGradient };
  explicit Resizing(What what) : ForwardingLayer(relu<float>()), what_(what) {}
  std::string name() const override { return "resizing relu"; }
  void forward(const Pass& pass, const Tensor<float>& input, Tensor<float>& output) override {
    ForwardingLayer::forward(pass, input, output);
    if (what_ == What::kOutput) output.resize(input.samples() - 1, input.shape());
  }
  void backward(const Pass& pass, const Tensor<float>& input, const Tensor<float>& output,
                const Tensor<float>& output_gradient, Tensor<float>* input_gradient) override {
    ForwardingLayer::backward(pass, input, output, output_gradient, input_gradient);
    if (what_ == What::kInputGradient) input_gradient->resize(input.samples(), {2, 2});
  }

 private:
  const What what_;
};

/// A row of three layers; the middle one is `what`'s.
Model<float> row_with(Resizing::What what) {
  LayerList<float> layers;
  layers.push_back(dense<float>(4));
  layers.push_back(std::make_unique<Resizing>(what));
  layers.push_back(dense<float>(2));
  return Model<float>({3}, std::move(layers));
}

/// The same layer at two nodes: backward of the first repeats its forward pass.
Model<float> shared_with(Resizing::What what) {
  GraphBuilder<float> graph;
  const Node input = graph.input("x", {4});
  const SharedLayer shared = graph.shared(std::make_unique<Resizing>(what));
  const Node first = graph.add(shared, graph.add(dense<float>(4), input));
  graph.output("y", graph.add(shared, graph.add(dense<float>(4), first)));
  return Model<float>(std::move(graph));
}

void train_once(Model<float> model) {
  Tensor<float> inputs(5, model.input_shape());
  std::fill(inputs.host().begin(), inputs.host().end(), 1.0F);
  model.initialize(1);
  const Tensor<float>& outputs = model.forward({.training = true}, inputs);
  Tensor<float> gradient(outputs.samples(), outputs.shape());
  std::fill(gradient.host().begin(), gradient.host().end(), 1.0F);
  model.backward({.training = true}, inputs, gradient);
}

TEST(OwnLayer, ThatKeepsTheSizesIsAccepted) {
  EXPECT_NO_THROW(train_once(row_with(Resizing::What::kNothing)));
  EXPECT_NO_THROW(train_once(shared_with(Resizing::What::kNothing)));
}

TEST(OwnLayer, ThatResizesItsOutputIsNamed) {
  const std::string expected =
      "(resizing relu): forward must not resize the output, which had 5 samples of shape 4, and has 4 of shape 4 now";
  EXPECT_EQ(message_of<InvalidArgument>([] { train_once(row_with(Resizing::What::kOutput)); }),
            "model: layer 1 " + expected);
  EXPECT_THAT(message_of<InvalidArgument>([] { train_once(shared_with(Resizing::What::kOutput)); }),
              HasSubstr(expected));
}

TEST(OwnLayer, ThatResizesTheGradientOfItsInputIsNamed) {
  const std::string expected =
      "(resizing relu): backward must not resize the input gradient, which had 5 samples of shape 4, and has 5 of "
      "shape 2x2 now";
  EXPECT_EQ(message_of<InvalidArgument>([] { train_once(row_with(Resizing::What::kInputGradient)); }),
            "model: layer 1 " + expected);
  EXPECT_THAT(message_of<InvalidArgument>([] { train_once(shared_with(Resizing::What::kInputGradient)); }),
              HasSubstr(expected));
}

/// A relu with a parameter and a statistic that it does not use.
class Described final : public ForwardingLayer {
 public:
  Described(ParameterSpec parameter, StatisticSpec statistic)
      : ForwardingLayer(relu<float>()), parameter_(std::move(parameter)), statistic_(std::move(statistic)) {}
  std::string name() const override { return "described"; }
  std::vector<ParameterSpec> parameters() const override { return {parameter_}; }
  std::vector<StatisticSpec> statistics() const override { return {statistic_}; }

 private:
  const ParameterSpec parameter_;
  const StatisticSpec statistic_;
};

std::string refusal(ParameterSpec parameter, StatisticSpec statistic = {.name = "mean", .count = 1}) {
  return message_of<InvalidArgument>([&] {
    LayerList<float> layers;
    layers.push_back(std::make_unique<Described>(std::move(parameter), std::move(statistic)));
    const Model<float> model({3}, std::move(layers));
  });
}

TEST(OwnLayer, WithWrongSpecsIsRefusedByName) {
  const std::string layer = "model: layer 0 (described) has ";
  EXPECT_EQ(refusal({.name = "weight", .shape = {3, -2}}),
            layer + "the parameter 'weight' of shape 3x-2; every extent must be at least 0");
  EXPECT_EQ(refusal({.name = "", .shape = {3}}), layer + "a parameter without a name; give each a name, as \"weight\"");
  EXPECT_EQ(refusal({.name = "w", .shape = {3}}, {.name = "", .count = 1}),
            layer + "a statistic without a name; give each a name, as \"weight\"");
  EXPECT_EQ(refusal({.name = "w", .shape = {3}}, {.name = "mean", .count = -1}),
            layer + "the statistic 'mean' of -1 numbers; it must have at least 0");
}

}  // namespace
}  // namespace farandole::trainer
