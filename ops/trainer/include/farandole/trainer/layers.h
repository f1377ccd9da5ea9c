// SPDX-License-Identifier: Apache-2.0
// The layers that come with the trainer. Each is instantiated for float and double.
#pragma once

#include <memory>

#include "farandole/core/export.h"
#include "farandole/trainer/layer.h"

namespace farandole FARANDOLE_API {
namespace trainer {

/// y = x W + b; W is {inputs, units}. An image is flattened, channels fastest.
template <class Scalar>
FARANDOLE_API std::unique_ptr<Layer<Scalar>> dense(std::int64_t units);

/// Which library computes a convolution. kAutomatic: oneDNN for float, Eigen for double.
enum class ConvolutionLibrary { kAutomatic, kOneDnn, kEigen };

struct Conv2dOptions {
  std::int64_t channels = 1;  ///< of the output
  std::int64_t kernel = 3;    ///< height and width
  std::int64_t stride = 1;
  std::int64_t padding = 0;  ///< zeros on each side
  ConvolutionLibrary library = ConvolutionLibrary::kAutomatic;
  /// 3x3 with stride 1 and multiples of 16 channels by Winograd's algorithm, where oneDNN has it for this processor:
  /// more than twice as fast, rounding errors about twice as large (docs/decisions/0003).
  bool winograd = true;
};
/// Two-dimensional convolution (correlation) with bias; weights are {kernel, kernel, inputs, channels}.
template <class Scalar>
FARANDOLE_API std::unique_ptr<Layer<Scalar>> conv2d(const Conv2dOptions& options);

/// Maximum over windows of `size` x `size`, moved by `size`; ties go to the first in row order.
template <class Scalar>
FARANDOLE_API std::unique_ptr<Layer<Scalar>> max_pool2d(std::int64_t size);
template <class Scalar>
FARANDOLE_API std::unique_ptr<Layer<Scalar>> average_pool2d(std::int64_t size);

template <class Scalar>
FARANDOLE_API std::unique_ptr<Layer<Scalar>> relu();

/// Drops each element with probability `rate` and scales the rest by 1/(1-rate). What is dropped depends on (seed,
/// training step, sample's place in the global batch, layer), never on the number of replicas.
template <class Scalar>
FARANDOLE_API std::unique_ptr<Layer<Scalar>> dropout(double rate);

struct BatchNormalizationOptions {
  double epsilon = 1e-5;
  double momentum = 0.1;
  bool synchronized = false;  ///< statistics over all replicas: two more allreduces per training step and layer
};
/// Normalises each channel (the last axis) over batch and positions; scale and shift are learned.
template <class Scalar>
FARANDOLE_API std::unique_ptr<Layer<Scalar>> batch_normalization(const BatchNormalizationOptions& options = {});

template <class Scalar>
using LayerList = std::vector<std::unique_ptr<Layer<Scalar>>>;

}  // namespace trainer
}  // namespace FARANDOLE_API
