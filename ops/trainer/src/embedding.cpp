// SPDX-License-Identifier: Apache-2.0
// Layers for sequences of tokens: embedding and positional encoding.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "farandole/core/error.h"
#include "farandole/trainer/layers.h"
#include "matrix_product.h"
#include "vectorized.h"

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

  void forward(const Pass& pass, const Tensor<Scalar>& input, Tensor<Scalar>& output) override {
    read_indices(pass, input);
    Scalar* to = output.data();
    for (const std::int64_t index : indices_)
      to = std::copy_n(memory_.parameters[0].data() + index * units_, units_, to);
  }

  void backward(const Pass&, const Tensor<Scalar>&, const Tensor<Scalar>&, const Tensor<Scalar>& output_gradient,
                Tensor<Scalar>* input_gradient) override {
    const std::span<Scalar> sums = memory_.gradients[0].host();
    std::fill(sums.begin(), sums.end(), Scalar{0});
    const auto count = static_cast<std::int64_t>(indices_.size());
    const std::int64_t units = units_;
    const std::int64_t* indices = indices_.data();
    const Scalar* gradient = output_gradient.data();
    Scalar* to = sums.data();
    vectorized([=]() FARANDOLE_INLINED {
      for (std::int64_t k = 0; k < count; ++k) {
        const Scalar* __restrict dy = gradient + k * units;
        Scalar* __restrict sum = to + indices[k] * units;
        for (std::int64_t i = 0; i < units; ++i) sum[i] += dy[i];
      }
    });
    // An index is a constant.
    if (input_gradient != nullptr) std::fill_n(input_gradient->data(), input_gradient->size(), Scalar{0});
  }

 private:
  void read_indices(const Pass& pass, const Tensor<Scalar>& input) {
    indices_.resize(static_cast<std::size_t>(input.size()));
    for (std::size_t i = 0; i < indices_.size(); ++i) {
      const Scalar value = input.data()[i];
      if (!(value >= 0 && value < static_cast<Scalar>(vocabulary_)) || value != std::floor(value)) {
        const std::int64_t per_sample = input.sample_elements(), place = static_cast<std::int64_t>(i);
        throw DataError(fmt::format("{}: element {} of sample {} of the batch is {}, not a whole number in [0, {})",
                                    name(), place % per_sample, pass.first_sample + place / per_sample, value,
                                    vocabulary_));
      }
      indices_[i] = static_cast<std::int64_t>(value);
    }
  }

  const std::int64_t vocabulary_, units_;
  LayerMemory<Scalar> memory_;
  std::vector<std::int64_t> indices_;  ///< of the last forward pass
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

  void forward(const Pass&, const Tensor<Scalar>& input, Tensor<Scalar>& output) override {
    const std::int64_t samples = input.samples(), size = input.sample_elements();
    const Scalar* from = input.data();
    const Scalar* codes = learned_ ? memory_.parameters[0].data() : waves_.data();
    Scalar* to = output.data();
    vectorized([=]() FARANDOLE_INLINED {
      const Scalar* __restrict code = codes;
      for (std::int64_t sample = 0; sample < samples; ++sample) {
        const Scalar* __restrict x = from + sample * size;
        Scalar* __restrict y = to + sample * size;
        for (std::int64_t i = 0; i < size; ++i) y[i] = x[i] + code[i];
      }
    });
  }

  void backward(const Pass&, const Tensor<Scalar>& input, const Tensor<Scalar>&, const Tensor<Scalar>& output_gradient,
                Tensor<Scalar>* input_gradient) override {
    if (learned_) sum_rows(output_gradient.data(), input.samples(), memory_.gradients[0].host());
    if (input_gradient == nullptr) return;
    std::copy_n(output_gradient.data(), output_gradient.size(), input_gradient->data());
  }

 private:
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
