// SPDX-License-Identifier: Apache-2.0
// The computations of layers on images in host memory.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "kernels/host_depthwise.h"
#include "kernels/host_pooling.h"
#include "kernels/host_strided_pooling.h"
#include "kernels/host_upsampling.h"
#include "kernels/images.h"

namespace farandole::trainer {

template <class Scalar>
class HostImages final : public ImageKernels<Scalar> {
 public:
  void pool(Pooling pooling, const PoolingWindows& windows, std::int64_t samples, const Scalar* x,
            Scalar* y) const override {
    pooling == Pooling::kMaximum ? host_max_pool(windows, windows.count(samples), x, y)
                                 : host_average_pool(windows, windows.count(samples), x, y);
  }
  void pool_backward(Pooling pooling, const PoolingWindows& windows, std::int64_t samples, const Scalar* x,
                     const Scalar* y, const Scalar* dy, Scalar* dx) const override {
    if (!windows.covers_input()) std::fill_n(dx, windows.input_elements(samples), Scalar{0});
    const std::int64_t count = windows.count(samples);
    if (pooling == Pooling::kAverage) return host_average_pool_backward(windows, count, dy, dx);
    std::vector<Scalar> unassigned(static_cast<std::size_t>(windows.channels));
    host_max_pool_backward(windows, count, x, y, dy, dx, unassigned.data());
  }

  void max_pool(const StridedWindows& windows, std::int64_t samples, const Scalar* x, Scalar* y,
                std::int32_t* places) const override {
    host_strided_max_pool(windows, samples, x, y, places);
  }
  void max_pool_backward(const StridedWindows& windows, std::int64_t samples, const std::int32_t* places,
                         const Scalar* dy, Scalar* dx) const override {
    host_strided_max_pool_backward(windows, samples, places, dy, dx);
  }
  void average_pool(const StridedWindows& windows, std::int64_t samples, const Scalar* x, Scalar* y) const override {
    host_strided_average_pool(windows, samples, x, y);
  }
  void average_pool_backward(const StridedWindows& windows, std::int64_t samples, const Scalar* dy,
                             Scalar* dx) const override {
    host_strided_average_pool_backward(windows, samples, dy, dx);
  }

  void average_positions(const PositionSizes& sizes, const Scalar* x, Scalar* y) const override {
    host_average_positions(sizes, x, y);
  }
  void average_positions_backward(const PositionSizes& sizes, const Scalar* dy, Scalar* dx) const override {
    host_average_positions_backward(sizes, dy, dx);
  }

  void depthwise(const ConvolutionGeometry& geometry, std::int64_t samples, const Scalar* x, const Scalar* weights,
                 const Scalar* bias, Scalar* y) const override {
    host_depthwise(geometry, samples, x, weights, bias, y);
  }
  void depthwise_backward(const ConvolutionGeometry& geometry, std::int64_t samples, const Scalar* dy,
                          const Scalar* weights, Scalar* dx) const override {
    host_depthwise_backward(geometry, samples, dy, weights, dx);
  }
  void depthwise_weights(Workspace& workspace, const ConvolutionGeometry& geometry, std::int64_t samples,
                         const Scalar* x, const Scalar* dy, Scalar* gradient) const override {
    host_depthwise_weights(workspace, geometry, samples, x, dy, gradient);
  }

  void upsample(const Upsampling& sizes, std::int64_t samples, const Scalar* x, Scalar* y) const override {
    host_upsample(sizes, samples, x, y);
  }
  void upsample_backward(const Upsampling& sizes, std::int64_t samples, const Scalar* dy, Scalar* dx) const override {
    host_upsample_backward(sizes, samples, dy, dx);
  }
};

}  // namespace farandole::trainer
