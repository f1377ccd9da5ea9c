// SPDX-License-Identifier: Apache-2.0
// Layers that come with the trainer, each for float and double.
#pragma once

#include <memory>

#include "farandole/core/export.h"
#include "farandole/trainer/layer.h"

namespace farandole FARANDOLE_API {
namespace trainer {

/// Fully connected layer: y = x W + b, with W of shape {inputs, units}. An image is flattened, channels fastest.
template <class Scalar>
FARANDOLE_API std::unique_ptr<Layer<Scalar>> dense(std::int64_t units);

/// Library that computes a convolution. kAutomatic: oneDNN for float, Eigen for double.
enum class ConvolutionLibrary { kAutomatic, kOneDnn, kEigen };

struct Conv2dOptions {
  std::int64_t channels = 1;  ///< output channels
  std::int64_t kernel = 3;    ///< height and width of the kernel
  std::int64_t stride = 1;
  std::int64_t padding = 0;  ///< rows and columns of zeros on each side
  ConvolutionLibrary library = ConvolutionLibrary::kAutomatic;
  /// True: use Winograd's algorithm for 3x3 kernels with stride 1 whose numbers of input and output channels are
  /// multiples of 16, if oneDNN has the algorithm for this processor. Winograd's algorithm is more than twice as fast,
  /// and its rounding errors are about twice as large (docs/decisions/0003).
  bool winograd = true;
};
/// Two-dimensional convolution (correlation) with bias; weights are {kernel, kernel, inputs, channels}.
template <class Scalar>
FARANDOLE_API std::unique_ptr<Layer<Scalar>> conv2d(const Conv2dOptions& options);

/// Maximum over windows of `size` x `size` that do not overlap. If several elements equal the maximum, the first in row
/// order gets the gradient.
template <class Scalar>
FARANDOLE_API std::unique_ptr<Layer<Scalar>> max_pool2d(std::int64_t size);
/// Mean over windows of `size` x `size` that do not overlap.
template <class Scalar>
FARANDOLE_API std::unique_ptr<Layer<Scalar>> average_pool2d(std::int64_t size);

/// max(x, 0), element by element.
template <class Scalar>
FARANDOLE_API std::unique_ptr<Layer<Scalar>> relu();

/// In training, sets each element to 0 with probability `rate`, and multiplies every other element by 1/(1-rate). In
/// prediction, copies the input. Which elements become 0 depends on (seed, training step, position of the sample in the
/// global batch, layer), never on the number of replicas.
template <class Scalar>
FARANDOLE_API std::unique_ptr<Layer<Scalar>> dropout(double rate);

struct BatchNormalizationOptions {
  double epsilon = 1e-5;  ///< added to the variance, so that the division by its square root is defined
  double momentum = 0.1;  ///< moving += momentum * (batch - moving), in each training step
  /// True: compute the statistics over the batches of all replicas, at the cost of two more allreduces per training
  /// step and layer. Has this effect only with TrainerOptions::synchronized_layers.
  bool synchronized = false;
};
/// Normalises each channel (the last axis) over batch and positions, then applies a learned scale and shift.
template <class Scalar>
FARANDOLE_API std::unique_ptr<Layer<Scalar>> batch_normalization(const BatchNormalizationOptions& options = {});

/// The layers of a model, in order.
template <class Scalar>
using LayerList = std::vector<std::unique_ptr<Layer<Scalar>>>;

}  // namespace trainer
}  // namespace FARANDOLE_API
