// SPDX-License-Identifier: Apache-2.0
#include "training_checkpoints.h"

#include <fmt/format.h>

#include <array>

#include "farandole/collectives/agreement.h"
#include "model_tensors.h"

namespace farandole::trainer {
namespace {

/// Options that must be the same after a resume: they determine the samples and random numbers of the next training
/// step, and the optimizer's state.
/// @param rule  name of the update rule
std::vector<std::pair<std::string, std::string>> options_to_match(const TrainerOptions& options,
                                                                  const std::string& rule, const BatchPlan& plan) {
  std::vector<std::pair<std::string, std::string>> must_match{
      {"optimizer", rule},
      {"parameter average", options.optimizer.ema_decay > 0 ? "exponential" : "none"},
      {"seed", std::to_string(options.seed)},
      {"global batch", std::to_string(options.global_batch)},
      {"deterministic", options.deterministic ? "yes" : "no"},
      {"micro-batches", options.deterministic ? std::to_string(options.micro_batches) : "any"}};
  const auto of_data = plan.options_to_match();
  must_match.insert(must_match.end(), of_data.begin(), of_data.end());
  return must_match;
}

}  // namespace

template <class Scalar>
TrainingCheckpoints<Scalar>::TrainingCheckpoints(Communicator& communicator, Model<Scalar>& model,
                                                 Optimizer<Scalar>& optimizer, const TrainerOptions& options,
                                                 const BatchPlan& plan)
    : communicator_(communicator),
      model_(model),
      optimizer_(optimizer),
      resume_(options.checkpoints.resume),
      must_match_(options_to_match(options, optimizer.rule_name(), plan)) {
  if (!options.checkpoints.directory.empty()) store_.emplace(options.checkpoints.directory, options.checkpoints.keep);
  model_tensors_ = tensors_of(model);
  for (OptimizerState<Scalar>& state : optimizer.states()) {
    append_tensors(optimizer_tensors_, model.parameter_layout(), std::span(state.values), "." + state.name);
  }
}

template <class Scalar>
CheckpointState TrainingCheckpoints<Scalar>::open() {
  CheckpointState state;
  agree(communicator_, [&] {
    if (store_ && communicator_.rank() == 0) read(state);
  });
  PlateauState plateau = state.plateau.value_or(PlateauState{});
  std::array<std::int64_t, 7> numbers{state.training_step,       state.epoch,        state.position, state.correct,
                                      state.plateau.has_value(), plateau.bad_losses, plateau.pending};
  std::array<double, 3> sums{state.loss_sum, plateau.best, plateau.factor};
  communicator_.broadcast(numbers, 0);
  communicator_.broadcast(sums, 0);
  communicator_.broadcast(model_.parameters(), 0);
  if (!model_.statistics().empty()) communicator_.broadcast(model_.statistics(), 0);
  for (OptimizerState<Scalar>& values : optimizer_.states()) communicator_.broadcast(values.values, 0);
  state.training_step = numbers[0];
  state.epoch = numbers[1];
  state.position = numbers[2];
  state.correct = numbers[3];
  state.loss_sum = sums[0];
  if (numbers[4] != 0) {
    state.plateau = {.best = sums[1], .bad_losses = numbers[5], .factor = sums[2], .pending = numbers[6] != 0};
  }
  return state;
}

template <class Scalar>
void TrainingCheckpoints<Scalar>::read(CheckpointState& state) {
  // When resuming, skip `prepare` if the directory is missing, because `prepare` would create it; `load_newest` then
  // throws.
  if (!resume_ || std::filesystem::exists(store_->directory())) store_->prepare();
  if (resume_) {
    LoadedCheckpoint loaded = store_->load_newest(must_match_, model_tensors_, optimizer_tensors_);
    state = std::move(loaded.state);
    resumed_from_ = std::move(loaded.path);
    last_saved_ = state.training_step;
    return;
  }
  if (const auto newest = store_->latest_with_incomplete()) {
    throw InvalidArgument(fmt::format(
        "{} holds checkpoints of an earlier training, the newest {}. Add --resume to go on from it, or choose "
        "another directory",
        store_->directory().string(), newest->filename().string()));
  }
}

template <class Scalar>
void TrainingCheckpoints<Scalar>::save(CheckpointState state) {
  if (!store_) return;
  state.options = must_match_;
  agree(communicator_, [&] {
    if (communicator_.rank() != 0 || last_saved_ == state.training_step) return;
    store_->save(state, model_tensors_, optimizer_tensors_);
    last_saved_ = state.training_step;
  });
}

template class TrainingCheckpoints<float>;
template class TrainingCheckpoints<double>;

}  // namespace farandole::trainer
