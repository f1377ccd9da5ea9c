// SPDX-License-Identifier: Apache-2.0
// Convolutions of images with few channels, as in the first layer of a net, for processors with AVX2 and FMA. Sums stay
// in registers, of several positions or taps and 16 output channels at a time; a tap is an element of the patch from
// which an output position is computed. Images are copied with their padding first, if there is padding.
// - Output: for each row of positions, add tap * weights over all taps.
// - Gradient of the weights: for each row of positions, add tap * gradient over the row's positions. A row's sums are
//   added to those of its group of samples, and these are added in their order, so bits do not depend on threads.
// - Gradient of the input, which a first layer does not need: by oneDNN.
#include "convolution.h"

#if defined(__x86_64__)
#include <omp.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "full_teams.h"
#include "in_parallel.h"
#include "masked_gradient.h"
#include "onednn.h"
#include "winograd_transforms.h"

namespace farandole::trainer {
namespace {

/// Positions or taps, and blocks of eight channels, whose sums are in registers at the same time.
constexpr int kSumRows = 6, kSumBlocks = 2;
constexpr std::int64_t kSamplesPerGroup = 4;
constexpr std::int64_t kMaxInputs = 4;
constexpr std::int64_t kMaxTaps = 256;

/// Calls use(integral constant) with the value of `count`, from 1 to kMost.
template <int kMost, class Use>
void with_constant(std::int64_t count, const Use& use) {
  if constexpr (kMost > 1) {
    if (count < kMost) return with_constant<kMost - 1>(count, use);
  }
  use(std::integral_constant<int, kMost>{});
}

/// Calls use(first, integral constant of the count) for pieces of [0, count) of about the same size, at most kMost.
template <int kMost, class Use>
void for_each_even_piece(std::int64_t count, const Use& use) {
  const std::int64_t pieces = (count + kMost - 1) / kMost;
  for (std::int64_t piece = 0; piece < pieces; ++piece) {
    const std::int64_t first = count * piece / pieces, end = count * (piece + 1) / pieces;
    with_constant<kMost>(end - first, [&](auto constant) { use(first, constant); });
  }
}

/// The form of patches in an image with its padding.
struct PatchForm {
  std::int64_t rows;      ///< of a patch
  std::int64_t row_taps;  ///< taps in a row
  std::int64_t row_step;  ///< elements from a row of the image to the next
  std::int64_t step;      ///< elements from a patch to the next one in a row of positions
};

/// Computes results at kPositions positions in a row. @param patch  the first one   @param weights  {taps, channels}
template <int kPositions, int kBlocks>
FARANDOLE_FMA void compute_positions(const PatchForm& form, const float* patch, const float* weights,
                                     std::int64_t channels, const float* bias, float lowest, float* results) {
  Lanes sums[kPositions][kBlocks];
#pragma GCC unroll 6
  for (int i = 0; i < kPositions; ++i) {
#pragma GCC unroll 2
    for (int j = 0; j < kBlocks; ++j) sums[i][j] = lanes_at(bias + j * kLanes);
  }
  for (std::int64_t row = 0; row < form.rows; ++row, patch += form.row_step) {
    for (std::int64_t tap = 0; tap < form.row_taps; ++tap, weights += channels) {
      Lanes factors[kBlocks];
#pragma GCC unroll 2
      for (int j = 0; j < kBlocks; ++j) factors[j] = lanes_at(weights + j * kLanes);
#pragma GCC unroll 6
      for (int i = 0; i < kPositions; ++i) {
        const Lanes value = _mm256_broadcast_ss(patch + tap + i * form.step);
#pragma GCC unroll 2
        for (int j = 0; j < kBlocks; ++j) sums[i][j] = _mm256_fmadd_ps(value, factors[j], sums[i][j]);
      }
    }
  }
#pragma GCC unroll 6
  for (int i = 0; i < kPositions; ++i) {
#pragma GCC unroll 2
    for (int j = 0; j < kBlocks; ++j) {
      // The second operand is the result if one is NaN.
      _mm256_storeu_ps(results + i * channels + j * kLanes, _mm256_max_ps(lanes_of(lowest), sums[i][j]));
    }
  }
}

/// Adds the sums of tap * gradient over a row of positions. @param taps  of the first position
/// @param gradients  {positions, channels}   @param sums  {kTaps, channels}
template <int kTaps, int kBlocks>
FARANDOLE_FMA void add_row_of_gradients(const float* const* taps, std::int64_t step, const float* gradients,
                                        std::int64_t channels, std::int64_t positions, float* sums) {
  Lanes of_row[kTaps][kBlocks];
#pragma GCC unroll 6
  for (int i = 0; i < kTaps; ++i) {
#pragma GCC unroll 2
    for (int j = 0; j < kBlocks; ++j) of_row[i][j] = lanes_of(0);
  }
  for (std::int64_t position = 0; position < positions; ++position, gradients += channels) {
    Lanes factors[kBlocks];
#pragma GCC unroll 2
    for (int j = 0; j < kBlocks; ++j) factors[j] = lanes_at(gradients + j * kLanes);
#pragma GCC unroll 6
    for (int i = 0; i < kTaps; ++i) {
      const Lanes value = _mm256_broadcast_ss(taps[i] + position * step);
#pragma GCC unroll 2
      for (int j = 0; j < kBlocks; ++j) of_row[i][j] = _mm256_fmadd_ps(value, factors[j], of_row[i][j]);
    }
  }
#pragma GCC unroll 6
  for (int i = 0; i < kTaps; ++i) {
#pragma GCC unroll 2
    for (int j = 0; j < kBlocks; ++j) {
      float* const sum = sums + i * channels + j * kLanes;
      _mm256_storeu_ps(sum, lanes_at(sum) + of_row[i][j]);
    }
  }
}

/// Adds a row of gradients to the sums of the channels, where the mask is above 0, and copies it there if there is a
/// mask. Returns the row, or the copy.
FARANDOLE_FMA const float* take_row(const float* gradients, const float* mask, std::int64_t positions,
                                    std::int64_t channels, float* masked, float* sums) {
  for (std::int64_t channel = 0; channel < channels; channel += kLanes) {
    Lanes sum = lanes_of(0);
    for (std::int64_t k = channel; k < positions * channels; k += channels) {
      Lanes value = lanes_at(gradients + k);
      if (mask != nullptr) {
        value = _mm256_and_ps(value, _mm256_cmp_ps(lanes_at(mask + k), lanes_of(0), _CMP_GT_OQ));
        _mm256_storeu_ps(masked + k, value);
      }
      sum += value;
    }
    _mm256_storeu_ps(sums + channel, lanes_at(sums + channel) + sum);
  }
  return mask == nullptr ? gradients : masked;
}

class FewInputsConvolution final : public RectifiableConvolution<float> {
 public:
  explicit FewInputsConvolution(const ConvolutionGeometry& geometry)
      : geometry_(geometry),
        form_{geometry.kernel, geometry.kernel * geometry.inputs,
              (geometry.width + 2 * geometry.padding) * geometry.inputs, geometry.stride * geometry.inputs},
        no_bias_(static_cast<std::size_t>(geometry.channels)) {}

