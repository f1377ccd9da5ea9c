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
/// "sgd", "adam", "adamw"
std::string_view name(OptimizerKind kind);
/// @throws InvalidArgument  with the valid names
OptimizerKind parse_optimizer(std::string_view text);

struct OptimizerOptions {
  OptimizerKind kind = OptimizerKind::kSgd;
  double weight_decay = 0;  ///< of parameters that decay; added to the gradient by SGD and Adam, applied apart by AdamW
  double momentum = 0.9;    ///< SGD
  bool nesterov = false;    ///< SGD
  double beta1 = 0.9;       ///< Adam, AdamW: decay of the first moment
  double beta2 = 0.999;     ///< Adam, AdamW: decay of the second moment
  double epsilon = 1e-8;    ///< Adam, AdamW
};

/// One flat vector that an optimizer keeps beside the parameters, laid out like them.
template <class Scalar>
struct OptimizerState {
  std::string name;  ///< "momentum", "first_moment", "second_moment"
  std::vector<Scalar> values;
};

/// Updates parameters by their gradients with PyTorch's formulas:
///   SGD    g += w p;  v = m v + g;  p -= lr v      (nesterov: p -= lr (g + m v))
///   Adam   g += w p;  m1 = b1 m1 + (1-b1) g;  m2 = b2 m2 + (1-b2) g²;  p -= lr m1/(1-b1^t) / (sqrt(m2/(1-b2^t)) + e)
///   AdamW  p -= lr w p; then as Adam without w
/// Sources: Kingma & Ba, ICLR 2015; Loshchilov & Hutter, ICLR 2019.
///
/// Every replica runs the same update on the same reduced gradients and so keeps the same parameters. Not thread-safe.
template <class Scalar>
class Optimizer {
 public:
  /// @param layout  of the parameters   @throws InvalidArgument  an option is out of range
  Optimizer(const OptimizerOptions& options, std::vector<NamedSpan> layout, std::size_t parameter_count);

  /// @param gradient_scale  factor on every gradient, e.g. for clipping
  /// @param training_step   0-based; Adam's bias correction needs it
  void update(std::span<Scalar> parameters, std::span<const Scalar> gradients, double learning_rate,
              double gradient_scale, std::int64_t training_step);

  /// What a checkpoint must keep.
  std::vector<OptimizerState<Scalar>>& states() { return states_; }
  const OptimizerOptions& options() const { return options_; }

 private:
  OptimizerOptions options_;
  std::vector<NamedSpan> layout_;
  std::vector<OptimizerState<Scalar>> states_;
};

/// Euclidean norm, summed in double in one fixed order.
template <class Scalar>
FARANDOLE_API double global_norm(std::span<const Scalar> values);

/// The factor that brings a gradient of this norm down to `limit`; 1 if it is below, or if limit is 0.
double clipping_factor(double norm, double limit);

}  // namespace trainer
}  // namespace FARANDOLE_API
