// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <functional>
#include <iterator>
#include <map>
#include <string>

#include "case.h"
#include "farandole/trainer/layers.h"
#include "farandole/trainer/models.h"

namespace farandole::trainer::test {
namespace {

using LayerPointer = std::unique_ptr<Layer<double>>;
using Maker = std::function<LayerPointer(Fields&)>;

Maker without_options(LayerPointer (*make)()) {
  return [make](Fields&) { return make(); };
}

LayerPointer make_dense(Fields& fields) {
  DenseOptions options;
  fields.read("per_position", options.per_position);
  fields.read("bias", options.bias);
  return dense<double>(fields.get<std::int64_t>("units"), options);
}

LayerPointer make_conv2d(Fields& fields) {
  Conv2dOptions options;
  fields.read("channels", options.channels);
  fields.read("kernel", options.kernel);
  fields.read("stride", options.stride);
  fields.read("padding", options.padding);
  fields.read("bias", options.bias);
  return conv2d<double>(options);
}

LayerPointer make_depthwise_conv2d(Fields& fields) {
  DepthwiseConv2dOptions options;
  fields.read("kernel", options.kernel);
  fields.read("stride", options.stride);
  fields.read("padding", options.padding);
  return depthwise_conv2d<double>(options);
}

/// A pool whose windows do not overlap is made of its size only.
Maker pooling(LayerPointer (*of_size)(std::int64_t), LayerPointer (*of_options)(const Pool2dOptions&)) {
  return [=](Fields& fields) {
    Pool2dOptions options{.size = fields.get<std::int64_t>("size")};
    const bool strides = fields.read("stride", options.stride);
    return fields.read("padding", options.padding) || strides ? of_options(options) : of_size(options.size);
  };
}

LayerPointer make_batch_normalization(Fields& fields) {
  BatchNormalizationOptions options;
  fields.read("epsilon", options.epsilon);
  fields.read("momentum", options.momentum);
  fields.read("synchronized", options.synchronized);
  return batch_normalization<double>(options);
}

NormalizationOptions normalization_options(Fields& fields) {
  NormalizationOptions options;
  fields.read("epsilon", options.epsilon);
  fields.read("affine", options.affine);
  return options;
}

LayerPointer make_attention(Fields& fields) {
  AttentionOptions options;
  fields.read("heads", options.heads);
  fields.read("causal", options.causal);
  return attention<double>(options);
}

LayerPointer make_leaky_relu(Fields& fields) {
  double slope = 0;
  return fields.read("slope", slope) ? leaky_relu<double>(slope) : leaky_relu<double>();
}

LayerPointer make_positional_encoding(Fields& fields) {
  const bool learned = fields.get<bool>("learned");
  return positional_encoding<double>(learned ? PositionalEncoding::kLearned : PositionalEncoding::kSinusoidal);
}

LayerPointer make_residual(Fields& fields) {
  Json shortcut = Json::array();
  fields.read("shortcut", shortcut);
  return residual<double>(make_layers(fields.get<Json>("body")), make_layers(shortcut));
}

LayerPointer make_graph_layer(Fields& fields) {
  std::vector<DropoutPlace> dropouts;
  LayerPointer layer = graph_layer(make_graph(fields.get<Json>("graph"), dropouts));
  if (!dropouts.empty()) throw InvalidArgument("a case cannot record the factors of a dropout within a graph_layer");
  return layer;
}

const std::map<std::string, Maker>& makers() {
  static const std::map<std::string, Maker> all{
      {"dense", make_dense},
      {"conv2d", make_conv2d},
      {"depthwise_conv2d", make_depthwise_conv2d},
      {"max_pool2d", pooling(max_pool2d<double>, max_pool2d<double>)},
      {"average_pool2d", pooling(average_pool2d<double>, average_pool2d<double>)},
      {"upsample2d", [](Fields& fields) { return upsample2d<double>(fields.get<std::int64_t>("factor")); }},
      {"global_average_pool", without_options(global_average_pool<double>)},
      {"flatten", without_options(flatten<double>)},
      {"reshape", [](Fields& fields) { return reshape<double>(fields.get<Shape>("shape")); }},
      {"relu", without_options(relu<double>)},
      {"leaky_relu", make_leaky_relu},
      {"gelu", without_options(gelu<double>)},
      {"silu", without_options(silu<double>)},
      {"sigmoid", without_options(sigmoid<double>)},
      {"hyperbolic_tangent", without_options(hyperbolic_tangent<double>)},
      {"dropout", [](Fields& fields) { return dropout<double>(fields.get<double>("rate")); }},
      {"batch_normalization", make_batch_normalization},
      {"layer_normalization",
       [](Fields& fields) { return layer_normalization<double>(normalization_options(fields)); }},
      {"group_normalization",
       [](Fields& fields) {
         const auto groups = fields.get<std::int64_t>("groups");
         return group_normalization<double>(groups, normalization_options(fields));
       }},
      {"rms_normalization", [](Fields& fields) { return rms_normalization<double>(normalization_options(fields)); }},
      {"embedding",
       [](Fields& fields) {
         const auto vocabulary = fields.get<std::int64_t>("vocabulary");
         return embedding<double>(vocabulary, fields.get<std::int64_t>("units"));
       }},
      {"positional_encoding", make_positional_encoding},
      {"attention", make_attention},
      {"sequence", [](Fields& fields) { return sequence<double>(make_layers(fields.get<Json>("layers"))); }},
      {"residual", make_residual},
      {"graph_layer", make_graph_layer}};
  return all;
}

LayerList<double> make_named_model(const std::string& name, Fields& fields) {
  ModelOptions options;
  options.input = fields.get<Shape>("input");
  fields.read("classes", options.classes);
  fields.read("vocabulary", options.vocabulary);
  fields.read("blocks", options.blocks);
  fields.read("units", options.units);
  fields.read("heads", options.heads);
  return layers_of<double>(name, options);
}

}  // namespace

LayerList<double> make_layers(const Json& list) {
  const auto models = model_names();
  LayerList<double> layers;
  for (const Json& object : list) {
    Fields fields(object, "a layer");
    const auto kind = fields.get<std::string>("kind");
    if (std::find(models.begin(), models.end(), kind) != models.end()) {
      auto of_model = make_named_model(kind, fields);
      std::move(of_model.begin(), of_model.end(), std::back_inserter(layers));
    } else {
      const auto maker = makers().find(kind);
      if (maker == makers().end()) throw InvalidArgument(fmt::format("there is no layer '{}'", kind));
      layers.push_back(maker->second(fields));
    }
    fields.finish();
  }
  return layers;
}

}  // namespace farandole::trainer::test
