// SPDX-License-Identifier: Apache-2.0
// Multi-head self-attention. For each sample and head, with d units per head and s = 1/sqrt(d):
//   forward    P = softmax(s Q K^T), a row per position;  C = P V
//   backward   dV = P^T dC;  dP = dC V^T;  dS = s P (dP - rowsum(dP P)), element by element;  dQ = dS K;  dK = dS^T Q
// Q, K and V of all heads lie beside each other in a row of 3 * units, and C in a row of units, so that a head is a
// matrix with a stride. On devices a library may have fused kernels (FusedAttention), which compute all that from Q, K
// and V without storing P. On one thread, with 128 positions and 64 units, oneDNN's sgemm computes Q K^T in 11 us and
// Eigen in 58 us, so heads use the same product as dense layers. Source: Vaswani et al., NeurIPS 2017.
#include <fmt/format.h>

#include <cmath>

#include "farandole/core/error.h"
#include "farandole/trainer/layers.h"
#include "kernels/kernels.h"
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
  /// The products with the weights, 8 L U^2, and Q K^T and P V, 4 L^2 U; all scores of a causal layer, too.
  double flops() const override {
    const auto length = static_cast<double>(length_), units = static_cast<double>(units_);
    return 8 * length * units * units + 4 * length * length * units;
  }
  /// Without the gradient of the input, the product with `qkv_weight` is left out, 6 L U^2.
  double backward_flops(bool input_gradient) const override {
    const auto length = static_cast<double>(length_), units = static_cast<double>(units_);
    return 2 * flops() - (input_gradient ? 0 : 6 * length * units * units);
  }
  void bind(const LayerMemory<Scalar>& memory) override { memory_ = memory; }

  DeviceForm device_form() const override { return DeviceForm::kGraphs; }

  void forward(const Pass& pass, const Tensor<Scalar>& input, Tensor<Scalar>& output) override {
    const std::int64_t samples = input.samples(), rows = samples * length_;
    if (samples == 0) return;
    place(pass.execution);
    const Kernels<Scalar>& kernels = kernels_of<Scalar>(pass.execution);
    FusedAttention<Scalar>* const fused = kernels.sequence().fused_attention();
    is_fused_ = fused != nullptr && fused->fuses(pass.execution.workspace(), form(samples), pass.training);
    if (is_fused_) {
      attend_fused(pass, *fused, input);
    } else {
      attend(pass, input);
    }
    kernels.fill_rows(memory_.parameters[3].data(), rows, units_, output.data());
    kernels.multiply(context(rows), output_weights(), true, output.data());
  }

  void backward(const Pass& pass, const Tensor<Scalar>& input, const Tensor<Scalar>&,
                const Tensor<Scalar>& output_gradient, Tensor<Scalar>* input_gradient) override {
    const std::int64_t samples = input.samples(), rows = samples * length_;
    const Kernels<Scalar>& kernels = kernels_of<Scalar>(pass.execution);
    if (samples == 0) return clear_gradients(kernels, memory_);
    Workspace::Scope scope(pass.execution.workspace());
    const Factor<Scalar> gradient = kernels.rounded(scope, {output_gradient.data(), rows, units_});
    const auto take = [&](std::int64_t count) { return scope.take<Scalar>(static_cast<std::size_t>(count)).data(); };
    const std::int64_t squares = is_fused_ ? 0 : samples_of_chunk(pass, samples) * options_.heads * length_ * length_;
    const Gradients gradients{take(rows * 3 * units_), take(rows * units_), take(squares)};
    kernels.multiply(context(rows).transpose(), gradient, false, memory_.gradients[2].data());
    kernels.sum_rows(output_gradient.data(), rows, units_, memory_.gradients[3].data());
    kernels.multiply(gradient, output_weights().transpose(), false, gradients.context);
    Factor<Scalar> by_qkv{gradients.qkv, rows, 3 * units_};
    if (is_fused_) {
      Scalar* const rounded = take(halved(rows * 3 * units_));
      kernels.sequence().fused_attention()->backward(pass.execution.workspace(), form(samples), fused_memory(),
                                                     gradients.context, rounded, gradients.qkv);
      by_qkv.rounded = rounded;
    } else {
      for_each_chunk(pass, samples, [&](const Chunk& chunk) { propagate(pass, gradients, chunk); });
      by_qkv = kernels.rounded(scope, by_qkv);
    }
    kernels.multiply({input.data(), rows, units_, true}, by_qkv, false, memory_.gradients[0].data());
    kernels.sum_rows(gradients.qkv, rows, 3 * units_, memory_.gradients[1].data());
    if (input_gradient != nullptr) kernels.multiply(by_qkv, qkv_weights().transpose(), false, input_gradient->data());
  }

 private:
  /// Scratch memory of a backward pass.
  struct Gradients {
    Scalar *qkv, *context;
    Scalar* scores;  ///< of the heads of a chunk
  };
  /// Samples whose heads are computed together.
  struct Chunk {
    std::int64_t first = 0, samples = 0;
  };
  using Steps = BatchOfProducts::Steps;
  /// Places in a row of qkv_, in multiples of `units`.
  static constexpr std::int64_t kQuery = 0, kKey = 1, kValue = 2;
  /// Matrices of heads: in qkv_, in probabilities_, in context_.
  enum class Matrices { kQkv, kScores, kContext };
  static constexpr Matrices kQkvSteps = Matrices::kQkv, kScoreSteps = Matrices::kScores,
                            kContextSteps = Matrices::kContext;

  void place(const Execution& execution) {
    if (!execution_.changes(execution)) return;
    for (Tensor<Scalar>* tensor : {&qkv_, &probabilities_, &context_, &statistics_}) {
      *tensor = Tensor<Scalar>(execution.memory());
    }
  }
  /// In host memory one sample at a time, whose heads fit into the processor's cache; on a device all.
  static std::int64_t samples_of_chunk(const Pass& pass, std::int64_t samples) {
    return pass.execution.space().is_host() ? 1 : samples;
  }
  template <class Use>
  static void for_each_chunk(const Pass& pass, std::int64_t samples, const Use& use) {
    const std::int64_t each = samples_of_chunk(pass, samples);
    for (std::int64_t first = 0; first < samples; first += each) use(Chunk{first, each});
  }

  Factor<Scalar> qkv_weights() const { return {memory_.parameters[0].data(), units_, 3 * units_}; }
  Factor<Scalar> output_weights() const { return {memory_.parameters[2].data(), units_, units_}; }
  std::int64_t qkv_offset(std::int64_t place, const Chunk& chunk) const {
    return chunk.first * length_ * 3 * units_ + place * units_;
  }
  std::int64_t context_offset(const Chunk& chunk) const { return chunk.first * length_ * units_; }
  std::int64_t scores_offset(const Chunk& chunk) const { return chunk.first * options_.heads * length_ * length_; }
  /// The first head's part of qkv_.
  Factor<Scalar> part(std::int64_t place, const Chunk& chunk) const {
    return {qkv_.data() + qkv_offset(place, chunk), length_, head_units_, false, 3 * units_};
  }
  Steps steps_of(Matrices matrices) const {
    switch (matrices) {
      case Matrices::kQkv:
        return {length_ * 3 * units_, head_units_};
      case Matrices::kScores:
        return {options_.heads * length_ * length_, length_ * length_};
      case Matrices::kContext:
        return {length_ * units_, head_units_};
    }
    return {};
  }
  BatchOfProducts products(const Chunk& chunk, Matrices left, Matrices right, Matrices result) const {
    return {chunk.samples, options_.heads, steps_of(left), steps_of(right), steps_of(result)};
  }
  AttentionScores scores_of(const Chunk& chunk) const {
    return {chunk.samples * options_.heads, length_, options_.causal, form(chunk.samples).scale()};
  }

  AttentionForm form(std::int64_t samples) const {
    return {samples, options_.heads, length_, head_units_, options_.causal};
  }
  /// Number of elements of Scalar, which is float, that have the bytes of `count` elements of 16 bits.
  static std::int64_t halved(std::int64_t count) { return (count + 1) / 2; }
  FusedAttentionMemory<Scalar> fused_memory() { return {qkv_.data(), context_.data(), statistics_.data()}; }
  /// The context of the last forward pass.
  Factor<Scalar> context(std::int64_t rows) const {
    return {context_.data(), rows, units_, false, 0, is_fused_ ? context_.data() : nullptr};
  }
  void project(const Pass& pass, const Tensor<Scalar>& input, Scalar* qkv) const {
    const Kernels<Scalar>& kernels = kernels_of<Scalar>(pass.execution);
    const std::int64_t rows = input.samples() * length_;
    kernels.fill_rows(memory_.parameters[1].data(), rows, 3 * units_, qkv);
    kernels.multiply({input.data(), rows, units_}, qkv_weights(), true, qkv);
  }

  /// Computes Q, K, V, P and the context.
  void attend(const Pass& pass, const Tensor<Scalar>& input) {
    const std::int64_t samples = input.samples();
    qkv_.resize(samples, {length_, 3 * units_});
    context_.resize(samples, {length_, units_});
    probabilities_.resize(samples, {options_.heads, length_, length_});
    project(pass, input, qkv_.data());
    const SequenceKernels<Scalar>& kernels = kernels_of<Scalar>(pass.execution).sequence();
    for_each_chunk(pass, samples, [&](const Chunk& chunk) {
      Scalar* const scores = probabilities_.data() + scores_offset(chunk);
      kernels.multiply_batch(products(chunk, kQkvSteps, kQkvSteps, kScoreSteps), part(kQuery, chunk),
                             part(kKey, chunk).transpose(), scores, 0);
      kernels.softmax(pass.execution.workspace(), scores_of(chunk), scores);
      kernels.multiply_batch(products(chunk, kScoreSteps, kQkvSteps, kContextSteps), {scores, length_, length_},
                             part(kValue, chunk), context_.data() + context_offset(chunk), units_);
    });
  }
  /// Computes Q, K, V and the context, in the type of products, and what the backward pass needs instead of P.
  void attend_fused(const Pass& pass, FusedAttention<Scalar>& fused, const Tensor<Scalar>& input) {
    const std::int64_t samples = input.samples();
    qkv_.resize(samples, {halved(length_ * 3 * units_)});
    context_.resize(samples, {halved(length_ * units_)});
    statistics_.resize(samples, {options_.heads, length_});
    Workspace::Scope scope(pass.execution.workspace());
    Scalar* const qkv = scope.take<Scalar>(static_cast<std::size_t>(samples * length_ * 3 * units_)).data();
    project(pass, input, qkv);
    fused.forward(pass.execution.workspace(), form(samples), qkv, fused_memory());
  }

  /// Computes the gradients of Q, K and V of the heads of a chunk.
  void propagate(const Pass& pass, const Gradients& gradients, const Chunk& chunk) const {
    const SequenceKernels<Scalar>& kernels = kernels_of<Scalar>(pass.execution).sequence();
    const Scalar* probabilities = probabilities_.data() + scores_offset(chunk);
    const Factor<Scalar> by_context{gradients.context + context_offset(chunk), length_, head_units_, false, units_};
    const auto result = [&](std::int64_t place) { return gradients.qkv + qkv_offset(place, chunk); };
    const std::int64_t stride = 3 * units_;
    kernels.multiply_batch(products(chunk, kScoreSteps, kContextSteps, kQkvSteps),
                           {probabilities, length_, length_, true}, by_context, result(kValue), stride);
    kernels.multiply_batch(products(chunk, kContextSteps, kQkvSteps, kScoreSteps), by_context,
                           part(kValue, chunk).transpose(), gradients.scores, 0);
    kernels.softmax_backward(pass.execution.workspace(), scores_of(chunk), probabilities, gradients.scores);
    const Factor<Scalar> by_scores{gradients.scores, length_, length_};
    const BatchOfProducts by_qkv = products(chunk, kScoreSteps, kQkvSteps, kQkvSteps);
    kernels.multiply_batch(by_qkv, by_scores, part(kKey, chunk), result(kQuery), stride);
    kernels.multiply_batch(by_qkv, by_scores.transpose(), part(kQuery, chunk), result(kKey), stride);
  }

  const AttentionOptions options_;
  std::int64_t length_ = 0, units_ = 0, head_units_ = 0;
  LayerMemory<Scalar> memory_;
  ExecutionMark execution_;
  // Of the last forward pass. A fused pass keeps Q, K, V and the context in elements of 16 bits, and statistics instead
  // of probabilities.
  Tensor<Scalar> qkv_, probabilities_, context_, statistics_;
  bool is_fused_ = false;
};

}  // namespace

template <class Scalar>
std::unique_ptr<Layer<Scalar>> attention(const AttentionOptions& options) {
  return std::make_unique<Attention<Scalar>>(options);
}
template std::unique_ptr<Layer<float>> attention<float>(const AttentionOptions&);
template std::unique_ptr<Layer<double>> attention<double>(const AttentionOptions&);

}  // namespace farandole::trainer
