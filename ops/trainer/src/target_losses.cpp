// SPDX-License-Identifier: Apache-2.0
// Losses of samples with targets: the mean over the targets of a function of output and target.
#include <fmt/format.h>

#include <cmath>
#include <string>
#include <utility>

#include "farandole/core/error.h"
#include "farandole/trainer/loss.h"
#include "kernels/kernels.h"
#include "target_checks.h"

namespace farandole::trainer {
namespace {

template <class Scalar>
class TargetLoss final : public Loss<Scalar> {
 public:
  TargetLoss(std::string name, TargetRule rule) : name_(std::move(name)), rule_(rule) {}

  std::string name() const override { return name_; }
  DeviceForm device_form() const override { return DeviceForm::kGraphs; }

  void check(const Shape& output, const Dataset& data, const std::string& what) const override {
    check_targets("the loss " + name_, output, data, what);
  }

  void evaluate(const Execution& execution, const Tensor<Scalar>& outputs, const BatchView<Scalar>& batch, double scale,
                Tensor<Scalar>* gradient, VectorView<double> sum) const override {
    check_batch_targets("the loss " + name_, execution, outputs, batch);
    if (gradient != nullptr) gradient->resize(outputs.samples(), outputs.shape());
    kernels_of<Scalar>(execution).losses().target_loss(
        execution.workspace(), rule_,
        {outputs.data(), batch.targets.data(), outputs.samples(), outputs.sample_elements()},
        batch.weights.empty() ? nullptr : batch.weights.data(), scale, gradient == nullptr ? nullptr : gradient->data(),
        sum.data());
  }

 private:
  const std::string name_;
  const TargetRule rule_;
};

template <class Scalar>
LossPointer<Scalar> make(std::string name, TargetRule rule) {
  return std::make_shared<TargetLoss<Scalar>>(std::move(name), rule);
}

}  // namespace

template <class Scalar>
LossPointer<Scalar> mean_squared_error() {
  return make<Scalar>("mean_squared_error", {TargetLossKind::kSquaredError});
}
template <class Scalar>
LossPointer<Scalar> mean_absolute_error() {
  return make<Scalar>("mean_absolute_error", {TargetLossKind::kAbsoluteError});
}
template <class Scalar>
LossPointer<Scalar> binary_cross_entropy_loss() {
  return make<Scalar>("binary_cross_entropy", {TargetLossKind::kBinaryCrossEntropy});
}
template <class Scalar>
LossPointer<Scalar> huber_loss(double delta) {
  if (!(delta > 0) || !std::isfinite(delta)) {
    throw InvalidArgument(fmt::format("huber_loss: delta is {}; it must be a finite number above 0", delta));
  }
  return make<Scalar>(fmt::format("huber, delta {}", delta), {TargetLossKind::kHuber, delta});
}

template LossPointer<float> mean_squared_error<float>();
template LossPointer<double> mean_squared_error<double>();
template LossPointer<float> mean_absolute_error<float>();
template LossPointer<double> mean_absolute_error<double>();
template LossPointer<float> binary_cross_entropy_loss<float>();
template LossPointer<double> binary_cross_entropy_loss<double>();
template LossPointer<float> huber_loss<float>(double);
template LossPointer<double> huber_loss<double>(double);

}  // namespace farandole::trainer
