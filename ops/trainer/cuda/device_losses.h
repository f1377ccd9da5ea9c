// SPDX-License-Identifier: Apache-2.0
// The computations of losses and metrics on a device.
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <list>
#include <span>
#include <vector>

#include "device_sums.h"
#include "kernels/losses.h"
#include "launcher.h"

namespace farandole::trainer::cuda {

/// Copies of constants on a device, which live as long as this object. Used by one thread at a time.
class DeviceConstants {
 public:
  /// @param launcher  outlives this object
  explicit DeviceConstants(const Launcher& launcher) : launcher_(launcher) {}
  DeviceConstants(const DeviceConstants&) = delete;
  DeviceConstants& operator=(const DeviceConstants&) = delete;
  ~DeviceConstants() {
    for (const Copy& copy : copies_) launcher_.device().release(copy.memory);
  }

  /// Returns a copy of numbers in host memory: one copy for all calls with equal numbers.
  const double* copy_of(std::span<const double> values) {
    const auto found =
        std::ranges::find_if(copies_, [&](const Copy& copy) { return std::ranges::equal(copy.values, values); });
    if (found != copies_.end()) return found->memory;
    auto* const memory = static_cast<double*>(launcher_.device().allocate(values.size_bytes()));
    const Copy& copy = copies_.emplace_back(Copy{{values.begin(), values.end()}, memory});
    launcher_.device().copy(memory, copy.values.data(), values.size_bytes(), launcher_.stream());
    return memory;
  }

 private:
  struct Copy {
    std::vector<double> values;
    double* memory;
  };
  const Launcher& launcher_;
  std::list<Copy> copies_;  // whose values stay where they are while the device reads them
};

template <class Scalar>
class DeviceLosses final : public LossKernels<Scalar> {
 public:
  /// @param launcher  outlives this object
  explicit DeviceLosses(const Launcher& launcher) : launcher_(launcher), constants_(launcher) {}

  void cross_entropy(Workspace& workspace, const LabelledRows<Scalar>& rows, const CrossEntropyTerms& terms,
                     double scale, Scalar* gradient, double* sum) const override {
    constexpr std::int64_t kPartResults = 3, kRowResults = 3;
    Workspace::Scope scope(workspace);
    const Sizes n(rows.rows, rows.classes);
    double* const losses = take(scope, n.rows);
    double* const of_parts = take(scope, kPartResults * n.threads());
    double* const of_rows = take(scope, kRowResults * n.rows);
    run(Kernel::kSumLogits, n.threads(),
        {writes(of_parts, kPartResults * n.threads()), reads(rows.logits, n.elements())}, {n.rows, n.classes, n.parts});
    run(Kernel::kCrossEntropy, n.rows,
        {writes(losses, n.rows), writes(of_rows, kRowResults * n.rows), reads(of_parts, kPartResults * n.threads()),
         reads(rows.logits, n.elements()), reads(rows.labels, n.rows),
         reads(terms.sample_weights, n.rows / terms.rows_per_sample), class_weights(terms)},
        {n.rows, n.classes, n.parts, terms.rows_per_sample, size_of(terms)}, {scale, terms.smoothing});
    if (gradient != nullptr) {
      run(Kernel::kCrossEntropyGradient, n.threads(),
          {writes(gradient, n.elements()), reads(rows.logits, n.elements()), reads(rows.labels, n.rows),
           reads(of_rows, kRowResults * n.rows)},
          {n.rows, n.classes, n.parts}, {terms.smoothing});
    }
    sum_doubles<Scalar>(launcher_, workspace, n.rows, losses, sum);
  }
  void soft_cross_entropy(Workspace& workspace, const RowsWithProbabilities<Scalar>& rows,
                          const CrossEntropyTerms& terms, double scale, Scalar* gradient, double* sum) const override {
    constexpr std::int64_t kPartResults = 5, kRowResults = 4;
    Workspace::Scope scope(workspace);
    const Sizes n(rows.rows, rows.classes);
    double* const losses = take(scope, n.rows);
    double* const of_parts = take(scope, kPartResults * n.threads());
    double* const of_rows = take(scope, kRowResults * n.rows);
    run(Kernel::kSumSoftLogits, n.threads(),
        {writes(of_parts, kPartResults * n.threads()), reads(rows.logits, n.elements()),
         reads(rows.probabilities, n.elements()), class_weights(terms)},
        {n.rows, n.classes, n.parts, size_of(terms)}, {terms.smoothing});
    run(Kernel::kSoftCrossEntropy, n.rows,
        {writes(losses, n.rows), writes(of_rows, kRowResults * n.rows), reads(of_parts, kPartResults * n.threads()),
         reads(terms.sample_weights, n.rows)},
        {n.rows, n.parts, size_of(terms)}, {scale});
    if (gradient != nullptr) {
      run(Kernel::kSoftCrossEntropyGradient, n.threads(),
          {writes(gradient, n.elements()), reads(rows.logits, n.elements()), reads(rows.probabilities, n.elements()),
           reads(of_rows, kRowResults * n.rows)},
          {n.rows, n.classes, n.parts}, {terms.smoothing});
    }
    sum_doubles<Scalar>(launcher_, workspace, n.rows, losses, sum);
  }
  void target_loss(Workspace& workspace, const TargetRule& rule, const OutputsWithTargets<Scalar>& values,
                   const float* sample_weights, double scale, Scalar* gradient, double* sum) const override {
    Workspace::Scope scope(workspace);
    const std::int64_t count = values.count();
    double* const losses = take(scope, count);
    run(Kernel::kTargetLoss, count,
        {writes(losses, count), reads(values.outputs, count), reads(values.targets, count), writes(gradient, count),
         reads(sample_weights, values.samples)},
        {count, values.width, static_cast<std::int64_t>(rule.kind)}, {scale, rule.delta});
    sum_doubles<Scalar>(launcher_, workspace, count, losses, sum);
  }

