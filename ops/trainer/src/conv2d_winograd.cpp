// SPDX-License-Identifier: Apache-2.0
// 3x3 convolutions with stride 1 by Winograd's F(4x4, 3x3), for processors with AVX2 and FMA (winograd_transforms.h has
// the formulas and their source). Tiles are computed in chunks whose transformed values stay in cache.
// - Output: transform the kernels; for each chunk transform its images, compute 36 products, transform the results.
// - Gradient of the input: the same with the kernels turned by 180 degrees, inputs and channels exchanged.
// - Gradient of the kernels: for each chunk transform its images and gradients, add 36 products; transform the sums.
// 36 products of 1 multiplication replace 16 * 9: a quarter. Bits do not depend on chunks and threads, because products
// are added in the same order whatever the chunks (winograd_product.h).
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
#include "winograd_tiles.h"

namespace farandole::trainer {
namespace {

constexpr std::int64_t kFloatsPerLine = 16;
// Measured: decision 0067.
constexpr std::int64_t kChunkFloats = 96 << 10;
constexpr std::int64_t kLeastTiles = 64;
constexpr std::int64_t kLeastChannels = 16;
/// As ResultRule::lowest: all results stay as they are.
constexpr float kNoLimit = -std::numeric_limits<float>::infinity();

/// Planes in memory of their own. Rows of cache lines between the planes keep them out of each other's cache sets.
std::int64_t plane_elements(std::int64_t rows, std::int64_t columns) {
  const std::int64_t lines = (rows * columns + kFloatsPerLine - 1) / kFloatsPerLine;
  return (lines | 1) * kFloatsPerLine;
}
std::size_t planes_elements(std::int64_t rows, std::int64_t columns) {
  return static_cast<std::size_t>(kTransformed * plane_elements(rows, columns));
}
Planes<float> planes_at(float* values, std::int64_t rows, std::int64_t columns) {
  return {values, plane_elements(rows, columns), rows * kLanes};
}
Planes<const float> read_only(const Planes<float>& planes) {
  return {planes.values, planes.plane, planes.block};
}
BlockMatrix<const float> read_only(const BlockMatrix<float>& matrix) {
  return {matrix.values, matrix.block};
}

/// Calls compute(range) for pieces of a range, on `threads` threads.
template <class Compute>
void in_pieces(int threads, const TileRange& range, const Compute& compute) {
  const std::int64_t pieces = std::min<std::int64_t>(threads, range.count);
  in_parallel(threads, pieces, [&](std::int64_t k) {
    const std::int64_t begin = range.count * k / pieces, end = range.count * (k + 1) / pieces;
    compute(TileRange{range.first + begin, end - begin});
  });
}

class WinogradConvolution final : public RectifiableConvolution<float> {
 public:
  explicit WinogradConvolution(const ConvolutionGeometry& geometry)
      : geometry_(geometry),
        chunk_(tiles_per_chunk()),
        zeros_(static_cast<std::size_t>(std::max(geometry.inputs, geometry.channels))) {
    // The gradient of the input is a convolution of the gradient of the output.
    turned_ = {geometry.output_height, geometry.output_width, geometry.channels};
    turned_.channels = geometry.inputs;
    turned_.kernel = 3, turned_.stride = 1, turned_.padding = 2 - geometry.padding;
    turned_.output_height = geometry.height, turned_.output_width = geometry.width;
  }

  void forward(Workspace& workspace, std::int64_t samples, const float* input, const float* weights, const float* bias,
               float* output) override {
    compute_results(workspace, samples, input, weights, {bias, kNoLimit}, output);
  }
  void forward_rectified(Workspace& workspace, std::int64_t samples, const float* input, const float* weights,
                         const float* bias, float* output) override {
    compute_results(workspace, samples, input, weights, {bias, 0}, output);
  }

