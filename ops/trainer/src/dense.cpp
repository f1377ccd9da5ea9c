// SPDX-License-Identifier: Apache-2.0
// Fully connected layer, y = x W + b, by a matrix product. For float, oneDNN's sgemm picks a kernel for the processor
// at run time; for double, Eigen computes the product (docs/decisions/0002-dense-layers-use-onednn-sgemm.md).
#include <fmt/format.h>

#include <algorithm>
#include <type_traits>
#include <utility>

#include "farandole/core/error.h"
#include "farandole/trainer/layers.h"
#include "matrix.h"
#include "onednn.h"
#include "vectorized.h"

namespace farandole::trainer {
namespace {

/// A factor of a matrix product, stored row by row; the product uses its transpose if `transposed`.
template <class Scalar>
struct Factor {
  const Scalar* values;
  std::int64_t rows, columns;
  bool transposed = false;
};

void multiply(const Factor<float>& left, const Factor<float>& right, bool add, float* result) {
  const std::int64_t rows = left.transposed ? left.columns : left.rows;
  const std::int64_t inner = left.transposed ? left.rows : left.columns;
  const std::int64_t columns = right.transposed ? right.rows : right.columns;
  bound_onednn_isa();
  const dnnl_status_t status =
      dnnl_sgemm(left.transposed ? 'T' : 'N', right.transposed ? 'T' : 'N', rows, columns, inner, 1.0F, left.values,
                 left.columns, right.values, right.columns, add ? 1.0F : 0.0F, result, columns);
  if (status == dnnl_out_of_memory) throw std::bad_alloc();
  if (status != dnnl_success) {
    throw InternalError(fmt::format("dense: oneDNN's product of {}x{} and {}x{} failed with status {}", rows, inner,
                                    inner, columns, static_cast<int>(status)));
  }
}

void multiply(const Factor<double>& left, const Factor<double>& right, bool add, double* result) {
  const ConstMatrixView<double> a(left.values, left.rows, left.columns);
  const ConstMatrixView<double> b(right.values, right.rows, right.columns);
  MatrixView<double> c(result, left.transposed ? left.columns : left.rows,
                       right.transposed ? right.rows : right.columns);
  if (!add) c.setZero();
  if (left.transposed) {
    c.noalias() += a.transpose() * b;
  } else if (right.transposed) {
    c.noalias() += a * b.transpose();
  } else {
    c.noalias() += a * b;
  }
}

template <class Scalar>
class Dense final : public Layer<Scalar> {
 public:
  explicit Dense(std::int64_t units) : units_(units) {
    if (units < 1) throw InvalidArgument(fmt::format("dense: units must be at least 1, got {}", units));
  }

  std::string name() const override { return fmt::format("dense, {} units", units_); }

  Shape prepare(const Shape& input) override {
    inputs_ = elements(input);
    if (inputs_ < 1) throw InvalidArgument(fmt::format("{}: the input {} is empty", name(), trainer::describe(input)));
    return {units_};
  }

  std::vector<ParameterSpec> parameters() const override {
    return {{"weight", {inputs_, units_}, Initial::kUniformFanIn, inputs_, true},
            {"bias", {units_}, Initial::kUniformFanIn, inputs_, false}};
  }

  void bind(const LayerMemory<Scalar>& memory) override { memory_ = memory; }

  void forward(const Pass&, const Tensor<Scalar>& input, Tensor<Scalar>& output) override {
    const std::int64_t samples = input.samples();
    if (samples == 0) return;
    const std::span<const Scalar> bias = memory_.parameters[1];
    for (std::int64_t row = 0; row < samples; ++row) {
      std::copy(bias.begin(), bias.end(), output.data() + row * units_);
    }
    multiply(Factor<Scalar>{input.data(), samples, inputs_}, weights(), true, output.data());
  }

  void backward(const Pass&, const Tensor<Scalar>& input, const Tensor<Scalar>&, const Tensor<Scalar>& output_gradient,
                Tensor<Scalar>* input_gradient) override {
    const std::int64_t samples = input.samples();
    const std::span<Scalar> weight_gradient = memory_.gradients[0], bias_gradient = memory_.gradients[1];
    std::fill(bias_gradient.begin(), bias_gradient.end(), Scalar{0});
    if (samples == 0) {
      std::fill(weight_gradient.begin(), weight_gradient.end(), Scalar{0});
      return;
    }
    const Factor<Scalar> gradient{output_gradient.data(), samples, units_};
    multiply(Factor<Scalar>{input.data(), samples, inputs_, true}, gradient, false, weight_gradient.data());
    add_rows(gradient, bias_gradient.data());
    if (input_gradient == nullptr) return;
    Factor<Scalar> transposed = weights();
    transposed.transposed = true;
    multiply(gradient, transposed, false, input_gradient->data());
  }

 private:
  Factor<Scalar> weights() const { return {memory_.parameters[0].data(), inputs_, units_}; }

  static void add_rows(const Factor<Scalar>& matrix, Scalar* sums) {
    vectorized([=]() FARANDOLE_INLINED {
      for (std::int64_t row = 0; row < matrix.rows; ++row) {
        const Scalar* __restrict from = matrix.values + row * matrix.columns;
        Scalar* __restrict to = sums;
        for (std::int64_t column = 0; column < matrix.columns; ++column) to[column] += from[column];
      }
    });
  }

  std::int64_t units_, inputs_ = 0;
  LayerMemory<Scalar> memory_;
};

}  // namespace

template <class Scalar>
std::unique_ptr<Layer<Scalar>> dense(std::int64_t units) {
  return std::make_unique<Dense<Scalar>>(units);
}
template std::unique_ptr<Layer<float>> dense<float>(std::int64_t);
template std::unique_ptr<Layer<double>> dense<double>(std::int64_t);

}  // namespace farandole::trainer
