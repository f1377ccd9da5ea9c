// SPDX-License-Identifier: Apache-2.0
// Pooling over windows that overlap, or that reach over the edge of the image. Windows that do neither have the faster
// kernels of pooling.cpp.
#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "farandole/core/error.h"
#include "farandole/trainer/layers.h"
#include "vectorized.h"

namespace farandole::trainer {
namespace {

/// A window of a sample: its pixels inside the image.
struct Window {
  std::int64_t top = 0, bottom = 0, left = 0, right = 0;
  std::int64_t pixels() const { return (bottom - top) * (right - left); }
};

struct PoolGeometry {
  std::int64_t size = 0, stride = 0, padding = 0;
  std::int64_t height = 0, width = 0, channels = 0, output_height = 0, output_width = 0;

  std::int64_t image_elements() const { return height * width * channels; }
  std::int64_t count(std::int64_t samples) const { return samples * output_height * output_width; }
  std::int64_t sample_of(std::int64_t window) const { return window / (output_height * output_width); }
  /// The window of this number; windows are counted over all samples in row order. No window is empty, because the
  /// padding is less than the size.
  Window window(std::int64_t number) const {
    const std::int64_t top = number / output_width % output_height * stride - padding;
    const std::int64_t left = number % output_width * stride - padding;
    return {std::max<std::int64_t>(top, 0), std::min(top + size, height), std::max<std::int64_t>(left, 0),
            std::min(left + size, width)};
  }
};

template <class Scalar>
class StridedPool : public Layer<Scalar> {
 public:
  StridedPool(std::string kind, const Pool2dOptions& options) : kind_(std::move(kind)) {
    geometry_.size = options.size;
    geometry_.stride = options.stride;
    geometry_.padding = options.padding;
  }
  std::string name() const override {
    const PoolGeometry& g = geometry_;
    return fmt::format("{0} {1}x{1}, stride {2}, padding {3}", kind_, g.size, g.stride, g.padding);
  }
  Shape prepare(const Shape& input) override {
    PoolGeometry& g = geometry_;
    const std::int64_t around = 2 * g.padding;
    if (input.size() != 3 || input[0] + around < g.size || input[1] + around < g.size || input[2] < 1) {
      throw InvalidArgument(
          fmt::format("{}: expects images {{height, width, channels}} that are, with the padding, at least {}x{}; the "
                      "input is {}",
                      name(), g.size, g.size, trainer::describe(input)));
    }
    g.height = input[0], g.width = input[1], g.channels = input[2];
    g.output_height = (g.height + around - g.size) / g.stride + 1;
    g.output_width = (g.width + around - g.size) / g.stride + 1;
    return {g.output_height, g.output_width, g.channels};
  }

 protected:
  std::string kind_;
  PoolGeometry geometry_;
};

template <class Scalar>
class StridedMaxPool final : public StridedPool<Scalar> {
 public:
  explicit StridedMaxPool(const Pool2dOptions& options) : StridedPool<Scalar>("max_pool2d", options) {}

  void forward(const Pass&, const Tensor<Scalar>& input, Tensor<Scalar>& output) override {
    const PoolGeometry g = this->geometry_;
    const std::int64_t count = g.count(input.samples());
    places_.resize(static_cast<std::size_t>(output.size()));
    const Scalar* from = input.data();
    Scalar* to = output.data();
    std::int32_t* places = places_.data();
    vectorized([=]() FARANDOLE_INLINED {
      for (std::int64_t number = 0; number < count; ++number) {
        const Window window = g.window(number);
        const Scalar* image = from + g.sample_of(number) * g.image_elements();
        Scalar* __restrict best = to + number * g.channels;
        std::int32_t* __restrict at = places + number * g.channels;
        const std::int64_t first = window.top * g.width + window.left;
        for (std::int64_t c = 0; c < g.channels; ++c) {
          best[c] = image[first * g.channels + c];
          at[c] = static_cast<std::int32_t>(first);
        }
        for (std::int64_t y = window.top; y < window.bottom; ++y) {
          for (std::int64_t pixel = y * g.width + window.left; pixel < y * g.width + window.right; ++pixel) {
            const Scalar* __restrict x = image + pixel * g.channels;
            for (std::int64_t c = 0; c < g.channels; ++c) {
              const bool better = (x[c] > best[c]) | (x[c] != x[c]);  // NaN wins
              best[c] = better ? x[c] : best[c];
              at[c] = better ? static_cast<std::int32_t>(pixel) : at[c];
            }
          }
        }
      }
    });
  }

  void backward(const Pass&, const Tensor<Scalar>& input, const Tensor<Scalar>&, const Tensor<Scalar>& output_gradient,
                Tensor<Scalar>* input_gradient) override {
    if (input_gradient == nullptr) return;
    const PoolGeometry& g = this->geometry_;
    std::fill_n(input_gradient->data(), input_gradient->size(), Scalar{0});
    for (std::int64_t number = 0; number < g.count(input.samples()); ++number) {
      const Scalar* dy = output_gradient.data() + number * g.channels;
      const std::int32_t* at = places_.data() + number * g.channels;
      Scalar* dx = input_gradient->data() + g.sample_of(number) * g.image_elements();
      for (std::int64_t c = 0; c < g.channels; ++c) dx[at[c] * g.channels + c] += dy[c];
    }
  }

