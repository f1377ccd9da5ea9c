// SPDX-License-Identifier: Apache-2.0
// Convolution as a matrix product, sample by sample ("im2col"). A patch is the part of the input from which an output
// position is computed; the patches of a sample are the rows of a matrix.
//   forward              output   = patches x weights + bias        {positions, patch} x {patch, channels}
//   backward, weights    gradient = sum over samples of patches^T x output gradient
//   backward, input      patches' = output gradient x weights^T, each patch added to its place in the image
// Source: Chellapilla, Puri, Simard: High performance convolutional neural networks for document processing, 2006.
#include <algorithm>
#include <vector>

#include "convolution.h"
#include "matrix.h"

namespace farandole::trainer {
namespace {

template <class Scalar>
class EigenConvolution final : public Convolution<Scalar> {
 public:
  explicit EigenConvolution(const ConvolutionGeometry& geometry) : geometry_(geometry) {}

  void forward(Workspace& workspace, std::int64_t samples, const Scalar* input, const Scalar* weights,
               const Scalar* bias, Scalar* output) override {
    const ConvolutionGeometry& g = geometry_;
    const ConstMatrixView<Scalar> weight_matrix(weights, g.patch_elements(), g.channels);
    Workspace::Scope scope(workspace);
    MatrixView<Scalar> patches = take_patches(scope);
    for (std::int64_t sample = 0; sample < samples; ++sample) {
      gather_patches(input + sample * g.input_elements(), patches.data());
      MatrixView<Scalar> result(output + sample * g.output_positions() * g.channels, g.output_positions(), g.channels);
      result.noalias() = patches * weight_matrix;
      if (bias != nullptr) result.rowwise() += ConstRowVectorView<Scalar>(bias, g.channels);
    }
  }

  void backward(Workspace& workspace, std::int64_t samples, const Scalar* input, const Scalar* weights,
                const Scalar* output_gradient, Scalar* weight_gradient, Scalar* bias_gradient,
                Scalar* input_gradient) override {
    const ConvolutionGeometry& g = geometry_;
    const ConstMatrixView<Scalar> weight_matrix(weights, g.patch_elements(), g.channels);
    MatrixView<Scalar> weight_sum(weight_gradient, g.patch_elements(), g.channels);
    weight_sum.setZero();
    if (bias_gradient != nullptr) std::fill_n(bias_gradient, g.channels, Scalar{0});
    Workspace::Scope scope(workspace);
    MatrixView<Scalar> patches = take_patches(scope);
    if (input_gradient != nullptr) std::fill_n(input_gradient, samples * g.input_elements(), Scalar{0});
    for (std::int64_t sample = 0; sample < samples; ++sample) {
      const ConstMatrixView<Scalar> gradient(output_gradient + sample * g.output_positions() * g.channels,
                                             g.output_positions(), g.channels);
      gather_patches(input + sample * g.input_elements(), patches.data());
      weight_sum.noalias() += patches.transpose() * gradient;
      if (bias_gradient != nullptr) RowVectorView<Scalar>(bias_gradient, g.channels) += gradient.colwise().sum();
      if (input_gradient == nullptr) continue;
      patches.noalias() = gradient * weight_matrix.transpose();
      scatter_patches(patches.data(), input_gradient + sample * g.input_elements());
    }
  }

 private:
  /// Memory for the patches of a sample, a row per output position.
  MatrixView<Scalar> take_patches(Workspace::Scope& scope) const {
    const std::int64_t rows = geometry_.output_positions(), columns = geometry_.patch_elements();
    return {scope.take<Scalar>(static_cast<std::size_t>(rows * columns)).host().data(), rows, columns};
  }

  /// Calls visit(piece of a patch, offset in the image, count) for each run of pixels inside the image, and
  /// visit(piece, -1, count) for pixels outside.
  template <class Visit>
  void for_each_run(Scalar* patches, const Visit& visit) const {
    const ConvolutionGeometry& g = geometry_;
    Scalar* piece = patches;
    for (std::int64_t position = 0; position < g.output_positions(); ++position) {
      const std::int64_t top = position / g.output_width * g.stride - g.padding;
      const std::int64_t left = position % g.output_width * g.stride - g.padding;
      const std::int64_t first = std::clamp<std::int64_t>(-left, 0, g.kernel);
      const std::int64_t last = std::clamp<std::int64_t>(g.width - left, first, g.kernel);
      for (std::int64_t y = top; y < top + g.kernel; ++y, piece += g.kernel * g.inputs) {
        if (y < 0 || y >= g.height) {
          visit(piece, -1, g.kernel * g.inputs);
          continue;
        }
        visit(piece, -1, first * g.inputs);
        visit(piece + first * g.inputs, (y * g.width + left + first) * g.inputs, (last - first) * g.inputs);
        visit(piece + last * g.inputs, -1, (g.kernel - last) * g.inputs);
      }
    }
  }

  void gather_patches(const Scalar* image, Scalar* patches) const {
    for_each_run(patches, [&](Scalar* piece, std::int64_t offset, std::int64_t count) {
      if (offset < 0) {
        std::fill_n(piece, count, Scalar{0});
      } else {
        std::copy_n(image + offset, count, piece);
      }
    });
  }

  void scatter_patches(Scalar* patches, Scalar* image) const {
    for_each_run(patches, [&](const Scalar* piece, std::int64_t offset, std::int64_t count) {
      if (offset < 0) return;
      for (std::int64_t k = 0; k < count; ++k) image[offset + k] += piece[k];
    });
  }

  const ConvolutionGeometry geometry_;
};

}  // namespace

template <class Scalar>
std::unique_ptr<Convolution<Scalar>> eigen_convolution(const ConvolutionGeometry& geometry) {
  return std::make_unique<EigenConvolution<Scalar>>(geometry);
}
template std::unique_ptr<Convolution<float>> eigen_convolution<float>(const ConvolutionGeometry&);
template std::unique_ptr<Convolution<double>> eigen_convolution<double>(const ConvolutionGeometry&);

}  // namespace farandole::trainer
