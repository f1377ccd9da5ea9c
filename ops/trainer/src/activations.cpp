// SPDX-License-Identifier: Apache-2.0
// Element-wise layers. An activation is a struct with `value(x)` and `gradient(x, y, dy)`, where y = value(x). The
// compiler vectorises activations of comparisons and products; Eigen vectorises those that take exp, tanh or erf.
#include <fmt/format.h>

#include <cmath>
#include <numbers>
#include <utility>

#include "blocks.h"
#include "farandole/core/error.h"
#include "farandole/trainer/layers.h"
#include "vectorized.h"

namespace farandole::trainer {
namespace {

/// An activation of scalars, for `vectorized`.
template <class Scalar>
struct Relu {
  static constexpr bool kByBlocks = false;
  std::string name() const { return "relu"; }
  FARANDOLE_INLINED Scalar value(Scalar x) const { return Scalar{0} > x ? Scalar{0} : x; }  // NaN stays NaN
  FARANDOLE_INLINED Scalar gradient(Scalar, Scalar y, Scalar dy) const { return y > Scalar{0} ? dy : Scalar{0}; }
};

template <class Scalar>
struct LeakyRelu {
  static constexpr bool kByBlocks = false;
  Scalar slope;
  std::string name() const { return fmt::format("leaky_relu {}", slope); }
  FARANDOLE_INLINED Scalar value(Scalar x) const { return x > Scalar{0} ? x : slope * x; }
  FARANDOLE_INLINED Scalar gradient(Scalar x, Scalar, Scalar dy) const { return x > Scalar{0} ? dy : slope * dy; }
};

/// An activation of blocks, for transform_blocks.
template <class Scalar>
struct Gelu {
  using Values = Block<Scalar>;
  static constexpr bool kByBlocks = true;
  std::string name() const { return "gelu"; }
  Values value(const Values& x) const { return x * probability(x); }
  Values gradient(const Values& x, const Values&, const Values& dy) const {
    constexpr auto kPeak = static_cast<Scalar>(std::numbers::inv_sqrtpi / std::numbers::sqrt2);  // 1/sqrt(2 pi)
    const Values density = kPeak * (Scalar(-0.5) * x * x).exp();
    return dy * (probability(x) + x * density);
  }
  /// Distribution function of the standard normal distribution.
  static Values probability(const Values& x) {
    constexpr auto kInverseRoot = static_cast<Scalar>(1 / std::numbers::sqrt2);
    return Scalar(0.5) * (Scalar{1} + (x * kInverseRoot).erf());
  }
};

template <class Scalar>
Block<Scalar> logistic(const Block<Scalar>& x) {
  return (Scalar{1} + (-x).exp()).inverse();
}

template <class Scalar>
struct Silu {
  using Values = Block<Scalar>;
  static constexpr bool kByBlocks = true;
  std::string name() const { return "silu"; }
  Values value(const Values& x) const { return x * logistic(x); }
  Values gradient(const Values& x, const Values&, const Values& dy) const {
    const Values gate = logistic(x);
    return dy * gate * (Scalar{1} + x * (Scalar{1} - gate));
  }
};

template <class Scalar>
struct Sigmoid {
  using Values = Block<Scalar>;
  static constexpr bool kByBlocks = true;
  std::string name() const { return "sigmoid"; }
  Values value(const Values& x) const { return logistic(x); }
  Values gradient(const Values&, const Values& y, const Values& dy) const { return dy * y * (Scalar{1} - y); }
};

template <class Scalar>
struct HyperbolicTangent {
  using Values = Block<Scalar>;
  static constexpr bool kByBlocks = true;
  std::string name() const { return "hyperbolic_tangent"; }
  Values value(const Values& x) const { return x.tanh(); }
  Values gradient(const Values&, const Values& y, const Values& dy) const { return dy * (Scalar{1} - y * y); }
};

template <class Scalar, class Activation>
class ElementWise final : public Layer<Scalar> {
 public:
  explicit ElementWise(Activation activation) : activation_(std::move(activation)) {}
  std::string name() const override { return activation_.name(); }
  Shape prepare(const Shape& input) override { return input; }