  void forward(Workspace& workspace, std::int64_t samples, const float* input, const float* weights, const float* bias,
               float* output) override {
    compute_results(workspace, samples, input, weights, bias, -std::numeric_limits<float>::infinity(), output);
  }
  void forward_rectified(Workspace& workspace, std::int64_t samples, const float* input, const float* weights,
                         const float* bias, float* output) override {
    compute_results(workspace, samples, input, weights, bias, 0, output);
  }

  void backward(Workspace& workspace, std::int64_t samples, const float* input, const float* weights,
                const float* output_gradient, float* weight_gradient, float* bias_gradient,
                float* input_gradient) override {
    if (input_gradient == nullptr) {
      sum_gradients(workspace, samples, input, output_gradient, nullptr, weight_gradient, bias_gradient);
      return;
    }
    if (!with_input_gradient_) with_input_gradient_ = onednn_convolution(geometry_, false);
    with_input_gradient_->backward(workspace, samples, input, weights, output_gradient, weight_gradient, bias_gradient,
                                   input_gradient);
  }
  void backward_rectified(Workspace& workspace, std::int64_t samples, const float* input, const float* weights,
                          const float* output, const float* output_gradient, float* weight_gradient,
                          float* bias_gradient, float* input_gradient) override {
    if (input_gradient == nullptr) {
      sum_gradients(workspace, samples, input, output_gradient, output, weight_gradient, bias_gradient);
      return;
    }
    Workspace::Scope scope(workspace);
    backward(workspace, samples, input, weights,
             masked_gradient(scope, samples * output_elements(), output, output_gradient), weight_gradient,
             bias_gradient, input_gradient);
  }