 private:
  std::vector<std::int32_t> places_;  ///< pixel of each maximum of the last forward pass
};

template <class Scalar>
class StridedAveragePool final : public StridedPool<Scalar> {
 public:
  explicit StridedAveragePool(const Pool2dOptions& options) : StridedPool<Scalar>("average_pool2d", options) {}

  void forward(const Pass&, const Tensor<Scalar>& input, Tensor<Scalar>& output) override {
    const PoolGeometry g = this->geometry_;
    const std::int64_t count = g.count(input.samples());
    const Scalar* from = input.data();
    Scalar* to = output.data();
    vectorized([=]() FARANDOLE_INLINED {
      for (std::int64_t number = 0; number < count; ++number) {
        const Window window = g.window(number);
        const Scalar* image = from + g.sample_of(number) * g.image_elements();
        const Scalar share = Scalar{1} / static_cast<Scalar>(window.pixels());
        Scalar* __restrict sum = to + number * g.channels;
        for (std::int64_t c = 0; c < g.channels; ++c) sum[c] = 0;
        for (std::int64_t y = window.top; y < window.bottom; ++y) {
          for (std::int64_t pixel = y * g.width + window.left; pixel < y * g.width + window.right; ++pixel) {
            const Scalar* __restrict x = image + pixel * g.channels;
            for (std::int64_t c = 0; c < g.channels; ++c) sum[c] += x[c];
          }
        }
        for (std::int64_t c = 0; c < g.channels; ++c) sum[c] *= share;
      }
    });
  }

  void backward(const Pass&, const Tensor<Scalar>& input, const Tensor<Scalar>&, const Tensor<Scalar>& output_gradient,
                Tensor<Scalar>* input_gradient) override {
    if (input_gradient == nullptr) return;
    std::fill_n(input_gradient->data(), input_gradient->size(), Scalar{0});
    const PoolGeometry g = this->geometry_;
    const std::int64_t count = g.count(input.samples());
    const Scalar* gradient = output_gradient.data();
    Scalar* to = input_gradient->data();
    vectorized([=]() FARANDOLE_INLINED {
      for (std::int64_t number = 0; number < count; ++number) {
        const Window window = g.window(number);
        Scalar* image = to + g.sample_of(number) * g.image_elements();
        const Scalar share = Scalar{1} / static_cast<Scalar>(window.pixels());
        const Scalar* __restrict dy = gradient + number * g.channels;
        for (std::int64_t y = window.top; y < window.bottom; ++y) {
          for (std::int64_t pixel = y * g.width + window.left; pixel < y * g.width + window.right; ++pixel) {
            Scalar* __restrict dx = image + pixel * g.channels;
            for (std::int64_t c = 0; c < g.channels; ++c) dx[c] += dy[c] * share;
          }
        }
      }
    });
  }
};

/// Returns the options with their stride. @throws InvalidArgument
Pool2dOptions checked(const char* kind, Pool2dOptions options) {
  if (options.size < 1 || options.stride < 0 || options.padding < 0 || options.padding >= options.size) {
    throw InvalidArgument(
        fmt::format("{}: the size must be at least 1, the stride at least 0, and the padding at least 0 and less than "
                    "the size; got {}, {} and {}",
                    kind, options.size, options.stride, options.padding));
  }
  if (options.stride == 0) options.stride = options.size;
  return options;
}

bool is_plain(const Pool2dOptions& options) {
  return options.stride == options.size && options.padding == 0;
}

}  // namespace

template <class Scalar>
std::unique_ptr<Layer<Scalar>> max_pool2d(const Pool2dOptions& options) {
  const Pool2dOptions all = checked("max_pool2d", options);
  if (is_plain(all)) return max_pool2d<Scalar>(all.size);
  return std::make_unique<StridedMaxPool<Scalar>>(all);
}
template <class Scalar>
std::unique_ptr<Layer<Scalar>> average_pool2d(const Pool2dOptions& options) {
  const Pool2dOptions all = checked("average_pool2d", options);
  if (is_plain(all)) return average_pool2d<Scalar>(all.size);
  return std::make_unique<StridedAveragePool<Scalar>>(all);
}
template std::unique_ptr<Layer<float>> max_pool2d<float>(const Pool2dOptions&);
template std::unique_ptr<Layer<double>> max_pool2d<double>(const Pool2dOptions&);
template std::unique_ptr<Layer<float>> average_pool2d<float>(const Pool2dOptions&);
template std::unique_ptr<Layer<double>> average_pool2d<double>(const Pool2dOptions&);

}  // namespace farandole::trainer
