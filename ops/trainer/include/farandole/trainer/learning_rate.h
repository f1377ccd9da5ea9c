// SPDX-License-Identifier: Apache-2.0
// Learning-rate schedules.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <string_view>

#include "farandole/core/export.h"

namespace farandole FARANDOLE_API {
namespace trainer {

/// Course of the learning rate after the warm-up; kOwn takes LearningRateOptions::own.
enum class LearningRateSchedule { kConstant, kStep, kCosine, kPolynomial, kOneCycle, kPlateau, kOwn };
/// The schedule's name: "constant", "step", "cosine", "polynomial", "one-cycle", "plateau", "own".
std::string_view name(LearningRateSchedule schedule);
/// Parses the name of a built-in schedule. @throws InvalidArgument  the name is unknown; lists the valid names
LearningRateSchedule parse_learning_rate_schedule(std::string_view text);

/// Options of kOneCycle.
struct OneCycleOptions {
  double pct_start = 0.3;         ///< fraction of the training steps in which the rate rises, in [0, 1)
  double div_factor = 25;         ///< the first rate is base / div_factor
  double final_div_factor = 1e4;  ///< the last rate is the first rate / final_div_factor
};

/// Options of kPlateau.
struct PlateauOptions {
  double factor = 0.1;         ///< factor of each reduction of the rate, in (0, 1)
  std::int64_t patience = 10;  ///< number of losses without progress that cause no reduction; the next one does
  double threshold = 1e-4;     ///< a loss is progress if it is less than the best loss * (1 - threshold); in [0, 1)
};

struct LearningRateOptions {
  double base = 0.05;
  LearningRateSchedule schedule = LearningRateSchedule::kConstant;
  std::int64_t warmup_steps = 0;   ///< training steps in which the rate rises linearly to the schedule's first rate
  double step_factor = 0.1;        ///< kStep: factor by which the rate changes after every `step_epochs` epochs
  std::int64_t step_epochs = 10;   ///< kStep: number of epochs between changes of the rate
  bool scale_by_replicas = false;  ///< multiply the rate by the number of replicas (Goyal et al., 2017)
  double minimum = 0;              ///< kCosine, kPolynomial, kPlateau: lowest rate, which is not scaled by replicas
  double power = 1;                ///< kPolynomial
  OneCycleOptions one_cycle = {};
  PlateauOptions plateau = {};
  /// kOwn: returns the rate of a training step (0-based), finite and at least 0, the same on all ranks. `base` has no
  /// effect; warm-up and `scale_by_replicas` have. The trainer calls the function once per training step and compares
  /// the rates of all ranks, at the cost of an allreduce of 24 bytes. An exception ends the training as that of any
  /// other callback does: its rank rethrows it, and the other ranks raise PeerLost.
  std::function<double(std::int64_t training_step, std::int64_t steps_per_epoch, std::int64_t total_steps)> own = {};
};

/// State of kPlateau, which a checkpoint must store.
struct PlateauState {
  double best = std::numeric_limits<double>::infinity();  ///< lowest loss that was progress
  std::int64_t bad_losses = 0;                            ///< losses without progress since `best` or a reduction
  double factor = 1;                                      ///< product of all reductions
  bool pending = false;  ///< training was stopped before the test loss of its last epoch was computed

  friend bool operator==(const PlateauState&, const PlateauState&) = default;
};

/// Updates the state with a new loss, as PyTorch's ReduceLROnPlateau does with the mode "min".
void observe_loss(const PlateauOptions& options, double loss, PlateauState& state);

/// The rate of a training step (0-based). After the warm-up:
///   kConstant    base
///   kStep        base * step_factor^(epoch / step_epochs), with integer division
///   kCosine      half a cosine from `base` to `minimum` at `total_steps`
///   kPolynomial  minimum + (base - minimum) * (1 - t / T)^power, from `base` to `minimum` at `total_steps`
///   kOneCycle    half a cosine from base / div_factor up to `base`, and another one down to the last rate at the last
///                training step, as PyTorch's OneCycleLR, whose cycle of the momentum is left out
///   kPlateau     base * PlateauState::factor, but at least `minimum`
///   kOwn         the rate that `own` returns
/// t is the number of training steps since the warm-up, and T the number of all training steps after the warm-up.
/// kOneCycle, too, begins after the warm-up.
/// @param replicas  number of replicas in sync   @param plateau  state of kPlateau
double learning_rate(const LearningRateOptions& options, int replicas, std::int64_t training_step,
                     std::int64_t steps_per_epoch, std::int64_t total_steps, const PlateauState& plateau = {});

/// @throws InvalidArgument  an option is out of range, or does not fit the schedule
void check(const LearningRateOptions& options);

}  // namespace trainer
}  // namespace FARANDOLE_API
