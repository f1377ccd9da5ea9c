// SPDX-License-Identifier: Apache-2.0
// What conv2d asks of a library: the three products of a convolution on images with channels last.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

namespace farandole::trainer {

/// Everything about a convolution but the number of samples.
struct ConvolutionGeometry {
  std::int64_t height = 0, width = 0, inputs = 0;  ///< of the input; `inputs` are its channels
  std::int64_t channels = 0;                       ///< of the output
  std::int64_t kernel = 0, stride = 0, padding = 0;
  std::int64_t output_height = 0, output_width = 0;

  std::int64_t input_elements() const { return height * width * inputs; }
  std::int64_t output_positions() const { return output_height * output_width; }
  std::int64_t patch_elements() const { return kernel * kernel * inputs; }
};

/// A convolution as one library computes it. At least one sample. Weights are {kernel, kernel, inputs, channels}.
/// Not thread-safe.
template <class Scalar>
class Convolution {
 public:
  virtual ~Convolution() = default;
  virtual void forward(std::int64_t samples, const Scalar* input, const Scalar* weights, const Scalar* bias,
                       Scalar* output) = 0;
  /// Overwrites the gradients; that of the input unless it is null.
  virtual void backward(std::int64_t samples, const Scalar* input, const Scalar* weights, const Scalar* output_gradient,
                        Scalar* weight_gradient, Scalar* bias_gradient, Scalar* input_gradient) = 0;
};

/// @param winograd  as in Conv2dOptions
std::unique_ptr<Convolution<float>> onednn_convolution(const ConvolutionGeometry& geometry, bool winograd);
template <class Scalar>
std::unique_ptr<Convolution<Scalar>> eigen_convolution(const ConvolutionGeometry& geometry);

}  // namespace farandole::trainer
