// SPDX-License-Identifier: Apache-2.0
#if defined(__x86_64__)
#include "winograd_tiles.h"

namespace farandole::trainer {
namespace {

/// A tile's place in the batch: its sample, and its first row and column of the result.
struct TilePlace {
  std::int64_t sample, top, left;
};

/// Calls visit(place, number of the tile in the range) for each tile of the range.
template <class Visit>
FARANDOLE_FMA_INLINED inline void for_each_tile(const ConvolutionGeometry& g, const TileRange& tiles,
                                                const Visit& visit) {
  const std::int64_t columns = tile_columns(g), per_sample = tiles_per_sample(g);
  for (std::int64_t k = 0; k < tiles.count; ++k) {
    const std::int64_t sample = (tiles.first + k) / per_sample, tile = (tiles.first + k) % per_sample;
    visit(TilePlace{sample, tile / columns * kTile, tile % columns * kTile}, k);
  }
}

/// Images with channels last.
struct Images {
  const float* values;
  std::int64_t height, width, channels;
};

/// Transforms a square of an image, channels eight by eight. `pixel(i, j)` returns the address of a pixel of the
/// square.
template <class Transform, class Pixel>
FARANDOLE_FMA_INLINED inline void transform_pixels(const Pixel& pixel, std::int64_t channels, const Planes<float>& to) {
  const std::int64_t plane = to.plane;
  float* block = to.values;
  for (std::int64_t channel = 0; channel < channels; channel += kLanes, block += to.block) {
    transform_square<Transform>([=](int i, int j) FARANDOLE_FMA_INLINED { return lanes_at(pixel(i, j) + channel); },
                                [=](int i, int j, Lanes value) FARANDOLE_FMA_INLINED {
                                  _mm256_storeu_ps(block + (i * Transform::kTo + j) * plane, value);
                                });
  }
}

/// Transforms the square of an image that begins in the row `top` and the column `left`; pixels outside are zeros.
template <class Transform>
FARANDOLE_FMA_INLINED inline void transform_part(const Images& image, std::int64_t top, std::int64_t left,
                                                 const float* zeros, const Planes<float>& to) {
  constexpr int kSize = Transform::kFrom;
  const std::int64_t pixel = image.channels, row = image.width * pixel;
  if (top >= 0 && left >= 0 && top + kSize <= image.height && left + kSize <= image.width) {
    const float* first = image.values + top * row + left * pixel;
    transform_pixels<Transform>([=](int i, int j) FARANDOLE_FMA_INLINED { return first + i * row + j * pixel; },
                                image.channels, to);
    return;
  }
  const float* pixels[kSize * kSize];
  for (int k = 0; k < kSize * kSize; ++k) {
    const std::int64_t y = top + k / kSize, x = left + k % kSize;
    const bool is_inside = y >= 0 && x >= 0 && y < image.height && x < image.width;
    pixels[k] = is_inside ? image.values + y * row + x * pixel : zeros;
  }
  const float* const* addresses = pixels;
  transform_pixels<Transform>([=](int i, int j) FARANDOLE_FMA_INLINED { return addresses[i * kSize + j]; },
                              image.channels, to);
}

/// Transposes eight vectors of eight values.
FARANDOLE_FMA_INLINED inline void transpose(const Lanes (&x)[kLanes], Lanes (&y)[kLanes]) {
  Lanes pairs[kLanes], fours[kLanes];
#pragma GCC unroll 4
  for (int i = 0; i < 8; i += 2) {
    pairs[i] = _mm256_unpacklo_ps(x[i], x[i + 1]);
    pairs[i + 1] = _mm256_unpackhi_ps(x[i], x[i + 1]);
  }
#pragma GCC unroll 2
  for (int i = 0; i < 8; i += 4) {
    fours[i] = _mm256_shuffle_ps(pairs[i], pairs[i + 2], 0x44);
    fours[i + 1] = _mm256_shuffle_ps(pairs[i], pairs[i + 2], 0xEE);
    fours[i + 2] = _mm256_shuffle_ps(pairs[i + 1], pairs[i + 3], 0x44);
    fours[i + 3] = _mm256_shuffle_ps(pairs[i + 1], pairs[i + 3], 0xEE);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    y[i] = _mm256_permute2f128_ps(fours[i], fours[i + 4], 0x20);
    y[i + 4] = _mm256_permute2f128_ps(fours[i], fours[i + 4], 0x31);
  }
}

}  // namespace

FARANDOLE_FMA void transform_images(const ConvolutionGeometry& geometry, const float* images, const float* zeros,
                                    const TileRange& tiles, const Planes<float>& to) {
  const ConvolutionGeometry& g = geometry;
  for_each_tile(g, tiles, [&](const TilePlace& place, std::int64_t row) FARANDOLE_FMA_INLINED {
    const Images image{images + place.sample * g.input_elements(), g.height, g.width, g.inputs};
    transform_part<ImageTransform>(image, place.top - g.padding, place.left - g.padding, zeros, to.from_row(row));
  });
}

FARANDOLE_FMA void transform_result_gradients(const ConvolutionGeometry& geometry, const float* gradients,
                                              const float* zeros, const TileRange& tiles, const Planes<float>& to) {
  const ConvolutionGeometry& g = geometry;
  for_each_tile(g, tiles, [&](const TilePlace& place, std::int64_t row) FARANDOLE_FMA_INLINED {
    const Images image{gradients + place.sample * g.output_positions() * g.channels, g.output_height, g.output_width,
                       g.channels};
    transform_part<ResultGradientTransform>(image, place.top, place.left, zeros, to.from_row(row));
  });
}

FARANDOLE_FMA void transform_results(const ConvolutionGeometry& geometry, const Planes<const float>& from,
                                     const ResultRule& rule, const TileRange& tiles, float* results) {
  const ConvolutionGeometry& g = geometry;
  const float* const bias = rule.bias;
  const Lanes lowest = lanes_of(rule.lowest);
  for_each_tile(g, tiles, [&](const TilePlace& place, std::int64_t row) FARANDOLE_FMA_INLINED {
    const std::int64_t height = std::min(kTile, g.output_height - place.top);
    const std::int64_t width = std::min(kTile, g.output_width - place.left), pixel = g.channels;
    const std::int64_t first = (place.sample * g.output_height + place.top) * g.output_width + place.left;
    for (std::int64_t channel = 0; channel < g.channels; channel += kLanes) {
      const float* block = from.from_row(row).values + channel / kLanes * from.block;
      float* to = results + first * pixel + channel;
      const std::int64_t plane = from.plane, image_row = g.output_width * pixel;
      const Lanes added = lanes_at(bias + channel);
      transform_square<ResultTransform>(
          [=](int i, int j) FARANDOLE_FMA_INLINED { return lanes_at(block + (i * kImageTile + j) * plane); },
          [=](int i, int j, Lanes value) FARANDOLE_FMA_INLINED {
            // The second operand is the result if one is NaN.
            if (i < height && j < width) {
              _mm256_storeu_ps(to + i * image_row + j * pixel, _mm256_max_ps(lowest, value + added));
            }
          });
    }
  });
}

FARANDOLE_FMA void transform_kernels(const ConvolutionGeometry& geometry, const float* kernels, const TileRange& blocks,
                                     const Planes<float>& to) {
  const std::int64_t inputs = geometry.inputs, channels = geometry.channels, plane = to.plane;
  for (std::int64_t block = blocks.first; block < blocks.first + blocks.count; ++block) {
    for (std::int64_t input = 0; input < inputs; ++input) {
      const float* from = kernels + input * channels + block * kLanes;
      float* target = to.values + block * to.block + input * kLanes;
      transform_square<KernelTransform>(
          [=](int i, int j) FARANDOLE_FMA_INLINED { return lanes_at(from + (i * 3 + j) * inputs * channels); },
          [=](int i, int j, Lanes value)
              FARANDOLE_FMA_INLINED { _mm256_storeu_ps(target + (i * kImageTile + j) * plane, value); });
    }
  }
}

FARANDOLE_FMA void transform_turned_kernels(const ConvolutionGeometry& geometry, const float* kernels,
                                            const TileRange& blocks, const Planes<float>& to) {
  const std::int64_t inputs = geometry.inputs, channels = geometry.channels, plane = to.plane;
  for (std::int64_t block = blocks.first; block < blocks.first + blocks.count; ++block) {
    for (std::int64_t channel = 0; channel < channels; channel += kLanes) {
      Lanes turned[9][kLanes];  // for each tap and channel: the inputs
      for (int tap = 0; tap < 9; ++tap) {
        Lanes rows[kLanes];
        for (int input = 0; input < kLanes; ++input) {
          rows[input] = lanes_at(kernels + (tap * inputs + block * kLanes + input) * channels + channel);
        }
        transpose(rows, turned[8 - tap]);
      }
      for (int k = 0; k < kLanes; ++k) {
        const Lanes* from = &turned[0][k];
        float* target = to.values + block * to.block + (channel + k) * kLanes;
        transform_square<KernelTransform>(
            [=](int i, int j) FARANDOLE_FMA_INLINED { return from[(i * 3 + j) * kLanes]; },
            [=](int i, int j, Lanes value)
                FARANDOLE_FMA_INLINED { _mm256_storeu_ps(target + (i * kImageTile + j) * plane, value); });
      }
    }
  }
}

FARANDOLE_FMA void transform_kernel_gradients(const ConvolutionGeometry& geometry, const Planes<const float>& from,
                                              const TileRange& blocks, float* gradients) {
  const std::int64_t inputs = geometry.inputs, channels = geometry.channels, plane = from.plane;
  for (std::int64_t block = blocks.first; block < blocks.first + blocks.count; ++block) {
    for (std::int64_t input = 0; input < inputs; ++input) {
      const float* sums = from.values + block * from.block + input * kLanes;
      float* target = gradients + input * channels + block * kLanes;
      transform_square<KernelGradientTransform>(
          [=](int i, int j) FARANDOLE_FMA_INLINED { return lanes_at(sums + (i * kImageTile + j) * plane); },
          [=](int i, int j, Lanes value)
              FARANDOLE_FMA_INLINED { _mm256_storeu_ps(target + (i * 3 + j) * inputs * channels, value); });
    }
  }
}

FARANDOLE_FMA void sum_result_gradients(const Planes<const float>& gradients, std::int64_t rows, std::int64_t columns,
                                        bool add, float* sums) {
  for (std::int64_t column = 0; column < columns; column += kLanes) {
    const float* from = gradients[kSumOfTile].values + column / kLanes * gradients.block;
    Lanes sum = add ? lanes_at(sums + column) : lanes_of(0);
    for (std::int64_t row = 0; row < rows; ++row) sum += lanes_at(from + row * kLanes);
    _mm256_storeu_ps(sums + column, sum);
  }
}

}  // namespace farandole::trainer
#endif
