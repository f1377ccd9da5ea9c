// SPDX-License-Identifier: Apache-2.0
// Losses of samples with targets: the mean over the targets of a function of output and target, computed in double.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "farandole/core/error.h"
#include "farandole/trainer/loss.h"
#include "target_checks.h"

namespace farandole::trainer {
namespace {

/// Loss of an output and its derivative by the output.
struct Point {
  double loss = 0, slope = 0;
};

struct SquaredError {
  std::string name() const { return "mean_squared_error"; }
  Point operator()(double output, double target) const {
    const double difference = output - target;
    return {difference * difference, 2 * difference};
  }
};

struct AbsoluteError {
  std::string name() const { return "mean_absolute_error"; }
  Point operator()(double output, double target) const {
    const double difference = output - target;
    // A slope of NaN for a NaN, so that an update cannot hide it.
    return {std::abs(difference), difference == 0 ? 0.0 : difference / std::abs(difference)};
  }
};

struct Huber {
  double delta = 1;

  std::string name() const { return fmt::format("huber, delta {}", delta); }
  Point operator()(double output, double target) const {
    const double difference = output - target, distance = std::abs(difference);
    if (distance <= delta) return {difference * difference / 2, difference};
    return {delta * (distance - delta / 2), delta * (difference / distance)};
  }
};

/// By the logit z: max(z, 0) - t z + log(1 + exp(-|z|)), which never overflows.
struct BinaryCrossEntropy {
  std::string name() const { return "binary_cross_entropy"; }
  Point operator()(double output, double target) const {
    const double small = std::exp(-std::abs(output));
    const double probability = output >= 0 ? 1 / (1 + small) : small / (1 + small);
    return {std::max(output, 0.0) - target * output + std::log1p(small), probability - target};
  }
};

template <class Scalar, class Rule>
class TargetLoss final : public Loss<Scalar> {
 public:
  explicit TargetLoss(Rule rule) : rule_(rule) {}

  std::string name() const override { return rule_.name(); }

  void check(const Shape& output, const Dataset& data, const std::string& what) const override {
    check_targets("the loss " + name(), output, data, what);
  }

  void evaluate(const Execution&, const Tensor<Scalar>& outputs, const BatchView<Scalar>& batch, double scale,
                Tensor<Scalar>* gradient, VectorView<double> result) const override {
    check_target_count("the loss " + name(), outputs, batch);
    if (gradient != nullptr) gradient->resize(outputs.samples(), outputs.shape());
    const std::int64_t count = outputs.sample_elements();
    const Scalar *found = outputs.host().data(), *right = batch.targets.host().data();
    Scalar* slopes = gradient == nullptr ? nullptr : gradient->host().data();
    double loss_sum = 0;
    for (std::int64_t sample = 0; sample < outputs.samples(); ++sample) {
      const double factor = batch.weight(sample) / static_cast<double>(count);
      double sum = 0;
      for (std::int64_t i = sample * count; i < (sample + 1) * count; ++i) {
        const Point point = rule_(found[i], right[i]);
        sum += point.loss;
        if (slopes != nullptr) slopes[i] = static_cast<Scalar>(scale * factor * point.slope);
      }
      loss_sum += factor * sum;
    }
    result.host().front() += loss_sum;
  }

 private:
  const Rule rule_;
};

template <class Scalar, class Rule>
LossPointer<Scalar> make(Rule rule) {
  return std::make_shared<TargetLoss<Scalar, Rule>>(rule);
}

}  // namespace

template <class Scalar>
LossPointer<Scalar> mean_squared_error() {
  return make<Scalar>(SquaredError{});
}
template <class Scalar>
LossPointer<Scalar> mean_absolute_error() {
  return make<Scalar>(AbsoluteError{});
}
template <class Scalar>
LossPointer<Scalar> binary_cross_entropy_loss() {
  return make<Scalar>(BinaryCrossEntropy{});
}
template <class Scalar>
LossPointer<Scalar> huber_loss(double delta) {
  if (!(delta > 0) || !std::isfinite(delta)) {
    throw InvalidArgument(fmt::format("huber_loss: delta is {}; it must be a finite number above 0", delta));
  }
  return make<Scalar>(Huber{delta});
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
