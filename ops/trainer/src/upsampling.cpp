// SPDX-License-Identifier: Apache-2.0
// Upsampling: each pixel of the input is a square of pixels of the output.
#include <fmt/format.h>

#include <algorithm>

#include "farandole/core/error.h"
#include "farandole/trainer/layers.h"
#include "vectorized.h"

namespace farandole::trainer {
namespace {

template <class Scalar>
class Upsample2d final : public Layer<Scalar> {
 public:
  explicit Upsample2d(std::int64_t factor) : factor_(factor) {
    if (factor < 1) throw InvalidArgument(fmt::format("upsample2d: the factor must be at least 1, got {}", factor));
  }
  std::string name() const override { return fmt::format("upsample2d {0}x{0}", factor_); }
  Shape prepare(const Shape& input) override {
    if (input.size() != 3 || elements(input) < 1) {
      throw InvalidArgument(fmt::format("{}: expects images {{height, width, channels}}, the input is {}", name(),
                                        trainer::describe(input)));
    }
    height_ = input[0], width_ = input[1], channels_ = input[2];
    return {factor_ * height_, factor_ * width_, channels_};
  }

  void forward(const Pass&, const Tensor<Scalar>& input, Tensor<Scalar>& output) override {
    const std::int64_t row = factor_ * width_ * channels_;
    Scalar* to = output.data();
    for (std::int64_t y = 0; y < input.samples() * height_; ++y) {
      Scalar* const first = to;
      for (std::int64_t x = 0; x < width_; ++x) {
        const Scalar* from = input.data() + (y * width_ + x) * channels_;
        for (std::int64_t k = 0; k < factor_; ++k) to = std::copy_n(from, channels_, to);
      }
      for (std::int64_t k = 1; k < factor_; ++k) to = std::copy_n(first, row, to);
    }
  }

  void backward(const Pass&, const Tensor<Scalar>&, const Tensor<Scalar>&, const Tensor<Scalar>& output_gradient,
                Tensor<Scalar>* input_gradient) override {
    if (input_gradient == nullptr) return;
    std::fill_n(input_gradient->data(), input_gradient->size(), Scalar{0});
    const std::int64_t pixels = output_gradient.samples() * factor_ * height_ * factor_ * width_, factor = factor_;
    const std::int64_t width = width_, channels = channels_;
    const Scalar* gradient = output_gradient.data();
    Scalar* to = input_gradient->data();
    vectorized([=]() FARANDOLE_INLINED {
      for (std::int64_t pixel = 0; pixel < pixels; ++pixel) {
        const std::int64_t y = pixel / (factor * width) / factor, x = pixel % (factor * width) / factor;
        const Scalar* __restrict dy = gradient + pixel * channels;
        Scalar* __restrict dx = to + (y * width + x) * channels;
        for (std::int64_t c = 0; c < channels; ++c) dx[c] += dy[c];
      }
    });
  }

 private:
  const std::int64_t factor_;
  std::int64_t height_ = 0, width_ = 0, channels_ = 0;
};

}  // namespace

template <class Scalar>
std::unique_ptr<Layer<Scalar>> upsample2d(std::int64_t factor) {
  return std::make_unique<Upsample2d<Scalar>>(factor);
}
template std::unique_ptr<Layer<float>> upsample2d<float>(std::int64_t);
template std::unique_ptr<Layer<double>> upsample2d<double>(std::int64_t);

}  // namespace farandole::trainer
