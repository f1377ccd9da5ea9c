// SPDX-License-Identifier: Apache-2.0
// Pooling over windows that do not overlap. Rows and columns left over at the right and bottom edge belong to no
// window.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "farandole/core/error.h"
#include "farandole/trainer/layers.h"
#include "vectorized.h"

namespace farandole::trainer {
namespace {

/// Shapes of a pooling, and positions of its windows.
struct Windows {
  std::int64_t size = 0;  ///< width and height of a window, in pixels
  std::int64_t height = 0, width = 0, channels = 0, output_height = 0, output_width = 0;

  Shape prepare(const std::string& name, const Shape& input) {
    if (input.size() != 3 || input[0] < size || input[1] < size) {
      throw InvalidArgument(
          fmt::format("{0}: expects images {{height, width, channels}} of at least {1}x{1}, the input is {2}", name,
                      size, describe(input)));
    }
    height = input[0], width = input[1], channels = input[2];
    output_height = height / size, output_width = width / size;
    return {output_height, output_width, channels};
  }

  /// Offset of window `window` in the input, in elements; windows are counted over all samples in row order.
  std::int64_t input_offset(std::int64_t window) const {
    const std::int64_t x = window % output_width, row = window / output_width;
    const std::int64_t y = row % output_height, sample = row / output_height;
    return ((sample * height + y * size) * width + x * size) * channels;
  }
  std::int64_t row_elements() const { return width * channels; }
  std::int64_t count(std::int64_t samples) const { return samples * output_height * output_width; }
  bool covers_input() const { return height % size == 0 && width % size == 0; }
};

template <class Scalar>
class Pool : public Layer<Scalar> {
 public:
  Pool(std::string kind, std::int64_t size) : kind_(std::move(kind)) {
    if (size < 1) throw InvalidArgument(fmt::format("{}: the window must be at least 1x1, got {}", kind_, size));
    windows_.size = size;
  }
  std::string name() const override { return fmt::format("{0} {1}x{1}", kind_, windows_.size); }
  Shape prepare(const Shape& input) override { return windows_.prepare(name(), input); }

 protected:
  /// Sets the gradient of elements outside all windows to 0.
  void clear_rest(Tensor<Scalar>& input_gradient) const {
    if (!windows_.covers_input()) std::fill_n(input_gradient.data(), input_gradient.size(), Scalar{0});
  }

  std::string kind_;
  Windows windows_;
};

/// Backward passes the gradient to the first maximum in row order. Backward finds the maximum again by comparing input
/// and output, which costs less than storing its position in forward.
template <class Scalar>
class MaxPool2d final : public Pool<Scalar> {
 public:
  explicit MaxPool2d(std::int64_t size) : Pool<Scalar>("max_pool2d", size) {}

  void forward(const Pass&, const Tensor<Scalar>& input, Tensor<Scalar>& output) override {
    const Windows w = this->windows_;
    const std::int64_t count = w.count(input.samples());
    const Scalar* from = input.data();
    Scalar* to = output.data();
    vectorized([=]() FARANDOLE_INLINED {
      for (std::int64_t window = 0; window < count; ++window) {
        const Scalar* corner = from + w.input_offset(window);
        Scalar* __restrict best = to + window * w.channels;
        for (std::int64_t c = 0; c < w.channels; ++c) best[c] = corner[c];
        for (std::int64_t place = 1; place < w.size * w.size; ++place) {
          const Scalar* __restrict x = corner + place / w.size * w.row_elements() + place % w.size * w.channels;
          for (std::int64_t c = 0; c < w.channels; ++c) {
            const bool better = (x[c] > best[c]) | (x[c] != x[c]);  // NaN wins
            best[c] = better ? x[c] : best[c];
          }
        }
      }
    });
  }

