// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "farandole/core/error.h"
#include "farandole/trainer/layers.h"
#include "farandole/trainer/random.h"
#include "vectorized.h"

namespace farandole::trainer {
namespace {

template <class Scalar>
class Dropout final : public Layer<Scalar> {
 public:
  explicit Dropout(double rate) : rate_(rate) {
    if (!(rate >= 0 && rate < 1)) throw InvalidArgument(fmt::format("dropout: rate must be in [0, 1), got {}", rate));
  }

  std::string name() const override { return fmt::format("dropout {}", rate_); }
  Shape prepare(const Shape& input) override { return input; }

  void forward(const Pass& pass, const Tensor<Scalar>& input, Tensor<Scalar>& output) override {
    if (is_identity(pass)) {
      std::copy_n(input.data(), input.size(), output.data());
      return;
    }
    draw_factors(pass, input);
    multiply(input.data(), output.data());
  }

  void backward(const Pass& pass, const Tensor<Scalar>&, const Tensor<Scalar>&, const Tensor<Scalar>& output_gradient,
                Tensor<Scalar>* input_gradient) override {
    if (input_gradient == nullptr) return;
    if (is_identity(pass)) {
      std::copy_n(output_gradient.data(), output_gradient.size(), input_gradient->data());
      return;
    }
    multiply(output_gradient.data(), input_gradient->data());
  }

 private:
  bool is_identity(const Pass& pass) const { return !pass.training || rate_ == 0; }

  /// Sets factors_ to 0 or 1/(1-rate) for each element.
  void draw_factors(const Pass& pass, const Tensor<Scalar>& input) {
    const auto size = static_cast<std::size_t>(input.size());
    const std::uint64_t stream =
        random_stream(RandomPurpose::kDropout, {static_cast<std::uint64_t>(pass.training_step), pass.layer});
    bits_.resize(size);
    factors_.resize(size);
    CounterRandom(pass.seed, stream)
        .bits(static_cast<std::uint64_t>(pass.first_sample * input.sample_elements()), std::span(bits_));
    const double dropped_below = rate_ * 0x1p32;
    const auto kept = static_cast<Scalar>(1 / (1 - rate_));
    for (std::size_t i = 0; i < size; ++i) factors_[i] = bits_[i] < dropped_below ? Scalar{0} : kept;
  }

  void multiply(const Scalar* from, Scalar* to) const {
    const std::size_t size = factors_.size();
    const Scalar* factors = factors_.data();
    vectorized([=]() FARANDOLE_INLINED {
      const Scalar* __restrict x = from, * __restrict factor = factors;
      Scalar* __restrict y = to;
      for (std::size_t i = 0; i < size; ++i) y[i] = x[i] * factor[i];
    });
  }

  double rate_;
  std::vector<std::uint32_t> bits_;
  std::vector<Scalar> factors_;  ///< factors of the last forward pass in training
};

}  // namespace

template <class Scalar>
std::unique_ptr<Layer<Scalar>> dropout(double rate) {
  return std::make_unique<Dropout<Scalar>>(rate);
}
template std::unique_ptr<Layer<float>> dropout<float>(double);
template std::unique_ptr<Layer<double>> dropout<double>(double);

}  // namespace farandole::trainer
