// SPDX-License-Identifier: Apache-2.0
// Optimizers over flat vectors.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "farandole/core/buffer.h"
#include "farandole/core/export.h"
#include "farandole/trainer/execution.h"
#include "farandole/trainer/model.h"
#include "farandole/trainer/update_rule.h"

namespace farandole FARANDOLE_API {
namespace trainer {

/// Update rule of an optimizer; kOwn takes OptimizerOptions::own.
enum class OptimizerKind { kSgd, kAdam, kAdamW, kOwn };
/// The optimizer's name: "sgd", "adam", "adamw", "own".
std::string_view name(OptimizerKind kind);
/// Parses the name of a built-in optimizer. @throws InvalidArgument  the name is unknown; lists the valid names
OptimizerKind parse_optimizer(std::string_view text);

/// Options of the parameters whose names fit a pattern.
struct ParameterGroup {
  /// Name of a parameter ("3.conv2d.weight"), or the beginning of names followed by '*' ("3.*"); see NamedSpan::name.
  std::string pattern;
  double rate_factor = 1;  ///< factor on the learning rate
  /// Weight decay of every parameter of the group, also of those whose NamedSpan::decays is false. Empty:
  /// OptimizerOptions::weight_decay, where the parameter decays.
  std::optional<double> weight_decay = {};
  /// False: frozen. The values keep their bits, and the gradients do not count for Optimizer::gradient_norm. The moving
  /// statistics of a frozen layer still follow the batches.
  bool trainable = true;
};

/// Makers of an update rule of your own. Only the maker for the type of the master values is needed, which is the
/// model's unless OptimizerOptions::master says otherwise. It is called more than
/// once, and each call returns a new rule.
struct OwnUpdateRule {
  std::function<std::unique_ptr<UpdateRule<float>>()> f32 = {};
  std::function<std::unique_ptr<UpdateRule<double>>()> f64 = {};
};

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
  /// Groups of parameters. A parameter belongs to the first group whose pattern fits; parameters of no group are
  /// trained with the options above.
  std::vector<ParameterGroup> groups = {};
  /// Decay of the exponential moving average of the parameters, for example 0.999; 0: no average. After each update:
  /// average = ema_decay * average + (1 - ema_decay) * parameter. The average starts with the initial parameters.
  double ema_decay = 0;
  /// Type of the master values: the parameters as the optimizer keeps them, the rule's states and the average. Empty:
  /// the model's own parameters. f64 with a model of f32: every update is computed in double on a copy of the
  /// parameters, which the model gets rounded, so that updates below the parameters' last digit add up instead of being
  /// lost. Costs 8 bytes per parameter, twice the memory of the states, and the conversions.
  std::optional<DType> master = {};
  OwnUpdateRule own = {};  ///< kOwn
};

/// State vector of an optimizer, laid out like the parameters, in the type of the master values.
struct OptimizerState {
  std::string name;  ///< "momentum", "first_moment", "second_moment", "ema", "master"
  Buffer values;
};

/// Returns the update rule of the options: SGD, Adam, AdamW, or a new rule of `options.own`. A rule of your own can use
/// a built-in rule.
/// @throws InvalidArgument  an option is out of range, or there is no own rule for this precision
template <class Scalar>
FARANDOLE_API std::unique_ptr<UpdateRule<Scalar>> make_update_rule(const OptimizerOptions& options);

/// What an update needs beside parameters and gradients.
struct UpdateStep {
  double learning_rate = 0;
  std::int64_t training_step = 0;  ///< 0-based; Adam's bias correction needs it, and step 0 starts the average
  /// Training steps before this one whose update was skipped; Adam's bias correction leaves them out. With `loss_scale`
  /// 0: LossScale::skipped_steps counts them.
  std::int64_t skipped_steps = 0;
  /// Factor on every gradient, for example 1 / number of batches whose gradients were added.
  double gradient_scale = 1;
  double clip_norm = 0;  ///< limit of the scaled gradients' norm (gradient_norm); 0: no clipping
  /// Null, or the numbers of the training step on the device, which replace `learning_rate` and `training_step`: for an
  /// update that is captured into a graph.
  const StepNumbers* step_numbers = nullptr;
  /// Null, or the factor that the gradients contain, in the memory of the execution. The update divides by it, and if a
  /// gradient is no finite number, it leaves parameters, states and average as they are, and sets
  /// LossScale::is_skipped.
  LossScale* loss_scale = nullptr;
};

template <class Scalar>
class ParameterUpdates;

/// Updates parameters from their gradients, by PyTorch's formulas:
///   SGD    g += w p;  v = m v + g;  p -= lr v      (nesterov: p -= lr (g + m v))
///   Adam   g += w p;  m1 = b1 m1 + (1-b1) g;  m2 = b2 m2 + (1-b2) g²;  p -= lr m1/(1-b1^t) / (sqrt(m2/(1-b2^t)) + e)
///   AdamW  p -= lr w p; then as Adam without w
/// p is a parameter, g its gradient, w the weight decay, m the momentum, v the velocity, m1 and m2 the moments, e
/// epsilon, lr the learning rate, and t = training_step + 1 less the skipped training steps. Sources: Kingma & Ba, ICLR
/// 2015; Loshchilov & Hutter, ICLR 2019.
///
/// Every replica applies the same update from the same reduced gradients, so all replicas keep the same parameters. Not
/// thread-safe.
template <class Scalar>
class Optimizer {
 public:
  /// @param layout  layout of the parameters   @param execution  where the parameters lie: `model.execution()`
  /// @throws InvalidArgument  an option is out of range; a group's pattern fits no parameter (lists the names); or as
  /// make_update_rule
  /// @throws Unsupported  a rule or master values that cannot be computed on a device
  Optimizer(const OptimizerOptions& options, std::vector<NamedSpan> layout, std::size_t parameter_count,
            const Execution& execution = {});

  ~Optimizer();
  Optimizer(Optimizer&&) noexcept;

  /// Updates `parameters` in place. All memory lies in the space of `execution`, as Model::execution. Between two calls
  /// the program may change the parameters: master values follow.
  /// @throws InvalidArgument  the vectors have another length, or lie elsewhere
  void update(const Execution& execution, VectorView<Scalar> parameters, VectorView<const Scalar> gradients,
              const UpdateStep& step);

  /// What a captured update reads in UpdateStep::step_numbers.
  StepNumbers step_numbers(const UpdateStep& step) const;

  /// Euclidean norm of the gradients of all parameters that are not frozen. Waits until it is computed.
  double gradient_norm(const Execution& execution, VectorView<const Scalar> gradients) const;

  /// The state that a checkpoint must store.
  std::vector<OptimizerState>& states();
  /// Moving average of the parameters, which is one of `states()`; defined after the first update. Empty without
  /// `ema_decay`.
  BufferView average();
  Precision precision() const;
  const OptimizerOptions& options() const;
  std::string rule_name() const;

 private:
  std::unique_ptr<ParameterUpdates<Scalar>> updates_;
};

/// Euclidean norm of `values` in host memory, summed in double in a fixed order.
template <class Scalar>
FARANDOLE_API double global_norm(std::span<const Scalar> values);

/// Factor that reduces a gradient of this norm to `limit`; 1 if the norm is at most `limit`, or if `limit` is 0.
/// PyTorch's clip_grad_norm_ divides by norm + 1e-6 instead of the norm.
double clipping_factor(double norm, double limit);

}  // namespace trainer
}  // namespace FARANDOLE_API
