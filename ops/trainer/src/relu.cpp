// SPDX-License-Identifier: Apache-2.0
#include "farandole/trainer/layers.h"
#include "vectorized.h"

namespace farandole::trainer {
namespace {

template <class Scalar>
class Relu final : public Layer<Scalar> {
 public:
  std::string name() const override { return "relu"; }
  Shape prepare(const Shape& input) override { return input; }

  void forward(const Pass&, const Tensor<Scalar>& input, Tensor<Scalar>& output) override {
    const std::int64_t size = input.size();
    const Scalar* from = input.data();
    Scalar* to = output.data();
    vectorized([=]() FARANDOLE_INLINED {
      const Scalar* __restrict x = from;
      Scalar* __restrict y = to;
      for (std::int64_t i = 0; i < size; ++i) y[i] = Scalar{0} > x[i] ? Scalar{0} : x[i];  // NaN stays NaN
    });
  }

  void backward(const Pass&, const Tensor<Scalar>&, const Tensor<Scalar>& output, const Tensor<Scalar>& output_gradient,
                Tensor<Scalar>* input_gradient) override {
    if (input_gradient == nullptr) return;
    const std::int64_t size = output.size();
    const Scalar *result = output.data(), *from = output_gradient.data();
    Scalar* to = input_gradient->data();
    vectorized([=]() FARANDOLE_INLINED {
      const Scalar* __restrict y = result, * __restrict dy = from;
      Scalar* __restrict dx = to;
      for (std::int64_t i = 0; i < size; ++i) dx[i] = y[i] > Scalar{0} ? dy[i] : Scalar{0};
    });
  }
};

}  // namespace

template <class Scalar>
std::unique_ptr<Layer<Scalar>> relu() {
  return std::make_unique<Relu<Scalar>>();
}
template std::unique_ptr<Layer<float>> relu<float>();
template std::unique_ptr<Layer<double>> relu<double>();

}  // namespace farandole::trainer
