// SPDX-License-Identifier: Apache-2.0
// Multi-head self-attention. For each sample and head, with d units per head and s = 1/sqrt(d):
//   forward    P = softmax(s Q K^T), a row per position;  C = P V
//   backward   dV = P^T dC;  dP = dC V^T;  dS = s P (dP - rowsum(dP P)), element by element;  dQ = dS K;  dK = dS^T Q
// Q, K and V of all heads lie beside each other in a row of 3 * units, and C in a row of units, so that a head is a
// matrix with a stride. On one thread, with 128 positions and 64 units, oneDNN's sgemm computes Q K^T in 11 us and
// Eigen in 58 us, so heads use the same product as dense layers. Source: Vaswani et al., NeurIPS 2017.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "blocks.h"
#include "farandole/core/error.h"
#include "farandole/trainer/layers.h"
#include "matrix_product.h"
#include "scratch.h"

namespace farandole::trainer {
namespace {

template <class Scalar>
class Attention final : public Layer<Scalar> {
 public:
  explicit Attention(const AttentionOptions& options) : options_(options) {
    if (options.heads < 1) {
      throw InvalidArgument(fmt::format("attention: heads must be at least 1, got {}", options.heads));
    }
  }

  std::string name() const override {
    return fmt::format("attention, {} heads{}", options_.heads, options_.causal ? ", causal" : "");
  }

  Shape prepare(const Shape& input) override {
    if (input.size() != 2 || elements(input) < 1 || input[1] % options_.heads != 0) {
      throw InvalidArgument(
          fmt::format("{}: expects sequences {{length, units}} with units a multiple of {}, the input is {}", name(),
                      options_.heads, trainer::describe(input)));
    }
    length_ = input[0], units_ = input[1], head_units_ = units_ / options_.heads;
    return input;
  }

  std::vector<ParameterSpec> parameters() const override {
    return {{"qkv_weight", {units_, 3 * units_}, Initial::kUniformFanIn, units_, true},
            {"qkv_bias", {3 * units_}, Initial::kZero, 1, false},
            {"output_weight", {units_, units_}, Initial::kUniformFanIn, units_, true},
            {"output_bias", {units_}, Initial::kZero, 1, false}};
  }
  /// The products with the weights, 8 L U^2, and Q K^T and P V, 4 L^2 U; of a causal layer too, which computes all
  /// scores.
  double flops() const override {
    const auto length = static_cast<double>(length_), units = static_cast<double>(units_);
    return 8 * length * units * units + 4 * length * length * units;
  }
  void bind(const LayerMemory<Scalar>& memory) override { memory_ = memory; }

  void forward(const Pass&, const Tensor<Scalar>& input, Tensor<Scalar>& output) override {
    const std::int64_t samples = input.samples(), rows = samples * length_;
    if (samples == 0) return;
    qkv_.resize(samples, {length_, 3 * units_});
    context_.resize(samples, {length_, units_});
    probabilities_.resize(samples, {options_.heads, length_, length_});
    fill_rows<Scalar>(memory_.parameters[1].host(), rows, qkv_.data());
    multiply(Factor<Scalar>{input.data(), rows, units_}, qkv_weights(), true, qkv_.data());
    for (std::int64_t sample = 0; sample < samples; ++sample) {
      for (std::int64_t head = 0; head < options_.heads; ++head) {
        Scalar* scores = probabilities_.data() + (sample * options_.heads + head) * length_ * length_;
        multiply(part(kQuery, sample, head), part(kKey, sample, head).transpose(), false, scores);
        softmax(scores);
        multiply(Factor<Scalar>{scores, length_, length_}, part(kValue, sample, head), false,
                 context_.data() + context_offset(sample, head), units_);
      }
    }
    fill_rows<Scalar>(memory_.parameters[3].host(), rows, output.data());
    multiply(Factor<Scalar>{context_.data(), rows, units_}, output_weights(), true, output.data());
  }

  void backward(const Pass& pass, const Tensor<Scalar>& input, const Tensor<Scalar>&,
                const Tensor<Scalar>& output_gradient, Tensor<Scalar>* input_gradient) override {
    const std::int64_t samples = input.samples(), rows = samples * length_;
    if (samples == 0) return clear_gradients(memory_);
    const Factor<Scalar> gradient{output_gradient.data(), rows, units_};
    Workspace::Scope scope(pass.execution.workspace());
    const auto take = [&](std::int64_t count) {
      return scope.take<Scalar>(static_cast<std::size_t>(count)).host().data();
    };
    const Gradients gradients{take(rows * 3 * units_), take(rows * units_), take(length_ * length_)};
    multiply(Factor<Scalar>{context_.data(), rows, units_, true}, gradient, false, memory_.gradients[2].data());
    sum_rows(output_gradient.data(), rows, memory_.gradients[3].host());
    multiply(gradient, output_weights().transpose(), false, gradients.context);
    for (std::int64_t sample = 0; sample < samples; ++sample) {
      for (std::int64_t head = 0; head < options_.heads; ++head) propagate(gradients, sample, head);
    }
    const Factor<Scalar> by_qkv{gradients.qkv, rows, 3 * units_};
    multiply(Factor<Scalar>{input.data(), rows, units_, true}, by_qkv, false, memory_.gradients[0].data());
    sum_rows(gradients.qkv, rows, memory_.gradients[1].host());
    if (input_gradient != nullptr) multiply(by_qkv, qkv_weights().transpose(), false, input_gradient->data());
  }