  void backward(Workspace& workspace, std::int64_t samples, const float* input, const float* weights,
                const float* output_gradient, float* weight_gradient, float* bias_gradient,
                float* input_gradient) override {
    const FullTeams full_teams;
    sum_gradients(workspace, samples, input, output_gradient, weight_gradient, bias_gradient);
    if (input_gradient == nullptr) return;
    Workspace::Scope scope(workspace);
    const ConvolutionGeometry& g = geometry_;
    const Planes<float> kernels = take_planes(scope, g.channels, g.inputs);
    in_pieces(omp_get_max_threads(), {0, g.inputs / kLanes},
              [&](const TileRange& blocks) { transform_turned_kernels(g, weights, blocks, kernels); });
    convolve(workspace, turned_, samples, output_gradient, read_only(kernels), {zeros_.data(), kNoLimit},
             input_gradient);
  }
  void backward_rectified(Workspace& workspace, std::int64_t samples, const float* input, const float* weights,
                          const float* output, const float* output_gradient, float* weight_gradient,
                          float* bias_gradient, float* input_gradient) override {
    // A mask in the transforms, which read each gradient three times, takes longer.
    Workspace::Scope scope(workspace);
    const std::int64_t count = samples * geometry_.output_positions() * geometry_.channels;
    backward(workspace, samples, input, weights, masked_gradient(scope, count, output, output_gradient),
             weight_gradient, bias_gradient, input_gradient);
  }

 private:
  /// @param rule  with the layer's bias, which may be null
  void compute_results(Workspace& workspace, std::int64_t samples, const float* input, const float* weights,
                       const ResultRule& rule, float* output) const {
    const FullTeams full_teams;
    Workspace::Scope scope(workspace);
    const ConvolutionGeometry& g = geometry_;
    const Planes<float> kernels = take_planes(scope, g.inputs, g.channels);
    in_pieces(omp_get_max_threads(), {0, g.channels / kLanes},
              [&](const TileRange& blocks) { transform_kernels(g, weights, blocks, kernels); });
    convolve(workspace, g, samples, input, read_only(kernels),
             {rule.bias != nullptr ? rule.bias : zeros_.data(), rule.lowest}, output);
  }

  /// Tiles per chunk. The transformed values of a chunk fill about half of a core's second cache, but there are enough
  /// tiles that the products, not reading the kernels, take the time.
  std::int64_t tiles_per_chunk() const {
    const std::int64_t tiles = kChunkFloats / (kTransformed * (geometry_.inputs + geometry_.channels));
    return std::max(tiles, kLeastTiles) / kSummedRows * kSummedRows;
  }

  static Planes<float> take_planes(Workspace::Scope& scope, std::int64_t rows, std::int64_t columns) {
    return planes_at(scope.take<float>(planes_elements(rows, columns)).host().data(), rows, columns);
  }

  /// A chunk's transformed tiles: of the images, and of the results or their gradients.
  struct ChunkMemory {
    Planes<float> images, results;
  };
  /// Memory for chunks of so many tiles.
  class ChunkMemories {
   public:
    ChunkMemories(Workspace::Scope& scope, const ConvolutionGeometry& g, std::int64_t tiles, std::size_t chunks)
        : tiles_(tiles),
          inputs_(g.inputs),
          channels_(g.channels),
          values_(scope.take<float>(chunks * chunk_elements()).host().data()) {}

    ChunkMemory operator[](std::size_t index) const {
      float* const values = values_ + index * chunk_elements();
      return {planes_at(values, tiles_, inputs_),
              planes_at(values + planes_elements(tiles_, inputs_), tiles_, channels_)};
    }

   private:
    std::size_t chunk_elements() const { return planes_elements(tiles_, inputs_) + planes_elements(tiles_, channels_); }

    const std::int64_t tiles_, inputs_, channels_;
    float* const values_;
  };

