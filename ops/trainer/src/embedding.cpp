// SPDX-License-Identifier: Apache-2.0
// Layers for sequences of tokens: embedding and positional encoding.
#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "farandole/core/error.h"
#include "farandole/trainer/layers.h"
#include "kernels/kernels.h"
#include "kernels/transfer.h"
#include "scratch.h"

namespace farandole::trainer {
namespace {

template <class Scalar>
class Embedding final : public Layer<Scalar> {
 public:
  Embedding(std::int64_t vocabulary, std::int64_t units) : vocabulary_(vocabulary), units_(units) {
    constexpr std::int64_t kMaxVocabulary = std::int64_t{1} << std::numeric_limits<Scalar>::digits;
    if (vocabulary < 1 || units < 1) {
      throw InvalidArgument(
          fmt::format("embedding: vocabulary and units must be at least 1, got {} and {}", vocabulary, units));
    }
    if (vocabulary > kMaxVocabulary) {
      throw InvalidArgument(
          fmt::format("embedding: a vocabulary of {} has indices that the element type rounds; at most {}", vocabulary,
                      kMaxVocabulary));
    }
  }

  std::string name() const override { return fmt::format("embedding, vocabulary {}, {} units", vocabulary_, units_); }
  Shape prepare(const Shape& input) override {
    if (elements(input) < 1) {
      throw InvalidArgument(
          fmt::format("{}: expects samples of indices, the input {} is empty", name(), trainer::describe(input)));
    }
    Shape output = input;
    output.push_back(units_);
    return output;
  }
  std::vector<ParameterSpec> parameters() const override {
    return {{"weight", {vocabulary_, units_}, Initial::kNormalFanIn, 1, true}};
  }
  void bind(const LayerMemory<Scalar>& memory) override { memory_ = memory; }

  DeviceForm device_form() const override { return DeviceForm::kGraphs; }

  void forward(const Pass& pass, const Tensor<Scalar>& input, Tensor<Scalar>& output) override {
    if (pass.execution.space().is_host()) check_indices(pass, input);
    kernels_of<Scalar>(pass.execution).sequence().look_up(rows_of(input), memory_.parameters[0].data(), output.data());
  }

  void backward(const Pass& pass, const Tensor<Scalar>& input, const Tensor<Scalar>&,
                const Tensor<Scalar>& output_gradient, Tensor<Scalar>* input_gradient) override {
    const Kernels<Scalar>& kernels = kernels_of<Scalar>(pass.execution);
    kernels.sequence().look_up_backward(pass.execution.workspace(), rows_of(input), output_gradient.data(),
                                        memory_.gradients[0].data());
    // An index is a constant.
    if (input_gradient != nullptr) kernels.clear(input_gradient->size(), input_gradient->data());
  }

 private:
  EmbeddingRows<Scalar> rows_of(const Tensor<Scalar>& input) const {
    return {input.data(), input.size(), vocabulary_, units_};
  }

  void check_indices(const Pass& pass, const Tensor<Scalar>& input) const {
    for (std::int64_t i = 0; i < input.size(); ++i) {
      const Scalar value = input.data()[i];
      if (value >= 0 && value < static_cast<Scalar>(vocabulary_) && value == std::floor(value)) continue;
      const std::int64_t per_sample = input.sample_elements();
      throw DataError(fmt::format("{}: element {} of sample {} of the batch is {}, not a whole number in [0, {})",
                                  name(), i % per_sample, pass.first_sample + i / per_sample, value, vocabulary_));
    }
  }

  const std::int64_t vocabulary_, units_;
  LayerMemory<Scalar> memory_;
};

template <class Scalar>
class PositionCode final : public Layer<Scalar> {
 public:
  explicit PositionCode(PositionalEncoding kind) : learned_(kind == PositionalEncoding::kLearned) {}

