// SPDX-License-Identifier: Apache-2.0
// Winograd's transforms of images, results and kernels: from and to images with channels last and kernels {3, 3,
// inputs, channels}. The tiles of a batch are numbered by sample, row and column. All functions need AVX2 and FMA, and
// multiples of eight channels.
#pragma once

#include "convolution.h"
#include "winograd_product.h"

namespace farandole::trainer {

/// Height and width of a tile of the result, and of the part of the image that the tile depends on.
inline constexpr std::int64_t kTile = 4, kImageTile = 6;
/// Transformed values of a tile or kernel.
inline constexpr int kTransformed = 36;
/// Transformed value of a tile's gradient that is the sum of the tile's 16 gradients.
inline constexpr int kSumOfTile = 7;

/// Transformed tiles or kernels: a matrix, in blocks of eight columns, for each of the 36 transformed values. The rows
/// are tiles and the columns channels, or, of kernels, rows are channels that are read and columns channels that are
/// written.
template <class Value>
struct Planes {
  Value* values;
  std::int64_t plane;  ///< elements from a matrix to the next
  std::int64_t block;  ///< elements from a block of columns to the next

  BlockMatrix<Value> operator[](int index) const { return {values + index * plane, block}; }
  /// The same planes from a row on.
  Planes from_row(std::int64_t row) const { return {values + row * kLanes, plane, block}; }
};

/// Tiles or blocks [first, first + count).
struct TileRange {
  std::int64_t first, count;
};

inline std::int64_t tile_columns(const ConvolutionGeometry& g) {
  return (g.output_width + kTile - 1) / kTile;
}
inline std::int64_t tiles_per_sample(const ConvolutionGeometry& g) {
  return (g.output_height + kTile - 1) / kTile * tile_columns(g);
}

/// How results are made of transformed values.
struct ResultRule {
  const float* bias;  ///< a number for each channel, which is added
  float lowest;       ///< smaller results become this number; NaN stays NaN
};

/// Sets the first rows of `to` to the transformed parts of the images on which the tiles depend.
/// @param zeros  as many zeros as there are channels
void transform_images(const ConvolutionGeometry& geometry, const float* images, const float* zeros,
                      const TileRange& tiles, const Planes<float>& to);
/// Sets the first rows of `to` to the transformed gradients of the tiles. @param zeros  as above
void transform_result_gradients(const ConvolutionGeometry& geometry, const float* gradients, const float* zeros,
                                const TileRange& tiles, const Planes<float>& to);
/// Sets the tiles of `results` to the results of the first rows of `from`.
void transform_results(const ConvolutionGeometry& geometry, const Planes<const float>& from, const ResultRule& rule,
                       const TileRange& tiles, float* results);

/// Transforms kernels {3, 3, inputs, channels}. @param blocks  of eight channels
void transform_kernels(const ConvolutionGeometry& geometry, const float* kernels, const TileRange& blocks,
                       const Planes<float>& to);
/// Transforms the kernels, turned by 180 degrees, by which the gradient of the input is a convolution of the gradient
/// of the output. @param blocks  of eight inputs
void transform_turned_kernels(const ConvolutionGeometry& geometry, const float* kernels, const TileRange& blocks,
                              const Planes<float>& to);
/// Computes gradients of kernels from the sums of products of transformed tiles. @param blocks  of eight channels
void transform_kernel_gradients(const ConvolutionGeometry& geometry, const Planes<const float>& from,
                                const TileRange& blocks, float* gradients);
/// Sums the first rows of `gradients`, transformed gradients of tiles, or adds them to `sums`, in their order.
/// @param sums  a number per column
void sum_result_gradients(const Planes<const float>& gradients, std::int64_t rows, std::int64_t columns, bool add,
                          float* sums);

}  // namespace farandole::trainer
