// SPDX-License-Identifier: Apache-2.0
// The computations of transformers on a device.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <type_traits>
#include <utility>

#include "cublas.h"
#include "device_sums.h"
#include "half_products.h"
#include "kernels/sequence.h"
#include "launcher.h"
#include "products.h"

namespace farandole::trainer::cuda {

template <class Scalar>
class DeviceSequence final : public SequenceKernels<Scalar> {
 public:
  /// @param halves  null: products in Scalar   @param attention  may be null
  /// @param launcher, cublas, halves, attention  outlive this object
  DeviceSequence(const Launcher& launcher, const Cublas& cublas, const HalfProducts* halves,
                 FusedAttention<Scalar>* attention)
      : launcher_(launcher), cublas_(cublas), halves_(halves), attention_(attention) {}

  void measure_sets(const SetNormalization& n, const Scalar* x, const SetStatistics<Scalar>& s) const override {
    run(Kernel::kMeasureSets, n.count(),
        {writes(s.mean, n.count()), writes(s.inverse_deviation, n.count()), reads(x, n.elements())},
        {n.count(), n.sets.per_sample, n.sets.rows, n.sets.width, n.sets.channels, n.centred ? 1 : 0}, {n.epsilon});
  }
  void normalize_sets(const SetNormalization& n, const Scalar* x, const SetStatistics<Scalar>& s, const Scalar* scale,
                      const Scalar* shift, Scalar* y) const override {
    run(Kernel::kNormalizeSets, n.elements(),
        {writes(y, n.elements()), reads(x, n.elements()), of_sets(s.mean, n), of_sets(s.inverse_deviation, n),
         reads(scale, n.sets.channels), reads(shift, n.sets.channels)},
        {n.elements(), n.sets.per_sample, n.sets.rows, n.sets.width, n.sets.channels});
  }
  void set_gradients(Workspace& workspace, const SetNormalization& n, const Scalar* x, const Scalar* dy,
                     const SetStatistics<Scalar>& s, Scalar* scale_gradient, Scalar* shift_gradient) const override {
    const std::int64_t channels = n.sets.channels, columns = 2 * channels, rows = n.elements() / channels;
    const std::int64_t partials = partials_of(rows, channels);
    Workspace::Scope scope(workspace);
    double* const sums = scope.take<double>(static_cast<std::size_t>((partials + 1) * columns)).data();
    double* const partial = sums + columns;
    launcher_.device().fill_zero(sums, static_cast<std::size_t>(columns) * sizeof(double), launcher_.stream());
    run(Kernel::kSetMoments, partials * channels,
        {writes(partial, partials * columns), reads(x, n.elements()), reads(dy, n.elements()), of_sets(s.mean, n),
         of_sets(s.inverse_deviation, n)},
        {partials * channels, rows, partials, n.sets.per_sample, n.sets.rows, n.sets.width, channels});
    run(Kernel::kAddPartials, columns, {writes(sums, columns), reads(partial, partials * columns)},
        {columns, partials});
    run(Kernel::kStoreGradients, channels,
        {writes(scale_gradient, channels), writes(shift_gradient, channels), reads(sums, columns)}, {channels});
  }
  void propagate_sets(const SetNormalization& n, const Scalar* x, const Scalar* dy, const SetStatistics<Scalar>& s,
                      const Scalar* scale, Scalar* dx) const override {
    run(Kernel::kPropagateSets, n.count(),
        {writes(dx, n.elements()), reads(x, n.elements()), reads(dy, n.elements()), of_sets(s.mean, n),
         of_sets(s.inverse_deviation, n), reads(scale, n.sets.channels)},
        {n.count(), n.sets.per_sample, n.sets.rows, n.sets.width, n.sets.channels, n.centred ? 1 : 0});
  }

  void look_up(const EmbeddingRows<Scalar>& rows, const Scalar* weights, Scalar* output) const override {
    const std::int64_t count = rows.count * rows.units;
    run(Kernel::kLookUp, count,
        {writes(output, count), reads(rows.indices, rows.count), reads(weights, rows.vocabulary * rows.units)},
        {count, rows.vocabulary, rows.units});
  }
  void look_up_backward(Workspace& workspace, const EmbeddingRows<Scalar>& rows, const Scalar* dy,
                        Scalar* gradient) const override {
    const std::int64_t weights = rows.vocabulary * rows.units;
    launcher_.device().fill_zero(gradient, static_cast<std::size_t>(weights) * sizeof(Scalar), launcher_.stream());
    Workspace::Scope scope(workspace);
    const std::int64_t* const order = sorted(scope, rows);
    run(Kernel::kLookUpBackward, rows.count * rows.units,
        {writes(gradient, weights), reads(order, rows.count), reads(rows.indices, rows.count),
         reads(dy, rows.count * rows.units)},
        {rows.count * rows.units, rows.count, rows.vocabulary, rows.units});
  }
  void add_row(std::int64_t rows, std::int64_t columns, const Scalar* x, const Scalar* row, Scalar* y) const override {
    const std::int64_t count = rows * columns;
    run(Kernel::kAddRow, count, {writes(y, count), reads(x, count), reads(row, columns)}, {count, columns});
  }