  void count_right(Workspace& workspace, const LabelledRows<Scalar>& rows, std::int64_t k,
                   double* sums) const override {
    Workspace::Scope scope(workspace);
    const Sizes n(rows.rows, rows.classes);
    std::int64_t* const larger = take_whole(scope, n.threads());
    double* const right = take(scope, n.rows);
    run(Kernel::kCountLarger, n.threads(),
        {writes(larger, n.threads()), reads(rows.logits, n.elements()), reads(rows.labels, n.rows)},
        {n.rows, n.classes, n.parts});
    run(Kernel::kRightLabels, n.rows, {writes(right, n.rows), reads(larger, n.threads()), reads(rows.labels, n.rows)},
        {n.rows, n.classes, n.parts, k});
    sum_doubles<Scalar>(launcher_, workspace, n.rows, right, sums);
    add_number(n.rows, sums + 1);
  }
  void count_confusions(Workspace& workspace, const LabelledRows<Scalar>& rows, double* counts) const override {
    Workspace::Scope scope(workspace);
    const Sizes n(rows.rows, rows.classes);
    std::int64_t* const predicted = take_whole(scope, n.threads());
    run(Kernel::kPredictClasses, n.threads(),
        {writes(predicted, n.threads()), reads(rows.logits, n.elements()), reads(rows.labels, n.rows)},
        {n.rows, n.classes, n.parts});
    run(Kernel::kConfusions, n.rows,
        {writes(counts, n.classes * n.classes), reads(predicted, n.threads()), reads(rows.logits, n.elements()),
         reads(rows.labels, n.rows)},
        {n.rows, n.classes, n.parts});
  }
  void add_errors(Workspace& workspace, const TargetRule& rule, const OutputsWithTargets<Scalar>& values,
                  double* sums) const override {
    target_loss(workspace, rule, values, nullptr, 1, nullptr, sums);
    add_number(values.samples, sums + 1);
  }
  void count_right_sides(Workspace& workspace, double threshold, const OutputsWithTargets<Scalar>& values,
                         double* sums) const override {
    Workspace::Scope scope(workspace);
    const std::int64_t count = values.count();
    double* const right = take(scope, count);
    run(Kernel::kRightSides, count, {writes(right, count), reads(values.outputs, count), reads(values.targets, count)},
        {count}, {threshold});
    sum_doubles<Scalar>(launcher_, workspace, count, right, sums);
    add_number(count, sums + 1);
  }

 private:
  /// Rows of logits, and the parts of each (bodies_rows.h).
  struct Sizes {
    Sizes(std::int64_t of_rows, std::int64_t of_classes)
        : rows(of_rows), classes(of_classes), parts(parts_of_row(of_rows, of_classes)) {}
    std::int64_t elements() const { return rows * classes; }
    std::int64_t threads() const { return rows * parts; }

    std::int64_t rows, classes, parts;
  };

  static double* take(Workspace::Scope& scope, std::int64_t count) {
    return scope.take<double>(static_cast<std::size_t>(count)).data();
  }
  static std::int64_t* take_whole(Workspace::Scope& scope, std::int64_t count) {
    return scope.take<std::int64_t>(static_cast<std::size_t>(count)).data();
  }
  static std::int64_t size_of(const CrossEntropyTerms& terms) {
    return static_cast<std::int64_t>(terms.class_weights.size());
  }
  farandole::cuda::Operand class_weights(const CrossEntropyTerms& terms) const {
    return reads(terms.class_weights.empty() ? nullptr : constants_.copy_of(terms.class_weights), size_of(terms));
  }
  void add_number(std::int64_t number, double* sum) const {
    run(Kernel::kAddNumber, 1, {writes(sum, 1)}, {}, {static_cast<double>(number)});
  }
  void run(Kernel kernel, std::int64_t threads, std::initializer_list<farandole::cuda::Operand> operands,
           std::initializer_list<std::int64_t> sizes, std::initializer_list<double> numbers = {}) const {
    launcher_.launch<Scalar>(kernel, threads, operands, sizes, numbers);
  }

  const Launcher& launcher_;
  mutable DeviceConstants constants_;
};

}  // namespace farandole::trainer::cuda