  void backward(const Pass&, const Tensor<Scalar>& input, const Tensor<Scalar>& output,
                const Tensor<Scalar>& output_gradient, Tensor<Scalar>* input_gradient) override {
    if (input_gradient == nullptr) return;
    this->clear_rest(*input_gradient);
    const Windows w = this->windows_;
    const std::int64_t count = w.count(input.samples());
    const Scalar *from = input.data(), *best = output.data(), *gradient = output_gradient.data();
    Scalar* to = input_gradient->data();
    left_.resize(static_cast<std::size_t>(w.channels));
    Scalar* unassigned = left_.data();
    vectorized([=]() FARANDOLE_INLINED {
      for (std::int64_t window = 0; window < count; ++window) {
        const std::int64_t corner = w.input_offset(window);
        const Scalar* __restrict y = best + window * w.channels;
        const Scalar* __restrict dy = gradient + window * w.channels;
        Scalar* __restrict left = unassigned;
        for (std::int64_t c = 0; c < w.channels; ++c) left[c] = dy[c];
        for (std::int64_t place = 0; place < w.size * w.size; ++place) {
          const std::int64_t offset = corner + place / w.size * w.row_elements() + place % w.size * w.channels;
          const Scalar* __restrict x = from + offset;
          Scalar* __restrict dx = to + offset;
          for (std::int64_t c = 0; c < w.channels; ++c) {
            const bool first = x[c] == y[c];
            const Scalar rest = left[c];
            dx[c] = first ? rest : Scalar{0};
            left[c] = first ? Scalar{0} : rest;
          }
        }
      }
    });
  }

 private:
  std::vector<Scalar> left_;  ///< per channel: gradient of the window; 0 once its maximum is found
};

template <class Scalar>
class AveragePool2d final : public Pool<Scalar> {
 public:
  explicit AveragePool2d(std::int64_t size) : Pool<Scalar>("average_pool2d", size) {}

  void forward(const Pass&, const Tensor<Scalar>& input, Tensor<Scalar>& output) override {
    const Windows w = this->windows_;
    const std::int64_t count = w.count(input.samples());
    const Scalar factor = share();
    const Scalar* from = input.data();
    Scalar* to = output.data();
    vectorized([=]() FARANDOLE_INLINED {
      for (std::int64_t window = 0; window < count; ++window) {
        const Scalar* corner = from + w.input_offset(window);
        Scalar* __restrict sum = to + window * w.channels;
        for (std::int64_t c = 0; c < w.channels; ++c) sum[c] = 0;
        for (std::int64_t place = 0; place < w.size * w.size; ++place) {
          const Scalar* __restrict x = corner + place / w.size * w.row_elements() + place % w.size * w.channels;
          for (std::int64_t c = 0; c < w.channels; ++c) sum[c] += x[c];
        }
        for (std::int64_t c = 0; c < w.channels; ++c) sum[c] *= factor;
      }
    });
  }

  void backward(const Pass&, const Tensor<Scalar>& input, const Tensor<Scalar>&, const Tensor<Scalar>& output_gradient,
                Tensor<Scalar>* input_gradient) override {
    if (input_gradient == nullptr) return;
    this->clear_rest(*input_gradient);
    const Windows w = this->windows_;
    const std::int64_t count = w.count(input.samples());
    const Scalar factor = share();
    const Scalar* gradient = output_gradient.data();
    Scalar* to = input_gradient->data();
    vectorized([=]() FARANDOLE_INLINED {
      for (std::int64_t window = 0; window < count; ++window) {
        Scalar* corner = to + w.input_offset(window);
        const Scalar* __restrict dy = gradient + window * w.channels;
        for (std::int64_t place = 0; place < w.size * w.size; ++place) {
          Scalar* __restrict dx = corner + place / w.size * w.row_elements() + place % w.size * w.channels;
          for (std::int64_t c = 0; c < w.channels; ++c) dx[c] = dy[c] * factor;
        }
      }
    });
  }

 private:
  Scalar share() const { return Scalar{1} / static_cast<Scalar>(this->windows_.size * this->windows_.size); }
};

}  // namespace

template <class Scalar>
std::unique_ptr<Layer<Scalar>> max_pool2d(std::int64_t size) {
  return std::make_unique<MaxPool2d<Scalar>>(size);
}
template <class Scalar>
std::unique_ptr<Layer<Scalar>> average_pool2d(std::int64_t size) {
  return std::make_unique<AveragePool2d<Scalar>>(size);
}
template std::unique_ptr<Layer<float>> max_pool2d<float>(std::int64_t);
template std::unique_ptr<Layer<double>> max_pool2d<double>(std::int64_t);
template std::unique_ptr<Layer<float>> average_pool2d<float>(std::int64_t);
template std::unique_ptr<Layer<double>> average_pool2d<double>(std::int64_t);

}  // namespace farandole::trainer