 private:
  std::int64_t output_elements() const { return geometry_.output_positions() * geometry_.channels; }
  std::int64_t weight_elements() const { return geometry_.patch_elements() * geometry_.channels; }
  std::size_t padded_elements() const {
    return static_cast<std::size_t>((geometry_.height + 2 * geometry_.padding) * form_.row_step);
  }

  /// The sample's image with its padding: the image itself, or a copy in `memory`.
  const float* padded(const float* image, float* memory) const {
    const ConvolutionGeometry& g = geometry_;
    if (g.padding == 0) return image;
    std::fill_n(memory, padded_elements(), 0.0F);
    for (std::int64_t row = 0; row < g.height; ++row) {
      std::copy_n(image + row * g.width * g.inputs, g.width * g.inputs,
                  memory + (row + g.padding) * form_.row_step + g.padding * g.inputs);
    }
    return memory;
  }

  void compute_results(Workspace& workspace, std::int64_t samples, const float* input, const float* weights,
                       const float* bias, float lowest, float* output) const {
    const FullTeams full_teams;
    const int threads = omp_get_max_threads();
    Workspace::Scope scope(workspace);
    float* const images = scope.take<float>(static_cast<std::size_t>(threads) * padded_elements()).host().data();
    const ConvolutionGeometry& g = geometry_;
    const float* const added = bias != nullptr ? bias : no_bias_.data();
    in_parallel(threads, samples, [&](std::int64_t sample) {
      const float* image = padded(input + sample * g.input_elements(),
                                  images + static_cast<std::size_t>(omp_get_thread_num()) * padded_elements());
      for (std::int64_t row = 0; row < g.output_height; ++row) {
        const float* const patches = image + row * g.stride * form_.row_step;
        float* const results = output + (sample * g.output_height + row) * g.output_width * g.channels;
        for_each_even_piece<kSumBlocks>(g.channels / kLanes, [&](std::int64_t block, auto blocks) {
          for_each_even_piece<kSumRows>(g.output_width, [&](std::int64_t first, auto positions) {
            compute_positions<decltype(positions)::value, decltype(blocks)::value>(
                form_, patches + first * form_.step, weights + block * kLanes, g.channels, added + block * kLanes,
                lowest, results + first * g.channels + block * kLanes);
          });
        });
      }
    });
  }

