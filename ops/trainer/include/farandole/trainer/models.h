// SPDX-License-Identifier: Apache-2.0
// Models by name.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "farandole/core/export.h"
#include "farandole/trainer/layers.h"

namespace farandole FARANDOLE_API {
namespace trainer {

/// Sizes of a model by name. A model ignores the options that it does not use.
struct ModelOptions {
  /// Shape of a sample, for which the layers are made: {height, width, channels}, or {length} for gpt.
  Shape input = {28, 28, 1};
  std::int64_t classes = 10;  ///< number of outputs; all but gpt
  /// cnn_bn, resnet18, resnet50: BatchNormalizationOptions::synchronized.
  bool synchronized_batch_normalization = false;
  std::int64_t vocabulary = 256;  ///< gpt: number of characters; inputs are in [0, vocabulary)
  std::int64_t blocks = 4;        ///< gpt
  std::int64_t units = 128;       ///< gpt: a multiple of `heads`
  std::int64_t heads = 4;         ///< gpt
  double dropout = 0;             ///< gpt: rate after the embedding and at the end of each branch; 0: none
};

/// The layers of a named model:
///
///     Model<float> model({224, 224, 3}, layers_of<float>("resnet50", {.input = {224, 224, 3}, .classes = 1000}));
///
/// - "mlp": dense 128, relu, dense.
/// - "cnn": conv 3x3 32, relu, conv 3x3 64, relu, max pool 2, dense 128, relu, dense.
/// - "cnn_bn": the cnn with batch normalisation after each convolution and dropout 0.25 before the last layer.
/// - "resnet18", "resnet50": residual nets (He, Zhang, Ren, Sun, CVPR 2016), with the parameters of torchvision's: at
///   1000 classes 11,689,512 and 25,557,032. Their first convolution is 7x7 with stride 2, followed by max pool 3x3
///   with stride 2; for images of at most 64 pixels on a side, such as CIFAR's, it is 3x3, without a pool. Blocks of
///   resnet50 have their stride in the 3x3 convolution.
/// - "gpt": a transformer that predicts the next character at each position, {length} gives {length, vocabulary}:
///   embedding, learned positions, `blocks` times a residual of layer normalisation and causal attention and a residual
///   of layer normalisation, dense 4 * units, gelu and dense units; then layer normalisation and dense vocabulary.
///   Every dense layer works per position (Radford et al., 2019).
/// @throws InvalidArgument  the name is unknown (lists the valid names), or the input has no shape for the model
template <class Scalar>
FARANDOLE_API LayerList<Scalar> layers_of(const std::string& model, const ModelOptions& options = {});
/// The names that `layers_of` accepts.
std::vector<std::string> model_names();

}  // namespace trainer
}  // namespace FARANDOLE_API
