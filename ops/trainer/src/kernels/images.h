// SPDX-License-Identifier: Apache-2.0
// The computations of layers on images except conv2d, part of Kernels. Channels are last. The layers: pooling.cpp,
// strided_pooling.cpp, reshape.cpp, depthwise_conv2d.cpp, upsampling.cpp.
#pragma once

#include <cstdint>

#include "convolution.h"
#include "farandole/trainer/execution.h"
#include "kernels/pooling_windows.h"
#include "kernels/strided_windows.h"

namespace farandole::trainer {

/// Sizes of a batch of samples with positions, such as pixels.
struct PositionSizes {
  std::int64_t samples = 0, positions = 0, channels = 0;
};

/// Each pixel of an image of this height and width becomes a square of `factor` * `factor` pixels.
struct Upsampling {
  std::int64_t factor = 0, height = 0, width = 0, channels = 0;

  std::int64_t input_elements(std::int64_t samples) const { return samples * height * width * channels; }
  std::int64_t output_elements(std::int64_t samples) const { return input_elements(samples) * factor * factor; }
};

/// As Kernels: all addresses lie in one memory. Gradients of the input are overwritten, and get their terms in the
/// order of the output's pixels.
template <class Scalar>
class ImageKernels {
 public:
  virtual ~ImageKernels() = default;

  // Pooling over windows that do not overlap.

  virtual void pool(Pooling pooling, const PoolingWindows& windows, std::int64_t samples, const Scalar* x,
                    Scalar* y) const = 0;
  /// A maximum's gradient goes to the first maximum in row order.
  virtual void pool_backward(Pooling pooling, const PoolingWindows& windows, std::int64_t samples, const Scalar* x,
                             const Scalar* y, const Scalar* dy, Scalar* dx) const = 0;

  // Pooling over windows that overlap, or that reach over the edge. A mean is that of the pixels inside the image.

  /// @param places  gets the pixel in its image of each maximum, the first in row order
  virtual void max_pool(const StridedWindows& windows, std::int64_t samples, const Scalar* x, Scalar* y,
                        std::int32_t* places) const = 0;
  virtual void max_pool_backward(const StridedWindows& windows, std::int64_t samples, const std::int32_t* places,
                                 const Scalar* dy, Scalar* dx) const = 0;
  virtual void average_pool(const StridedWindows& windows, std::int64_t samples, const Scalar* x, Scalar* y) const = 0;
  virtual void average_pool_backward(const StridedWindows& windows, std::int64_t samples, const Scalar* dy,
                                     Scalar* dx) const = 0;

  /// The means over the positions of each sample, by channel: x is {samples, positions, channels}.
  virtual void average_positions(const PositionSizes& sizes, const Scalar* x, Scalar* y) const = 0;
  virtual void average_positions_backward(const PositionSizes& sizes, const Scalar* dy, Scalar* dx) const = 0;

  // Convolution of each channel by a kernel of its own. Weights are {kernel, kernel, channels}; the geometry has as
  // many channels as inputs.

  virtual void depthwise(const ConvolutionGeometry& geometry, std::int64_t samples, const Scalar* x,
                         const Scalar* weights, const Scalar* bias, Scalar* y) const = 0;
  virtual void depthwise_backward(const ConvolutionGeometry& geometry, std::int64_t samples, const Scalar* dy,
                                  const Scalar* weights, Scalar* dx) const = 0;
  /// Sets the gradient of the weights, with sums in double.
  virtual void depthwise_weights(Workspace& workspace, const ConvolutionGeometry& geometry, std::int64_t samples,
                                 const Scalar* x, const Scalar* dy, Scalar* gradient) const = 0;

  virtual void upsample(const Upsampling& sizes, std::int64_t samples, const Scalar* x, Scalar* y) const = 0;
  virtual void upsample_backward(const Upsampling& sizes, std::int64_t samples, const Scalar* dy, Scalar* dx) const = 0;
};

}  // namespace farandole::trainer
