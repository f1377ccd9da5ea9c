// SPDX-License-Identifier: Apache-2.0
#include "loss_scaling.h"

#include <fmt/format.h>

#include <cmath>
#include <utility>

#include "kernels/transfer.h"
#include "kernels/update_formulas.h"

namespace farandole::trainer {

using Kind = LossScaleOptions::Kind;

Kind loss_scale_kind(const TrainerOptions& options) {
  if (options.loss_scale.kind != Kind::kAutomatic) return options.loss_scale.kind;
  return options.compute == DType::kF16 ? Kind::kDynamic : Kind::kNone;
}

LossScaling::LossScaling(const Execution& execution, const TrainerOptions& options)
    : execution_(execution), options_(options.loss_scale), kind_(loss_scale_kind(options)) {
  if (!is_on()) return;
  values_ = allocate(execution.memory(), sizeof(LossScale), DType::kU8);
  set({.scale = options_.scale});
}

void LossScaling::set(const LossScaleState& state) {
  LossScale values{.scale = state.scale, .good_steps = state.good_steps, .skipped_steps = state.skipped_steps};
  copy_now(execution_, values_.view(), ConstBufferView(&values, sizeof values, DType::kU8));
}

LossScale* LossScaling::on_device() {
  return static_cast<LossScale*>(values_.view().data);
}

void LossScaling::restore(const std::optional<LossScaleState>& state) {
  restored_ = state;
  if (!state || !is_on()) return;
  set({.scale = kind_ == Kind::kFixed ? options_.scale : state->scale,
       .good_steps = state->good_steps,
       .skipped_steps = state->skipped_steps});
}

std::optional<LossScaleState> LossScaling::state() const {
  if (!is_on()) return std::nullopt;
  LossScale values;
  copy_now(execution_, BufferView(&values, sizeof values, DType::kU8), values_.view());
  return LossScaleState{.scale = values.scale, .good_steps = values.good_steps, .skipped_steps = values.skipped_steps};
}

void LossScaling::end_step() {
  if (!is_on()) return;
  kernels_of<float>(execution_)
      .move_loss_scale({.is_dynamic = kind_ == Kind::kDynamic, .growth_steps = options_.growth_steps}, on_device());
}

std::string SkippedLosses::judge(double loss, const LossScale& after) {
  const bool was_smallest = std::exchange(was_smallest_, after.scale / 2 < kMinLossScale);
  if (std::isfinite(loss)) {
    in_a_row_ = 0;
    return {};
  }
  if (after.is_skipped == 0) return "Its gradients are finite, so the parameters were updated with it";
  ++in_a_row_;
  const bool is_fixed = options_.kind == Kind::kFixed;
  const bool is_at_end = !is_fixed && was_smallest && in_a_row_ > 1;
  if (!is_at_end && in_a_row_ < kMaxInARow) return {};
  return fmt::format(
      "So were the losses of the {} training steps before it; all of them were skipped, and the loss scale is {}{}, "
      "which does not change the loss itself: the model's outputs overflow {}, or the data have a number that is NaN "
      "or infinite",
      in_a_row_ - 1, after.scale, is_at_end ? ", the smallest" : "", farandole::name(compute_));
}

}  // namespace farandole::trainer