  /// Computes results from images and transformed kernels. If there are fewer chunks than threads, the threads share
  /// each chunk.
  void convolve(Workspace& workspace, const ConvolutionGeometry& g, std::int64_t samples, const float* images,
                const Planes<const float>& kernels, const ResultRule& rule, float* results) const {
    const std::int64_t tiles = samples * tiles_per_sample(g), chunks = (tiles + chunk_ - 1) / chunk_;
    const int threads = omp_get_max_threads();
    const bool share = chunks < threads;
    Workspace::Scope scope(workspace);
    const ChunkMemories memories(scope, g, chunk_, share ? 1 : static_cast<std::size_t>(threads));
    in_parallel(share ? 1 : threads, chunks, [&](std::int64_t chunk) {
      const TileRange range{chunk * chunk_, std::min(chunk_, tiles - chunk * chunk_)};
      const ChunkMemory own = memories[share ? 0 : static_cast<std::size_t>(omp_get_thread_num())];
      const int helpers = share ? threads : 1;
      in_pieces(helpers, range, [&](const TileRange& part) {
        transform_images(g, images, zeros_.data(), part, own.images.from_row(part.first - range.first));
      });
      in_parallel(helpers, kTransformed, [&](std::int64_t k) {
        const int index = static_cast<int>(k);
        multiply_blocks({range.count, g.inputs, g.channels}, read_only(own.images[index]), kernels[index],
                        own.results[index]);
      });
      in_pieces(helpers, range, [&](const TileRange& part) {
        transform_results(g, read_only(own.results.from_row(part.first - range.first)), rule, part, results);
      });
    });
  }

  /// Computes the gradients of the parameters. The threads share each chunk.
  void sum_gradients(Workspace& workspace, std::int64_t samples, const float* images, const float* gradients,
                     float* weight_gradient, float* bias_gradient) const {
    const ConvolutionGeometry& g = geometry_;
    const int threads = omp_get_max_threads();
    const std::int64_t tiles = samples * tiles_per_sample(g), chunk = chunk_ * threads;
    Workspace::Scope scope(workspace);
    const ChunkMemory memory = ChunkMemories(scope, g, chunk, 1)[0];
    const Planes<float> sums = take_planes(scope, g.inputs, g.channels);
    for (std::int64_t first = 0; first < tiles; first += chunk) {
      const std::int64_t count = std::min(chunk, tiles - first);
      in_pieces(threads, {first, count}, [&](const TileRange& part) {
        transform_images(g, images, zeros_.data(), part, memory.images.from_row(part.first - first));
        transform_result_gradients(g, gradients, zeros_.data(), part, memory.results.from_row(part.first - first));
      });
      in_parallel(threads, kTransformed, [&](std::int64_t k) {
        const int index = static_cast<int>(k);
        multiply_transposed_blocks({g.inputs, count, g.channels}, read_only(memory.images[index]),
                                   read_only(memory.results[index]), first > 0, sums[index]);
        if (index == kSumOfTile && bias_gradient != nullptr) {
          sum_result_gradients(read_only(memory.results), count, g.channels, first > 0, bias_gradient);
        }
      });
    }
    in_pieces(threads, {0, g.channels / kLanes}, [&](const TileRange& blocks) {
      transform_kernel_gradients(g, read_only(sums), blocks, weight_gradient);
    });
  }

  const ConvolutionGeometry geometry_;
  ConvolutionGeometry turned_;
  const std::int64_t chunk_;  ///< tiles per chunk
  const std::vector<float> zeros_;
};

}  // namespace

bool winograd_can_compute(const ConvolutionGeometry& geometry) {
  const ConvolutionGeometry& g = geometry;
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && g.kernel == 3 && g.stride == 1 &&
         g.padding <= 2 && g.inputs % kLanes == 0 && g.channels % kLanes == 0;
}

bool winograd_is_faster(const ConvolutionGeometry& geometry) {
  return onednn_has_avx2_only() && winograd_can_compute(geometry) &&
         std::min(geometry.inputs, geometry.channels) >= kLeastChannels;
}

std::unique_ptr<RectifiableConvolution<float>> winograd_convolution(const ConvolutionGeometry& geometry) {
  return std::make_unique<WinogradConvolution>(geometry);
}

}  // namespace farandole::trainer

#else
#include "farandole/core/error.h"

namespace farandole::trainer {

bool winograd_can_compute(const ConvolutionGeometry&) {
  return false;
}
bool winograd_is_faster(const ConvolutionGeometry&) {
  return false;
}
std::unique_ptr<RectifiableConvolution<float>> winograd_convolution(const ConvolutionGeometry&) {
  throw Unsupported(
      "conv2d: Winograd's algorithm of our own needs a processor with AVX2; use ConvolutionLibrary::kOneDnn");
}

}  // namespace farandole::trainer
#endif
