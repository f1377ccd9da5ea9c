// SPDX-License-Identifier: Apache-2.0
#include "loss_scaling.h"

#include "kernels/transfer.h"

namespace farandole::trainer {

using Kind = LossScaleOptions::Kind;

Kind loss_scale_kind(const TrainerOptions& options) {
  if (options.loss_scale.kind != Kind::kAutomatic) return options.loss_scale.kind;
  return options.compute == DType::kF16 ? Kind::kDynamic : Kind::kNone;
}

LossScaling::LossScaling(const Execution& execution, const TrainerOptions& options)
    : execution_(execution), options_(options.loss_scale), kind_(loss_scale_kind(options)) {
  if (kind_ == Kind::kNone) return;
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
  if (!state || kind_ == Kind::kNone) return;
  set({.scale = kind_ == Kind::kFixed ? options_.scale : state->scale,
       .good_steps = state->good_steps,
       .skipped_steps = state->skipped_steps});
}

std::optional<LossScaleState> LossScaling::state() const {
  if (kind_ == Kind::kNone) return std::nullopt;
  LossScale values;
  copy_now(execution_, BufferView(&values, sizeof values, DType::kU8), values_.view());
  return LossScaleState{.scale = values.scale, .good_steps = values.good_steps, .skipped_steps = values.skipped_steps};
}

void LossScaling::end_step() {
  if (kind_ == Kind::kNone) return;
  kernels_of<float>(execution_)
      .move_loss_scale({.is_dynamic = kind_ == Kind::kDynamic, .growth_steps = options_.growth_steps}, on_device());
}

}  // namespace farandole::trainer
