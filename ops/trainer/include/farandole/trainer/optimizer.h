// SPDX-License-Identifier: Apache-2.0
// Optimizers over flat vectors.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "farandole/core/export.h"
#include "farandole/trainer/model.h"

namespace farandole FARANDOLE_API {
namespace trainer {

enum class OptimizerKind { kSgd, kAdam, kAdamW };
/// The optimizer's name: "sgd", "adam", "adamw".
std::string_view name(OptimizerKind kind);
/// Parses the name of an optimizer. @throws InvalidArgument  the name is unknown; lists the valid names
OptimizerKind parse_optimizer(std::string_view text);

struct OptimizerOptions {
  OptimizerKind kind = OptimizerKind::kSgd;
  /// Factor of the weight decay, for parameters whose NamedSpan::decays is true. SGD and Adam add the decay to the
  /// gradient; AdamW applies it to the parameter directly.
  double weight_decay = 0;
  double momentum = 0.9;  ///< SGD
  bool nesterov = false;  ///< SGD
  double beta1 = 0.9;     ///< Adam, AdamW: decay of the first moment
  double beta2 = 0.999;   ///< Adam, AdamW: decay of the second moment
  double epsilon = 1e-8;  ///< Adam, AdamW
};

/// State vector of an optimizer, laid out like the parameters.
template <class Scalar>
struct OptimizerState {
  std::string name;  ///< "momentum", "first_moment", "second_moment"
  std::vector<Scalar> values;
};

/// Updates parameters from their gradients, by PyTorch's formulas:
///   SGD    g += w p;  v = m v + g;  p -= lr v      (nesterov: p -= lr (g + m v))
///   Adam   g += w p;  m1 = b1 m1 + (1-b1) g;  m2 = b2 m2 + (1-b2) g²;  p -= lr m1/(1-b1^t) / (sqrt(m2/(1-b2^t)) + e)
///   AdamW  p -= lr w p; then as Adam without w
/// p is a parameter, g its gradient, w the weight decay, m the momentum, v the velocity, m1 and m2 the moments, e
/// epsilon, lr the learning rate, and t = training_step + 1. Sources: Kingma & Ba, ICLR 2015; Loshchilov & Hutter, ICLR
/// 2019.
///
/// Every replica applies the same update from the same reduced gradients, so all replicas keep the same parameters. Not
/// thread-safe.
template <class Scalar>
class Optimizer {
 public:
  /// @param layout  layout of the parameters   @throws InvalidArgument  an option is out of range
  Optimizer(const OptimizerOptions& options, std::vector<NamedSpan> layout, std::size_t parameter_count);

  /// Updates `parameters` in place.
  /// @param gradient_scale  factor on every gradient, for example for clipping
  /// @param training_step   0-based; Adam's bias correction needs it
  void update(std::span<Scalar> parameters, std::span<const Scalar> gradients, double learning_rate,
              double gradient_scale, std::int64_t training_step);

  /// The state that a checkpoint must store.
  std::vector<OptimizerState<Scalar>>& states() { return states_; }
  const OptimizerOptions& options() const { return options_; }

 private:
  OptimizerOptions options_;
  std::vector<NamedSpan> layout_;
  std::vector<OptimizerState<Scalar>> states_;
};

/// Euclidean norm of `values`, summed in double in a fixed order.
template <class Scalar>
FARANDOLE_API double global_norm(std::span<const Scalar> values);

/// Factor that reduces a gradient of this norm to `limit`; 1 if the norm is at most `limit`, or if `limit` is 0.
double clipping_factor(double norm, double limit);

}  // namespace trainer
}  // namespace FARANDOLE_API
