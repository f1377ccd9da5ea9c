// SPDX-License-Identifier: Apache-2.0
// Convolution of each channel by a kernel of its own, in host memory. The channels of a pixel are a vector, and the
// loop over them is the inner one.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "convolution.h"
#include "farandole/trainer/execution.h"
#include "matrix_product.h"
#include "vectorized.h"

namespace farandole::trainer {

/// Calls visit(output offset, input offset, tap) for each pair of an output pixel and an element ("tap") of its window
/// that lies inside the image. Offsets are in elements; output pixels come in order.
template <class Visit>
FARANDOLE_INLINED inline void for_each_tap(const ConvolutionGeometry& g, std::int64_t samples, const Visit& visit) {
  for (std::int64_t row = 0; row < samples * g.output_height; ++row) {
    const std::int64_t sample = row / g.output_height, top = row % g.output_height * g.stride - g.padding;
    for (std::int64_t x = 0; x < g.output_width; ++x) {
      const std::int64_t left = x * g.stride - g.padding, to = (row * g.output_width + x) * g.channels;
      for (std::int64_t tap = 0; tap < g.kernel * g.kernel; ++tap) {
        const std::int64_t from_y = top + tap / g.kernel, from_x = left + tap % g.kernel;
        if (from_y < 0 || from_y >= g.height || from_x < 0 || from_x >= g.width) continue;
        visit(to, ((sample * g.height + from_y) * g.width + from_x) * g.channels, tap);
      }
    }
  }
}

template <class Scalar>
void host_depthwise(const ConvolutionGeometry& geometry, std::int64_t samples, const Scalar* from,
                    const Scalar* weights, const Scalar* bias, Scalar* to) {
  const ConvolutionGeometry g = geometry;
  fill_rows<Scalar>({bias, static_cast<std::size_t>(g.channels)}, samples * g.output_positions(), to);
  vectorized([=]() FARANDOLE_INLINED {
    for_each_tap(g, samples, [=](std::int64_t out, std::int64_t in, std::int64_t tap) FARANDOLE_INLINED {
      const Scalar* __restrict x = from + in, * __restrict w = weights + tap * g.channels;
      Scalar* __restrict y = to + out;
      for (std::int64_t c = 0; c < g.channels; ++c) y[c] += x[c] * w[c];
    });
  });
}

template <class Scalar>
void host_depthwise_backward(const ConvolutionGeometry& geometry, std::int64_t samples, const Scalar* gradient,
                             const Scalar* weights, Scalar* to) {
  const ConvolutionGeometry g = geometry;
  std::fill_n(to, samples * g.input_elements(), Scalar{0});
  vectorized([=]() FARANDOLE_INLINED {
    for_each_tap(g, samples, [=](std::int64_t out, std::int64_t in, std::int64_t tap) FARANDOLE_INLINED {
      const Scalar* __restrict dy = gradient + out, * __restrict w = weights + tap * g.channels;
      Scalar* __restrict dx = to + in;
      for (std::int64_t c = 0; c < g.channels; ++c) dx[c] += dy[c] * w[c];
    });
  });
}

/// Sums in double, because a weight has as many terms as there are pixels in the batch.
template <class Scalar>
void host_depthwise_weights(Workspace& workspace, const ConvolutionGeometry& geometry, std::int64_t samples,
                            const Scalar* from, const Scalar* gradient, Scalar* result) {
  const ConvolutionGeometry g = geometry;
  Workspace::Scope scope(workspace);
  const std::span<double> sums = scope.take<double>(static_cast<std::size_t>(g.kernel * g.kernel * g.channels)).host();
  std::ranges::fill(sums, 0.0);
  double* to = sums.data();
  vectorized([=]() FARANDOLE_INLINED {
    for_each_tap(g, samples, [=](std::int64_t out, std::int64_t in, std::int64_t tap) FARANDOLE_INLINED {
      const Scalar* __restrict x = from + in, * __restrict dy = gradient + out;
      double* __restrict sum = to + tap * g.channels;
      for (std::int64_t c = 0; c < g.channels; ++c) sum[c] += static_cast<double>(x[c]) * static_cast<double>(dy[c]);
    });
  });
  std::ranges::transform(sums, result, [](double sum) { return static_cast<Scalar>(sum); });
}

}  // namespace farandole::trainer