  void forward(const Pass&, const Tensor<Scalar>& input, Tensor<Scalar>& output) override {
    const Activation activation = activation_;
    const std::int64_t size = input.size();
    const Scalar* from = input.data();
    Scalar* to = output.data();
    if constexpr (Activation::kByBlocks) {
      transform_blocks(
          size, to, [&](const Block<Scalar>& x) { return activation.value(x); }, from);
    } else {
      vectorized([=]() FARANDOLE_INLINED {
        const Scalar* __restrict x = from;
        Scalar* __restrict y = to;
        for (std::int64_t i = 0; i < size; ++i) y[i] = activation.value(x[i]);
      });
    }
  }

  void backward(const Pass&, const Tensor<Scalar>& input, const Tensor<Scalar>& output,
                const Tensor<Scalar>& output_gradient, Tensor<Scalar>* input_gradient) override {
    if (input_gradient == nullptr) return;
    const Activation activation = activation_;
    const std::int64_t size = output.size();
    const Scalar *values = input.data(), *results = output.data(), *from = output_gradient.data();
    Scalar* to = input_gradient->data();
    if constexpr (Activation::kByBlocks) {
      using Values = Block<Scalar>;
      transform_blocks(
          size, to, [&](const Values& x, const Values& y, const Values& dy) { return activation.gradient(x, y, dy); },
          values, results, from);
    } else {
      vectorized([=]() FARANDOLE_INLINED {
        const Scalar* __restrict x = values, * __restrict y = results, * __restrict dy = from;
        Scalar* __restrict dx = to;
        for (std::int64_t i = 0; i < size; ++i) dx[i] = activation.gradient(x[i], y[i], dy[i]);
      });
    }
  }

 private:
  Activation activation_;
};

template <class Scalar, class Activation>
std::unique_ptr<Layer<Scalar>> element_wise(Activation activation) {
  return std::make_unique<ElementWise<Scalar, Activation>>(std::move(activation));
}

}  // namespace

template <class Scalar>
std::unique_ptr<Layer<Scalar>> relu() {
  return element_wise<Scalar>(Relu<Scalar>{});
}
template <class Scalar>
std::unique_ptr<Layer<Scalar>> leaky_relu(double slope) {
  if (!std::isfinite(slope)) throw InvalidArgument(fmt::format("leaky_relu: the slope must be finite, got {}", slope));
  return element_wise<Scalar>(LeakyRelu<Scalar>{static_cast<Scalar>(slope)});
}
template <class Scalar>
std::unique_ptr<Layer<Scalar>> gelu() {
  return element_wise<Scalar>(Gelu<Scalar>{});
}
template <class Scalar>
std::unique_ptr<Layer<Scalar>> silu() {
  return element_wise<Scalar>(Silu<Scalar>{});
}
template <class Scalar>
std::unique_ptr<Layer<Scalar>> sigmoid() {
  return element_wise<Scalar>(Sigmoid<Scalar>{});
}
template <class Scalar>
std::unique_ptr<Layer<Scalar>> hyperbolic_tangent() {
  return element_wise<Scalar>(HyperbolicTangent<Scalar>{});
}

template std::unique_ptr<Layer<float>> relu<float>();
template std::unique_ptr<Layer<double>> relu<double>();
template std::unique_ptr<Layer<float>> leaky_relu<float>(double);
template std::unique_ptr<Layer<double>> leaky_relu<double>(double);
template std::unique_ptr<Layer<float>> gelu<float>();
template std::unique_ptr<Layer<double>> gelu<double>();
template std::unique_ptr<Layer<float>> silu<float>();
template std::unique_ptr<Layer<double>> silu<double>();
template std::unique_ptr<Layer<float>> sigmoid<float>();
template std::unique_ptr<Layer<double>> sigmoid<double>();
template std::unique_ptr<Layer<float>> hyperbolic_tangent<float>();
template std::unique_ptr<Layer<double>> hyperbolic_tangent<double>();

}  // namespace farandole::trainer
