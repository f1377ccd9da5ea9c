// SPDX-License-Identifier: Apache-2.0
// The computations of layers on images on a device.
#pragma once

#include <cstdint>
#include <initializer_list>

#include "device_sums.h"
#include "kernels/images.h"
#include "launcher.h"

namespace farandole::trainer::cuda {

template <class Scalar>
class DeviceImages final : public ImageKernels<Scalar> {
 public:
  /// @param launcher  outlives this object
  explicit DeviceImages(const Launcher& launcher) : launcher_(launcher) {}

  void pool(Pooling pooling, const PoolingWindows& w, std::int64_t samples, const Scalar* x, Scalar* y) const override {
    const std::int64_t count = w.count(samples) * w.channels;
    run(Kernel::kPool, count, {writes(y, count), reads(x, w.input_elements(samples))},
        {count, w.size, w.height, w.width, w.channels, w.output_height, w.output_width,
         static_cast<std::int64_t>(pooling)});
  }
  void pool_backward(Pooling pooling, const PoolingWindows& w, std::int64_t samples, const Scalar* x, const Scalar* y,
                     const Scalar* dy, Scalar* dx) const override {
    const std::int64_t count = w.count(samples) * w.channels, pixels = w.input_elements(samples);
    if (!w.covers_input() && pixels > 0) {
      launcher_.device().fill_zero(dx, static_cast<std::size_t>(pixels) * sizeof(Scalar), launcher_.stream());
    }
    run(Kernel::kPoolBackward, count, {writes(dx, pixels), reads(x, pixels), reads(y, count), reads(dy, count)},
        {count, w.size, w.height, w.width, w.channels, w.output_height, w.output_width,
         static_cast<std::int64_t>(pooling)});
  }

  void max_pool(const StridedWindows& w, std::int64_t samples, const Scalar* x, Scalar* y,
                std::int32_t* places) const override {
    const std::int64_t count = w.count(samples) * w.channels;
    run_windows(Kernel::kStridedMaxPool, w, count,
                {writes(y, count), writes(places, count), reads(x, samples * w.image_elements())});
  }
  void max_pool_backward(const StridedWindows& w, std::int64_t samples, const std::int32_t* places, const Scalar* dy,
                         Scalar* dx) const override {
    const std::int64_t count = w.count(samples) * w.channels, pixels = samples * w.image_elements();
    run_windows(Kernel::kStridedMaxPoolBackward, w, pixels,
                {writes(dx, pixels), reads(places, count), reads(dy, count)});
  }
  void average_pool(const StridedWindows& w, std::int64_t samples, const Scalar* x, Scalar* y) const override {
    const std::int64_t count = w.count(samples) * w.channels;
    run_windows(Kernel::kStridedAveragePool, w, count, {writes(y, count), reads(x, samples * w.image_elements())});
  }
  void average_pool_backward(const StridedWindows& w, std::int64_t samples, const Scalar* dy,
                             Scalar* dx) const override {
    const std::int64_t pixels = samples * w.image_elements();
    run_windows(Kernel::kStridedAveragePoolBackward, w, pixels,
                {writes(dx, pixels), reads(dy, w.count(samples) * w.channels)});
  }

  void average_positions(const PositionSizes& sizes, const Scalar* x, Scalar* y) const override {
    const std::int64_t count = sizes.samples * sizes.channels;
    run(Kernel::kAveragePositions, count, {writes(y, count), reads(x, count * sizes.positions)},
        {count, sizes.positions, sizes.channels});
  }
  void average_positions_backward(const PositionSizes& sizes, const Scalar* dy, Scalar* dx) const override {
    const std::int64_t count = sizes.samples * sizes.channels, elements = count * sizes.positions;
    run(Kernel::kAveragePositionsBackward, elements, {writes(dx, elements), reads(dy, count)},
        {elements, sizes.positions, sizes.channels});
  }

  void depthwise(const ConvolutionGeometry& g, std::int64_t samples, const Scalar* x, const Scalar* weights,
                 const Scalar* bias, Scalar* y) const override {
    const std::int64_t count = outputs(g, samples);
    run_windows(Kernel::kDepthwise, windows_of(g), count,
                {writes(y, count), reads(x, samples * g.input_elements()), reads(weights, g.patch_elements()),
                 reads(bias, g.channels)});
  }
  void depthwise_backward(const ConvolutionGeometry& g, std::int64_t samples, const Scalar* dy, const Scalar* weights,
                          Scalar* dx) const override {
    const std::int64_t pixels = samples * g.input_elements();
    run_windows(Kernel::kDepthwiseBackward, windows_of(g), pixels,
                {writes(dx, pixels), reads(dy, outputs(g, samples)), reads(weights, g.patch_elements())});
  }
  void depthwise_weights(Workspace& workspace, const ConvolutionGeometry& g, std::int64_t samples, const Scalar* x,
                         const Scalar* dy, Scalar* gradient) const override {
    const std::int64_t rows = samples * g.output_positions(), weights = g.patch_elements();
    const std::int64_t partials = partials_of(rows, weights);
    Workspace::Scope scope(workspace);
    double* const partial = scope.take<double>(static_cast<std::size_t>(partials * weights)).data();
    run(Kernel::kDepthwiseWeights, partials * weights,
        {writes(partial, partials * weights), reads(x, samples * g.input_elements()), reads(dy, outputs(g, samples))},
        {partials * weights, g.height, g.width, g.channels, g.kernel, g.stride, g.padding, g.output_height,
         g.output_width, rows, partials});
    run(Kernel::kStorePartials, weights, {writes(gradient, weights), reads(partial, partials * weights)},
        {weights, partials});
  }

  void upsample(const Upsampling& sizes, std::int64_t samples, const Scalar* x, Scalar* y) const override {
    const std::int64_t count = sizes.output_elements(samples);
    run(Kernel::kUpsample, count, {writes(y, count), reads(x, sizes.input_elements(samples))},
        {count, sizes.factor, sizes.width, sizes.channels});
  }
  void upsample_backward(const Upsampling& sizes, std::int64_t samples, const Scalar* dy, Scalar* dx) const override {
    const std::int64_t count = sizes.input_elements(samples);
    run(Kernel::kUpsampleBackward, count, {writes(dx, count), reads(dy, sizes.output_elements(samples))},
        {count, sizes.factor, sizes.width, sizes.channels});
  }

 private:
  static std::int64_t outputs(const ConvolutionGeometry& g, std::int64_t samples) {
    return samples * g.output_positions() * g.channels;
  }
  static StridedWindows windows_of(const ConvolutionGeometry& g) {
    return {g.kernel, g.stride, g.padding, g.height, g.width, g.channels, g.output_height, g.output_width};
  }

  void run(Kernel kernel, std::int64_t threads, std::initializer_list<farandole::cuda::Operand> operands,
           std::initializer_list<std::int64_t> sizes) const {
    launcher_.launch<Scalar>(kernel, threads, operands, sizes);
  }
  void run_windows(Kernel kernel, const StridedWindows& w, std::int64_t threads,
                   std::initializer_list<farandole::cuda::Operand> operands) const {
    run(kernel, threads, operands,
        {threads, w.height, w.width, w.channels, w.size, w.stride, w.padding, w.output_height, w.output_width});
  }

  const Launcher& launcher_;
};

}  // namespace farandole::trainer::cuda
