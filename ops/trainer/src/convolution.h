// SPDX-License-Identifier: Apache-2.0
// Interface between conv2d and the libraries that compute convolutions: the output, the gradients of the parameters and
// the gradient of the input, on images with channels last.
#pragma once

#include <compare>
#include <cstdint>
#include <memory>
#include <string>

#include "farandole/trainer/execution.h"
#include "farandole/trainer/layers.h"

namespace farandole::trainer {

/// Sizes, stride and padding of a convolution. The number of samples is an argument of Convolution.
struct ConvolutionGeometry {
  std::int64_t height = 0, width = 0, inputs = 0;  ///< height, width and number of channels of the input
  std::int64_t channels = 0;                       ///< number of output channels
  std::int64_t kernel = 0, stride = 0, padding = 0;
  std::int64_t output_height = 0, output_width = 0;

  std::int64_t input_elements() const { return height * width * inputs; }
  std::int64_t output_positions() const { return output_height * output_width; }
  std::int64_t patch_elements() const { return kernel * kernel * inputs; }
  auto operator<=>(const ConvolutionGeometry&) const = default;
};

struct KernelWindow {
  std::int64_t kernel = 0, stride = 0, padding = 0;
};
/// Returns the geometry of a convolution of `input`, with channels still 0.
/// @throws InvalidArgument  `input` is no image, or smaller than the kernel; names the layer
FARANDOLE_API ConvolutionGeometry convolution_geometry(const std::string& layer, const Shape& input,
                                                       const KernelWindow& window);

/// How to compute a convolution in host memory, as in Conv2dOptions.
struct ConvolutionChoice {
  ConvolutionLibrary library = ConvolutionLibrary::kAutomatic;
  bool winograd = false;
};

/// Computes a convolution and its gradients; implemented with oneDNN, with Eigen, and for devices. Weights are {kernel,
/// kernel, inputs, channels}; `samples` must be at least 1. All memory lies where the convolution computes. Not
/// thread-safe.
template <class Scalar>
class Convolution {
 public:
  virtual ~Convolution() = default;
  /// @param bias  null: none
  virtual void forward(Workspace& workspace, std::int64_t samples, const Scalar* input, const Scalar* weights,
                       const Scalar* bias, Scalar* output) = 0;
  /// Overwrites the gradients; `bias_gradient` and `input_gradient` may be null.
  virtual void backward(Workspace& workspace, std::int64_t samples, const Scalar* input, const Scalar* weights,
                        const Scalar* output_gradient, Scalar* weight_gradient, Scalar* bias_gradient,
                        Scalar* input_gradient) = 0;
};

/// A convolution that can apply max(x, 0) to its output while it writes the output, and passes a gradient through that
/// ReLU. The bits are those of a ReLU in passes of its own.
template <class Scalar>
class RectifiableConvolution : public Convolution<Scalar> {
 public:
  /// output = max(result of `forward`, 0); NaN stays NaN.
  virtual void forward_rectified(Workspace& workspace, std::int64_t samples, const Scalar* input, const Scalar* weights,
                                 const Scalar* bias, Scalar* output) = 0;
  /// As `backward`. @param output  of forward_rectified   @param output_gradient  of that output
  virtual void backward_rectified(Workspace& workspace, std::int64_t samples, const Scalar* input,
                                  const Scalar* weights, const Scalar* output, const Scalar* output_gradient,
                                  Scalar* weight_gradient, Scalar* bias_gradient, Scalar* input_gradient) = 0;
};

/// Makes a convolution by oneDNN. @param winograd  as in Conv2dOptions
std::unique_ptr<Convolution<float>> onednn_convolution(const ConvolutionGeometry& geometry, bool winograd);
/// Makes a convolution by Winograd's algorithm with AVX2 and FMA. Results depend on the arguments only, never on the
/// number of threads, and a sample's output and input gradient do not depend on the other samples.
/// @param geometry  one that winograd_can_compute; otherwise the result is undefined
std::unique_ptr<RectifiableConvolution<float>> winograd_convolution(const ConvolutionGeometry& geometry);
/// True if this processor has AVX2 and FMA, and the convolution has a 3x3 kernel, stride 1, at most 2 zeros on each
/// side, and multiples of eight channels.
bool winograd_can_compute(const ConvolutionGeometry& geometry);
/// True if winograd_convolution is faster than onednn_convolution: it can compute the convolution, and oneDNN may not
/// use AVX-512, for which it has Winograd's algorithm. Depends on the geometry and the instruction set only.
bool winograd_is_faster(const ConvolutionGeometry& geometry);
/// Makes a convolution of images with few channels, with AVX2 and FMA. Results depend on the arguments only, never on
/// the number of threads, and a sample's output does not depend on the other samples.
/// @param geometry  one that few_inputs_can_compute; otherwise the result is undefined
std::unique_ptr<RectifiableConvolution<float>> few_inputs_convolution(const ConvolutionGeometry& geometry);
/// True if this processor has AVX2 and FMA, and the convolution has at most 4 input channels, at most 256 elements in a
/// patch, and a multiple of eight output channels.
bool few_inputs_can_compute(const ConvolutionGeometry& geometry);
/// True if few_inputs_convolution is faster than onednn_convolution: it can compute the convolution, and oneDNN may not
/// use AVX-512. Depends on the geometry and the instruction set only.
bool few_inputs_is_faster(const ConvolutionGeometry& geometry);
/// Makes a convolution of matrix products by Eigen.
template <class Scalar>
std::unique_ptr<Convolution<Scalar>> eigen_convolution(const ConvolutionGeometry& geometry);

}  // namespace farandole::trainer
