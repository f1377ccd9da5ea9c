// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "farandole/core/error.h"
#include "farandole/trainer/model.h"

namespace farandole::trainer {
namespace {

constexpr std::int64_t kClasses = 10;

template <class Scalar>
LayerList<Scalar> mlp() {
  LayerList<Scalar> layers;
  layers.push_back(dense<Scalar>(128));
  layers.push_back(relu<Scalar>());
  layers.push_back(dense<Scalar>(kClasses));
  return layers;
}

template <class Scalar>
LayerList<Scalar> cnn(bool normalized, bool synchronized) {
  LayerList<Scalar> layers;
  for (const std::int64_t channels : {32, 64}) {
    layers.push_back(conv2d<Scalar>({.channels = channels}));
    if (normalized) layers.push_back(batch_normalization<Scalar>({.synchronized = synchronized}));
    layers.push_back(relu<Scalar>());
  }
  layers.push_back(max_pool2d<Scalar>(2));
  layers.push_back(dense<Scalar>(128));
  layers.push_back(relu<Scalar>());
  if (normalized) layers.push_back(dropout<Scalar>(0.25));
  layers.push_back(dense<Scalar>(kClasses));
  return layers;
}

}  // namespace

std::vector<std::string> model_names() {
  return {"mlp", "cnn", "cnn_bn"};
}

template <class Scalar>
LayerList<Scalar> layers_of(const std::string& model, bool synchronized_batch_normalization) {
  if (model == "mlp") return mlp<Scalar>();
  if (model == "cnn") return cnn<Scalar>(false, false);
  if (model == "cnn_bn") return cnn<Scalar>(true, synchronized_batch_normalization);
  throw InvalidArgument(
      fmt::format("no model is named '{}'; expected one of {}", model, fmt::join(model_names(), ", ")));
}
template LayerList<float> layers_of<float>(const std::string&, bool);
template LayerList<double> layers_of<double>(const std::string&, bool);

}  // namespace farandole::trainer
