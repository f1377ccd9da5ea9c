// SPDX-License-Identifier: Apache-2.0
// Layers that contain layers: a sequence, and a sum of two branches. Their inner layers' parameters and statistics are
// their own, so that the model sees a container as one layer.
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "farandole/core/error.h"
#include "farandole/trainer/layers.h"
#include "layer_chain.h"
#include "vectorized.h"

namespace farandole::trainer {
namespace {

constexpr std::uint64_t kBodyBranch = 1, kShortcutBranch = 2;

template <class Scalar>
class Sequence final : public Layer<Scalar> {
 public:
  explicit Sequence(LayerList<Scalar> layers) : chain_("sequence", std::move(layers), kBodyBranch) {}

  std::string name() const override { return fmt::format("sequence ({})", chain_.describe()); }
  Shape prepare(const Shape& input) override { return chain_.prepare(input); }
  std::vector<ParameterSpec> parameters() const override { return chain_.parameters(); }
  std::vector<StatisticSpec> statistics() const override { return chain_.statistics(); }
  void bind(const LayerMemory<Scalar>& memory) override { chain_.bind(memory); }
  void forward(const Pass& pass, const Tensor<Scalar>& input, Tensor<Scalar>& output) override {
    chain_.forward(pass, input, output);
  }
  void backward(const Pass& pass, const Tensor<Scalar>& input, const Tensor<Scalar>& output,
                const Tensor<Scalar>& output_gradient, Tensor<Scalar>* input_gradient) override {
    chain_.backward(pass, input, output, output_gradient, input_gradient);
  }

 private:
  LayerChain<Scalar> chain_;
};

template <class Scalar>
class Residual final : public Layer<Scalar> {
 public:
  Residual(LayerList<Scalar> body, LayerList<Scalar> shortcut) : body_("residual body", std::move(body), kBodyBranch) {
    if (!shortcut.empty()) shortcut_.emplace("residual shortcut", std::move(shortcut), kShortcutBranch);
  }

  std::string name() const override {
    return shortcut_ ? fmt::format("residual ({}), shortcut ({})", body_.describe(), shortcut_->describe())
                     : fmt::format("residual ({})", body_.describe());
  }

  Shape prepare(const Shape& input) override {
    output_shape_ = body_.prepare(input);
    const Shape other = shortcut_ ? shortcut_->prepare(input) : input;
    if (output_shape_ != other) {
      throw InvalidArgument(
          fmt::format("residual: expects branches with the same output shape; the body ({}) gives {}, and the shortcut "
                      "({}) gives {}",
                      body_.describe(), trainer::describe(output_shape_),
                      shortcut_ ? shortcut_->describe() : "identity", trainer::describe(other)));
    }
    return output_shape_;
  }

  std::vector<ParameterSpec> parameters() const override {
    std::vector<ParameterSpec> specs;
    append_specs(specs, "body.", body_.parameters());
    if (shortcut_) append_specs(specs, "shortcut.", shortcut_->parameters());
    return specs;
  }
  std::vector<StatisticSpec> statistics() const override {
    std::vector<StatisticSpec> specs;
    append_specs(specs, "body.", body_.statistics());
    if (shortcut_) append_specs(specs, "shortcut.", shortcut_->statistics());
    return specs;
  }

  void bind(const LayerMemory<Scalar>& memory) override {
    const std::size_t parameters = body_.parameters().size(), statistics = body_.statistics().size();
    body_.bind(memory);  // takes the first spans
    if (!shortcut_) return;
    LayerMemory<Scalar> rest = memory;
    drop(rest.parameters, parameters);
    drop(rest.gradients, parameters);
    drop(rest.batch_statistics, statistics);
    drop(rest.moving_statistics, statistics);
    shortcut_->bind(rest);
  }

  void forward(const Pass& pass, const Tensor<Scalar>& input, Tensor<Scalar>& output) override {
    body_output_.resize(input.samples(), output_shape_);
    body_.forward(pass, input, body_output_);
    const Tensor<Scalar>* other = &input;
    if (shortcut_) {
      shortcut_output_.resize(input.samples(), output_shape_);
      shortcut_->forward(pass, input, shortcut_output_);
      other = &shortcut_output_;
    }
    add(body_output_, *other, output);
  }

  void backward(const Pass& pass, const Tensor<Scalar>& input, const Tensor<Scalar>&,
                const Tensor<Scalar>& output_gradient, Tensor<Scalar>* input_gradient) override {
    const bool propagates = input_gradient != nullptr;
    if (propagates) body_gradient_.resize(input.samples(), input.shape());
    body_.backward(pass, input, body_output_, output_gradient, propagates ? &body_gradient_ : nullptr);
    const Tensor<Scalar>* other = &output_gradient;
    if (shortcut_) {
      if (propagates) shortcut_gradient_.resize(input.samples(), input.shape());
      shortcut_->backward(pass, input, shortcut_output_, output_gradient, propagates ? &shortcut_gradient_ : nullptr);
      other = &shortcut_gradient_;
    }
    if (propagates) add(body_gradient_, *other, *input_gradient);
  }

 private:
  template <class Span>
  static void drop(std::vector<Span>& spans, std::size_t count) {
    spans.erase(spans.begin(), spans.begin() + static_cast<std::ptrdiff_t>(count));
  }

  static void add(const Tensor<Scalar>& left, const Tensor<Scalar>& right, Tensor<Scalar>& sum) {
    const std::int64_t size = sum.size();
    const Scalar *one = left.data(), *other = right.data();
    Scalar* to = sum.data();
    vectorized([=]() FARANDOLE_INLINED {
      const Scalar* __restrict a = one, * __restrict b = other;
      Scalar* __restrict y = to;
      for (std::int64_t i = 0; i < size; ++i) y[i] = a[i] + b[i];
    });
  }

  LayerChain<Scalar> body_;
  std::optional<LayerChain<Scalar>> shortcut_;  ///< none: the identity
  Shape output_shape_;
  Tensor<Scalar> body_output_, shortcut_output_;      ///< of the last forward pass
  Tensor<Scalar> body_gradient_, shortcut_gradient_;  ///< scratch memory
};

}  // namespace

template <class Scalar>
std::unique_ptr<Layer<Scalar>> sequence(LayerList<Scalar> layers) {
  return std::make_unique<Sequence<Scalar>>(std::move(layers));
}
template <class Scalar>
std::unique_ptr<Layer<Scalar>> residual(LayerList<Scalar> body, LayerList<Scalar> shortcut) {
  return std::make_unique<Residual<Scalar>>(std::move(body), std::move(shortcut));
}
template std::unique_ptr<Layer<float>> sequence<float>(LayerList<float>);
template std::unique_ptr<Layer<double>> sequence<double>(LayerList<double>);
template std::unique_ptr<Layer<float>> residual<float>(LayerList<float>, LayerList<float>);
template std::unique_ptr<Layer<double>> residual<double>(LayerList<double>, LayerList<double>);

}  // namespace farandole::trainer