  std::string name() const override {
    return fmt::format("positional_encoding, {}", learned_ ? "learned" : "sinusoidal");
  }
  Shape prepare(const Shape& input) override {
    if (input.size() != 2 || elements(input) < 1) {
      throw InvalidArgument(
          fmt::format("{}: expects sequences {{length, units}}, the input is {}", name(), trainer::describe(input)));
    }
    shape_ = input;
    if (!learned_) fill_waves();
    return input;
  }
  std::vector<ParameterSpec> parameters() const override {
    if (!learned_) return {};
    return {{"weight", shape_, Initial::kNormalFanIn, shape_[1], true}};
  }
  void bind(const LayerMemory<Scalar>& memory) override { memory_ = memory; }

  DeviceForm device_form() const override { return DeviceForm::kGraphs; }

  void forward(const Pass& pass, const Tensor<Scalar>& input, Tensor<Scalar>& output) override {
    kernels_of<Scalar>(pass.execution)
        .sequence()
        .add_row(input.samples(), input.sample_elements(), input.data(), code(pass.execution), output.data());
  }

  void backward(const Pass& pass, const Tensor<Scalar>& input, const Tensor<Scalar>&,
                const Tensor<Scalar>& output_gradient, Tensor<Scalar>* input_gradient) override {
    const Kernels<Scalar>& kernels = kernels_of<Scalar>(pass.execution);
    if (learned_) sum_gradients(kernels, input, output_gradient);
    if (input_gradient == nullptr) return;
    kernels.copy(output_gradient.size(), output_gradient.data(), input_gradient->data());
  }

 private:
  void sum_gradients(const Kernels<Scalar>& kernels, const Tensor<Scalar>& input,
                     const Tensor<Scalar>& output_gradient) const {
    if (input.samples() == 0) return clear_gradients(kernels, memory_);
    kernels.sum_rows(output_gradient.data(), input.samples(), input.sample_elements(), memory_.gradients[0].data());
  }

  /// The code in the memory of the execution.
  const Scalar* code(const Execution& execution) {
    if (learned_) return memory_.parameters[0].data();
    if (execution.space().is_host()) return waves_.data();
    if (execution_.changes(execution) || waves_there_.count() != waves_.size()) {
      waves_there_ = allocate(execution.memory(), waves_.size(), dtype_of<Scalar>);
      copy_now(execution, waves_there_.view(), VectorView<const Scalar>(waves_));
    }
    return waves_there_.template as<Scalar>();
  }

  void fill_waves() {
    const std::int64_t units = shape_[1];
    waves_.resize(static_cast<std::size_t>(elements(shape_)));
    for (std::int64_t i = 0; i < elements(shape_); ++i) {
      const std::int64_t position = i / units, unit = i % units, pair = unit / 2;
      const double exponent = static_cast<double>(2 * pair) / static_cast<double>(units);
      const double angle = static_cast<double>(position) / std::pow(10000.0, exponent);
      waves_[static_cast<std::size_t>(i)] = static_cast<Scalar>(unit % 2 == 0 ? std::sin(angle) : std::cos(angle));
    }
  }

  const bool learned_;
  Shape shape_;
  std::vector<Scalar> waves_;  ///< sinusoidal code
  ExecutionMark execution_;
  Buffer waves_there_;  ///< the same on a device
  LayerMemory<Scalar> memory_;
};

}  // namespace

template <class Scalar>
std::unique_ptr<Layer<Scalar>> embedding(std::int64_t vocabulary, std::int64_t units) {
  return std::make_unique<Embedding<Scalar>>(vocabulary, units);
}
template <class Scalar>
std::unique_ptr<Layer<Scalar>> positional_encoding(PositionalEncoding kind) {
  return std::make_unique<PositionCode<Scalar>>(kind);
}
template std::unique_ptr<Layer<float>> embedding<float>(std::int64_t, std::int64_t);
template std::unique_ptr<Layer<double>> embedding<double>(std::int64_t, std::int64_t);
template std::unique_ptr<Layer<float>> positional_encoding<float>(PositionalEncoding);
template std::unique_ptr<Layer<double>> positional_encoding<double>(PositionalEncoding);

}  // namespace farandole::trainer