  /// @param mask  null: none
  void sum_gradients(Workspace& workspace, std::int64_t samples, const float* input, const float* output_gradient,
                     const float* mask, float* weight_gradient, float* bias_gradient) const {
    const FullTeams full_teams;
    const int threads = omp_get_max_threads();
    const std::int64_t groups = (samples + kSamplesPerGroup - 1) / kSamplesPerGroup;
    const auto group_elements = static_cast<std::size_t>(weight_elements() + geometry_.channels);
    const std::size_t own_elements =
        padded_elements() + static_cast<std::size_t>(geometry_.output_width * geometry_.channels);
    Workspace::Scope scope(workspace);
    float* const sums = scope.take<float>(static_cast<std::size_t>(groups) * group_elements).host().data();
    float* const of_threads = scope.take<float>(static_cast<std::size_t>(threads) * own_elements).host().data();
    in_parallel(threads, groups, [&](std::int64_t group) {
      float* const of_group = sums + static_cast<std::size_t>(group) * group_elements;
      float* const own = of_threads + static_cast<std::size_t>(omp_get_thread_num()) * own_elements;
      std::fill_n(of_group, group_elements, 0.0F);
      const std::int64_t end = std::min(samples, (group + 1) * kSamplesPerGroup);
      for (std::int64_t sample = group * kSamplesPerGroup; sample < end; ++sample) {
        const std::int64_t first = sample * output_elements();
        add_sample(padded(input + sample * geometry_.input_elements(), own), output_gradient + first,
                   mask == nullptr ? nullptr : mask + first, own + padded_elements(), of_group);
      }
    });
    const auto total = [&](std::int64_t first, std::int64_t count, float* result) {
      for (std::int64_t k = 0; k < count; ++k) {
        float sum = 0;
        for (std::int64_t group = 0; group < groups; ++group) {
          sum += sums[static_cast<std::size_t>(group) * group_elements + static_cast<std::size_t>(first + k)];
        }
        result[k] = sum;
      }
    };
    total(0, weight_elements(), weight_gradient);
    if (bias_gradient != nullptr) total(weight_elements(), geometry_.channels, bias_gradient);
  }

  /// Adds the gradients of a sample. @param row  memory for a row of masked gradients
  /// @param sums  of the weights, then of the biases
  void add_sample(const float* image, const float* gradients, const float* mask, float* row, float* sums) const {
    const ConvolutionGeometry& g = geometry_;
    const std::int64_t row_elements = g.output_width * g.channels;
    const float* taps[kMaxTaps];
    for (std::int64_t y = 0; y < g.output_height; ++y) {
      const float* const of_row =
          take_row(gradients + y * row_elements, mask == nullptr ? nullptr : mask + y * row_elements, g.output_width,
                   g.channels, row, sums + weight_elements());
      for (std::int64_t tap = 0; tap < g.patch_elements(); ++tap) {
        taps[tap] = image + (y * g.stride + tap / form_.row_taps) * form_.row_step + tap % form_.row_taps;
      }
      for_each_even_piece<kSumBlocks>(g.channels / kLanes, [&](std::int64_t block, auto blocks) {
        for_each_even_piece<kSumRows>(g.patch_elements(), [&](std::int64_t first, auto count) {
          add_row_of_gradients<decltype(count)::value, decltype(blocks)::value>(
              taps + first, form_.step, of_row + block * kLanes, g.channels, g.output_width,
              sums + first * g.channels + block * kLanes);
        });
      });
    }
  }

  const ConvolutionGeometry geometry_;
  const PatchForm form_;
  const std::vector<float> no_bias_;                         ///< zeros, where there is no bias
  std::unique_ptr<Convolution<float>> with_input_gradient_;  ///< made if needed
};

}  // namespace

bool few_inputs_can_compute(const ConvolutionGeometry& geometry) {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && geometry.inputs <= kMaxInputs &&
         geometry.patch_elements() <= kMaxTaps && geometry.channels % kLanes == 0;
}

bool few_inputs_is_faster(const ConvolutionGeometry& geometry) {
  return onednn_has_avx2_only() && few_inputs_can_compute(geometry);
}

std::unique_ptr<RectifiableConvolution<float>> few_inputs_convolution(const ConvolutionGeometry& geometry) {
  return std::make_unique<FewInputsConvolution>(geometry);
}

}  // namespace farandole::trainer

#else
#include "farandole/core/error.h"

namespace farandole::trainer {

bool few_inputs_can_compute(const ConvolutionGeometry&) {
  return false;
}
bool few_inputs_is_faster(const ConvolutionGeometry&) {
  return false;
}
std::unique_ptr<RectifiableConvolution<float>> few_inputs_convolution(const ConvolutionGeometry&) {
  throw Unsupported("conv2d: convolutions of few channels need a processor with AVX2; use ConvolutionLibrary::kOneDnn");
}

}  // namespace farandole::trainer
#endif