  void multiply_batch(const BatchOfProducts& batch, const Factor<Scalar>& left, const Factor<Scalar>& right,
                      Scalar* result, std::int64_t stride) const override {
    if constexpr (std::is_same_v<Scalar, float>) {
      if (halves_ != nullptr) return halves_->multiply_batch(batch, left, right, result, stride);
    }
    trainer::cuda::multiply_batch(cublas_, batch, left, right, result, stride);
  }
  void softmax(Workspace& workspace, const AttentionScores& scores, Scalar* values) const override {
    const std::int64_t rows = scores.count * scores.length, elements = rows * scores.length;
    const std::int64_t parts = parts_of_row(rows, scores.length), causal = scores.causal ? 1 : 0;
    Workspace::Scope scope(workspace);
    double* const of_parts = scope.take<double>(static_cast<std::size_t>(2 * rows * parts)).data();
    Scalar* const of_rows = scope.take<Scalar>(static_cast<std::size_t>(2 * rows)).data();
    run(Kernel::kSumScores, rows * parts, {writes(of_parts, 2 * rows * parts), reads(values, elements)},
        {rows, scores.length, parts, causal}, {scores.scale});
    run(Kernel::kMergeScores, rows, {writes(of_rows, 2 * rows), reads(of_parts, 2 * rows * parts)},
        {rows, scores.length, parts, causal}, {scores.scale});
    run(Kernel::kSoftmax, rows * parts, {writes(values, elements), reads(of_rows, 2 * rows)},
        {rows, scores.length, parts, causal}, {scores.scale});
  }
  void softmax_backward(Workspace& workspace, const AttentionScores& scores, const Scalar* probabilities,
                        Scalar* gradients) const override {
    const std::int64_t rows = scores.count * scores.length, elements = rows * scores.length;
    const std::int64_t parts = parts_of_row(rows, scores.length), causal = scores.causal ? 1 : 0;
    Workspace::Scope scope(workspace);
    double* const products = scope.take<double>(static_cast<std::size_t>(rows * parts)).data();
    run(Kernel::kSumScoreGradients, rows * parts,
        {writes(products, rows * parts), reads(gradients, elements), reads(probabilities, elements)},
        {rows, scores.length, parts, causal}, {scores.scale});
    run(Kernel::kSoftmaxBackward, rows * parts,
        {writes(gradients, elements), reads(probabilities, elements), reads(products, rows * parts)},
        {rows, scores.length, parts, causal}, {scores.scale});
  }
  FusedAttention<Scalar>* fused_attention() const override { return attention_; }

 private:
  static farandole::cuda::Operand of_sets(const Scalar* values, const SetNormalization& n) {
    return reads(values, n.count());
  }
  /// Returns the numbers 0 … rows.count - 1, sorted by their indices and then by themselves; null for one number or
  /// none.
  const std::int64_t* sorted(Workspace::Scope& scope, const EmbeddingRows<Scalar>& rows) const {
    const std::int64_t count = rows.count;
    const std::int64_t* order = nullptr;
    if (count < 2) return order;
    std::int64_t* next = scope.take<std::int64_t>(static_cast<std::size_t>(count)).data();
    std::int64_t* other = scope.take<std::int64_t>(static_cast<std::size_t>(count)).data();
    for (std::int64_t run_length = 1; run_length < count; run_length *= 2) {
      run(Kernel::kMergeRuns, count, {writes(next, count), reads(order, count), reads(rows.indices, count)},
          {count, run_length, rows.vocabulary});
      order = next;
      std::swap(next, other);
    }
    return order;
  }
  void run(Kernel kernel, std::int64_t threads, std::initializer_list<farandole::cuda::Operand> operands,
           std::initializer_list<std::int64_t> sizes, std::initializer_list<double> numbers = {}) const {
    launcher_.launch<Scalar>(kernel, threads, operands, sizes, numbers);
  }

  const Launcher& launcher_;
  const Cublas& cublas_;
  const HalfProducts* const halves_;
  FusedAttention<Scalar>* const attention_;
};

}  // namespace farandole::trainer::cuda