 private:
  /// Scratch memory of a backward pass.
  struct Gradients {
    Scalar *qkv, *context;
    Scalar* scores;  ///< of one head
  };
  /// Places in a row of qkv_, in multiples of `units`.
  static constexpr std::int64_t kQuery = 0, kKey = 1, kValue = 2;

  Factor<Scalar> qkv_weights() const { return {memory_.parameters[0].data(), units_, 3 * units_}; }
  Factor<Scalar> output_weights() const { return {memory_.parameters[2].data(), units_, units_}; }
  std::int64_t qkv_offset(std::int64_t place, std::int64_t sample, std::int64_t head) const {
    return sample * length_ * 3 * units_ + place * units_ + head * head_units_;
  }
  std::int64_t context_offset(std::int64_t sample, std::int64_t head) const {
    return sample * length_ * units_ + head * head_units_;
  }
  Factor<Scalar> part(std::int64_t place, std::int64_t sample, std::int64_t head) const {
    return {qkv_.data() + qkv_offset(place, sample, head), length_, head_units_, false, 3 * units_};
  }
  Scalar scale() const { return static_cast<Scalar>(1 / std::sqrt(static_cast<double>(head_units_))); }
  /// Number of positions to which position `row` attends.
  std::int64_t visible(std::int64_t row) const { return options_.causal ? row + 1 : length_; }

  /// Replaces the scores of a head by their probabilities, row by row.
  void softmax(Scalar* scores) const {
    const Scalar factor = scale();
    for (std::int64_t row = 0; row < length_; ++row) {
      Scalar* values = scores + row * length_;
      const Scalar largest = *std::max_element(values, values + visible(row));
      for (std::int64_t k = 0; k < visible(row); ++k) values[k] = (values[k] - largest) * factor;
      std::fill(values + visible(row), values + length_, Scalar{0});
    }
    transform_blocks(
        length_ * length_, scores, [](const Block<Scalar>& x) -> Block<Scalar> { return x.exp(); }, scores);
    for (std::int64_t row = 0; row < length_; ++row) {
      Scalar* values = scores + row * length_;
      double sum = 0;
      for (std::int64_t k = 0; k < visible(row); ++k) sum += static_cast<double>(values[k]);
      const auto inverse = static_cast<Scalar>(1 / sum);
      for (std::int64_t k = 0; k < visible(row); ++k) values[k] *= inverse;
      std::fill(values + visible(row), values + length_, Scalar{0});
    }
  }

  /// Computes the gradients of Q, K and V of a head.
  void propagate(const Gradients& gradients, std::int64_t sample, std::int64_t head) const {
    const Scalar* probabilities = probabilities_.data() + (sample * options_.heads + head) * length_ * length_;
    const Factor<Scalar> by_context{gradients.context + context_offset(sample, head), length_, head_units_, false,
                                    units_};
    const auto result = [&](std::int64_t place) { return gradients.qkv + qkv_offset(place, sample, head); };
    const std::int64_t stride = 3 * units_;
    multiply(Factor<Scalar>{probabilities, length_, length_, true}, by_context, false, result(kValue), stride);
    multiply(by_context, part(kValue, sample, head).transpose(), false, gradients.scores);
    const Scalar factor = scale();
    for (std::int64_t row = 0; row < length_; ++row) {
      const Scalar* p = probabilities + row * length_;
      Scalar* gradient = gradients.scores + row * length_;
      double product = 0;
      for (std::int64_t k = 0; k < visible(row); ++k) {
        product += static_cast<double>(gradient[k]) * static_cast<double>(p[k]);
      }
      const auto mean = static_cast<Scalar>(product);
      for (std::int64_t k = 0; k < length_; ++k) gradient[k] = p[k] * (gradient[k] - mean) * factor;
    }
    const Factor<Scalar> by_scores{gradients.scores, length_, length_};
    multiply(by_scores, part(kKey, sample, head), false, result(kQuery), stride);
    multiply(by_scores.transpose(), part(kQuery, sample, head), false, result(kKey), stride);
  }

  const AttentionOptions options_;
  std::int64_t length_ = 0, units_ = 0, head_units_ = 0;
  LayerMemory<Scalar> memory_;
  Tensor<Scalar> qkv_, probabilities_, context_;  ///< of the last forward pass
};

}  // namespace

template <class Scalar>
std::unique_ptr<Layer<Scalar>> attention(const AttentionOptions& options) {
  return std::make_unique<Attention<Scalar>>(options);
}
template std::unique_ptr<Layer<float>> attention<float>(const AttentionOptions&);
template std::unique_ptr<Layer<double>> attention<double>(const AttentionOptions&);

}  // namespace farandole::trainer
