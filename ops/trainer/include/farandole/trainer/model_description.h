// SPDX-License-Identifier: Apache-2.0
// Models as text.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "farandole/core/export.h"
#include "farandole/trainer/tensor.h"

namespace farandole FARANDOLE_API {
namespace trainer {

/// A layer or operation of a model. A container such as `residual` is represented by the layers that it contains.
struct LayerWork {
  /// Path, as in the names of parameters: "0.conv2d", "8.residual.body.3.conv2d"; of an operation "8.residual.sum".
  std::string name;
  std::string kind;           ///< Layer::name, "conv2d 3x3, 32 channels"; of an operation "sum"
  Shape output;               ///< of a sample
  double forward_flops = 0;   ///< of a sample: Layer::flops; 0: no products, or a layer that does not name them
  double backward_flops = 0;  ///< of a sample: Layer::backward_flops, at the layer's place in the model
};

/// What a model is made of, as text; checkpoints keep it.
struct ModelDescription {
  Shape input, output;                   ///< of a sample
  std::vector<std::string> layers = {};  ///< a text per layer and operation: "'dense, 10 units', output 10"
  std::int64_t parameters = 0;           ///< number of parameters
  friend bool operator==(const ModelDescription&, const ModelDescription&) = default;
};
/// In one line: "28x28x1 to 10, 101770 parameters, 3 layers ('dense, 128 units', output 128; …)".
std::string describe(const ModelDescription& model);

}  // namespace trainer
}  // namespace FARANDOLE_API
