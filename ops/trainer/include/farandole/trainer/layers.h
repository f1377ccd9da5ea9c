// SPDX-License-Identifier: Apache-2.0
// Layers that come with the trainer, each for float and double.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "farandole/core/export.h"
#include "farandole/trainer/layer.h"

namespace farandole FARANDOLE_API {
namespace trainer {

struct DenseOptions {
  /// False: the sample is flattened, channels fastest, and gives {units}. True: each row of channels (the last axis) is
  /// an input of its own, with the same weights: {length, channels} gives {length, units}.
  bool per_position = false;
  bool bias = true;  ///< false: y = x W
};
/// Fully connected layer: y = x W + b, with `weight` W of shape {inputs, units} and `bias` b.
template <class Scalar>
FARANDOLE_API std::unique_ptr<Layer<Scalar>> dense(std::int64_t units, const DenseOptions& options = {});

/// Library that computes a convolution. kAutomatic: oneDNN or algorithms of our own (docs/decisions/0067, 0071) for
/// float, Eigen for double.
enum class ConvolutionLibrary { kAutomatic, kOneDnn, kEigen };

struct Conv2dOptions {
  std::int64_t channels = 1;  ///< output channels
  std::int64_t kernel = 3;    ///< height and width of the kernel
  std::int64_t stride = 1;
  std::int64_t padding = 0;  ///< rows and columns of zeros on each side
  ConvolutionLibrary library = ConvolutionLibrary::kAutomatic;
  /// True: use Winograd's algorithm for 3x3 kernels with stride 1: that of oneDNN on processors with AVX-512, if the
  /// numbers of input and output channels are multiples of 16; our own with AVX2 and FMA, if they are multiples of 8,
  /// at least 16, and `library` is kAutomatic. Winograd's algorithm is about twice as fast, and its rounding errors are
  /// about twice as large (docs/decisions/0003, 0067).
  bool winograd = true;
  bool bias = true;  ///< false: without bias, as before a normalisation, which would remove it
};
/// Two-dimensional convolution (correlation); weights are {kernel, kernel, inputs, channels}.
template <class Scalar>
FARANDOLE_API std::unique_ptr<Layer<Scalar>> conv2d(const Conv2dOptions& options);

struct DepthwiseConv2dOptions {
  std::int64_t kernel = 3;  ///< height and width of the kernel
  std::int64_t stride = 1;
  std::int64_t padding = 0;  ///< rows and columns of zeros on each side
};
/// Convolution of each channel by a kernel of its own, with bias (Howard et al., arXiv:1704.04861); weights are
/// {kernel, kernel, channels}. Followed by a 1x1 conv2d, it makes a separable convolution.
template <class Scalar>
FARANDOLE_API std::unique_ptr<Layer<Scalar>> depthwise_conv2d(const DepthwiseConv2dOptions& options);

struct Pool2dOptions {
  std::int64_t size = 2;     ///< height and width of a window
  std::int64_t stride = 0;   ///< 0: `size`, so that windows do not overlap
  std::int64_t padding = 0;  ///< rows and columns outside the image on each side; less than `size`
};
/// Maximum over windows; pixels outside the image do not count. If several elements equal the maximum, the first in row
/// order gets the gradient.
template <class Scalar>
FARANDOLE_API std::unique_ptr<Layer<Scalar>> max_pool2d(const Pool2dOptions& options);
/// Maximum over windows of `size` x `size` that do not overlap.
template <class Scalar>
FARANDOLE_API std::unique_ptr<Layer<Scalar>> max_pool2d(std::int64_t size);
/// Mean over the pixels of each window that lie inside the image.
template <class Scalar>
FARANDOLE_API std::unique_ptr<Layer<Scalar>> average_pool2d(const Pool2dOptions& options);
/// Mean over windows of `size` x `size` that do not overlap.
template <class Scalar>
FARANDOLE_API std::unique_ptr<Layer<Scalar>> average_pool2d(std::int64_t size);
/// Repeats each pixel in `factor` rows and columns (nearest neighbour): {h, w, c} gives {factor * h, factor * w, c}.
template <class Scalar>
FARANDOLE_API std::unique_ptr<Layer<Scalar>> upsample2d(std::int64_t factor);

/// Mean over all positions, per channel: {height, width, channels} or {length, channels} gives {channels}.
template <class Scalar>
FARANDOLE_API std::unique_ptr<Layer<Scalar>> global_average_pool();

/// Copies a sample into a vector of all its elements, channels fastest. Before `dense` it is not necessary.
template <class Scalar>
FARANDOLE_API std::unique_ptr<Layer<Scalar>> flatten();
/// Copies a sample into another shape with as many elements, in the same order. An image of 8x8 pixels with 64 channels
/// becomes a sequence of 64 pixels by reshape({64, 64}).
template <class Scalar>
FARANDOLE_API std::unique_ptr<Layer<Scalar>> reshape(const Shape& shape);

/// max(x, 0), element by element.
template <class Scalar>
FARANDOLE_API std::unique_ptr<Layer<Scalar>> relu();
/// x where x > 0, else slope * x (Maas, Hannun, Ng, 2013).
template <class Scalar>
FARANDOLE_API std::unique_ptr<Layer<Scalar>> leaky_relu(double slope = 0.01);
/// x * P(x), where P(x) = (1 + erf(x / sqrt(2))) / 2 is the distribution function of the standard normal distribution
/// (Hendrycks, Gimpel, arXiv:1606.08415): the exact form, which is PyTorch's default.
template <class Scalar>
FARANDOLE_API std::unique_ptr<Layer<Scalar>> gelu();
/// x * sigmoid(x), also called swish (Elfwing, Uchibe, Doya, 2018).
template <class Scalar>
FARANDOLE_API std::unique_ptr<Layer<Scalar>> silu();
/// 1 / (1 + exp(-x)).
template <class Scalar>
FARANDOLE_API std::unique_ptr<Layer<Scalar>> sigmoid();
/// tanh(x).
template <class Scalar>
FARANDOLE_API std::unique_ptr<Layer<Scalar>> hyperbolic_tangent();

/// In training, sets each element to 0 with probability `rate`, and multiplies every other element by 1/(1-rate). In
/// prediction, copies the input. Which elements become 0 depends on (seed, training step, position of the sample in the
/// global batch, layer), never on the number of replicas.
template <class Scalar>
FARANDOLE_API std::unique_ptr<Layer<Scalar>> dropout(double rate);

struct BatchNormalizationOptions {
  double epsilon = 1e-5;  ///< added to the variance, so that the division by its square root is defined
  /// moving += momentum * (batch - moving), once in each training step, where `batch` is the mean over the training
  /// step's micro-batches and replicas. PyTorch does this in each forward pass, so with each micro-batch.
  double momentum = 0.1;
  /// True: compute the statistics over the batches of all replicas, at the cost of two more allreduces per training
  /// step and layer. Has this effect only with TrainerOptions::synchronized_layers.
  bool synchronized = false;
};
/// Normalises each channel (the last axis) over batch and positions, then applies a learned scale and shift.
template <class Scalar>
FARANDOLE_API std::unique_ptr<Layer<Scalar>> batch_normalization(const BatchNormalizationOptions& options = {});

struct NormalizationOptions {
  double epsilon = 1e-5;  ///< added to the variance, so that the division by its square root is defined
  bool affine = true;     ///< false: without the parameters `scale` and `shift`
};
/// Normalises each row of channels (the last axis) of each sample: y = (x - mean) / sqrt(variance + epsilon) * scale +
/// shift, with the variance of the population (Ba, Kiros, Hinton, arXiv:1607.06450). `scale` and `shift` are
/// {channels}. Like the two layers below, it computes the same in training and prediction, and needs no statistics of
/// other samples.
template <class Scalar>
FARANDOLE_API std::unique_ptr<Layer<Scalar>> layer_normalization(const NormalizationOptions& options = {});
/// Cuts the channels into `groups` of neighbours, and normalises each group of each sample over its channels and all
/// positions (Wu, He, ECCV 2018); formula and parameters as in layer_normalization. The number of channels must be a
/// multiple of `groups`. One group per channel is instance normalisation.
template <class Scalar>
FARANDOLE_API std::unique_ptr<Layer<Scalar>> group_normalization(std::int64_t groups,
                                                                 const NormalizationOptions& options = {});
/// y = x / sqrt(mean(x^2) + epsilon) * scale, over each row of channels (Zhang, Sennrich, NeurIPS 2019).
template <class Scalar>
FARANDOLE_API std::unique_ptr<Layer<Scalar>> rms_normalization(const NormalizationOptions& options = {});

/// Replaces each element of a sample, an index in [0, vocabulary), by a row of `weight`, which is {vocabulary, units}
/// and starts as N(0, 1): {length} gives {length, units}. Indices are whole numbers, stored as Scalar; any other value
/// makes the forward pass throw DataError, which names the sample and the value. Their gradient is 0. `vocabulary` is
/// at most 2^24 in f32 and 2^53 in f64, so that all indices are exact.
template <class Scalar>
FARANDOLE_API std::unique_ptr<Layer<Scalar>> embedding(std::int64_t vocabulary, std::int64_t units);

/// kLearned: a parameter `weight` of the shape of a sample, which starts as N(0, 1/units). kSinusoidal: sin(p / f) at
/// position p and unit 2i, cos(p / f) at unit 2i + 1, with f = 10000^(2i / units) (Vaswani et al., NeurIPS 2017).
enum class PositionalEncoding { kLearned, kSinusoidal };
/// Adds a code of its position to each row of a sequence {length, units}. The length is fixed by the input's shape.
template <class Scalar>
FARANDOLE_API std::unique_ptr<Layer<Scalar>> positional_encoding(PositionalEncoding kind);

struct AttentionOptions {
  std::int64_t heads = 1;  ///< the number of units must be a multiple of `heads`
  bool causal = false;     ///< true: a position attends to itself and to earlier positions only
};
/// Multi-head self-attention over sequences {length, units} (Vaswani et al., NeurIPS 2017). [Q K V] = x W + b, with
/// `qkv_weight` W of shape {units, 3 * units} and `qkv_bias` b. Head h owns columns [h * d, (h + 1) * d) of each of Q,
/// K and V, with d = units / heads, and computes softmax(Q K^T / sqrt(d)) V. The heads' results side by side, times
/// `output_weight` {units, units}, plus `output_bias`, are the output. Weights start as kUniformFanIn, biases as 0. The
/// first half of a transformer's block:
///
///     list.push_back(residual<float>(layers<float>(layer_normalization<float>(),
///                                                  attention<float>({.heads = 4, .causal = true}))));
template <class Scalar>
FARANDOLE_API std::unique_ptr<Layer<Scalar>> attention(const AttentionOptions& options = {});

/// The layers of a model, in order.
template <class Scalar>
using LayerList = std::vector<std::unique_ptr<Layer<Scalar>>>;
/// A list of these layers: `Model<float> model({28, 28, 1}, layers<float>(dense<float>(128), relu<float>(),
/// dense<float>(10)))`.
template <class Scalar, class... Layers>
LayerList<Scalar> layers(std::unique_ptr<Layers>... list) {
  LayerList<Scalar> result;
  result.reserve(sizeof...(list));
  (result.push_back(std::move(list)), ...);
  return result;
}

/// The layers in order, as one layer; graph.h has layers in any other form. Its parameters and statistics are those of
/// the layers, with names such as "0.conv2d.weight": the layer's index in the sequence and kind, then the layer's own
/// name.
template <class Scalar>
FARANDOLE_API std::unique_ptr<Layer<Scalar>> sequence(LayerList<Scalar> layers);
/// y = body(x) + shortcut(x); without a shortcut, y = body(x) + x (He, Zhang, Ren, Sun, CVPR 2016). Both branches must
/// give the same shape. Parameters and statistics have names such as "body.0.conv2d.weight" and
/// "shortcut.0.conv2d.weight". A block of a residual net:
///
///     list.push_back(residual<float>(
///         layers<float>(conv2d<float>({.channels = 64, .stride = 2, .padding = 1, .bias = false}),
///                       batch_normalization<float>(), relu<float>(),
///                       conv2d<float>({.channels = 64, .padding = 1, .bias = false}), batch_normalization<float>()),
///         layers<float>(conv2d<float>({.channels = 64, .kernel = 1, .stride = 2, .bias = false}),
///                       batch_normalization<float>())));
template <class Scalar>
FARANDOLE_API std::unique_ptr<Layer<Scalar>> residual(LayerList<Scalar> body, LayerList<Scalar> shortcut = {});

}  // namespace trainer
}  // namespace FARANDOLE_API
