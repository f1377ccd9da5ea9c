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
std::vector<std::pair<std::string, std::string>> options_to_match(const TrainerOptions& options,
                                                                  const Dataset& training) {
  return {{"optimizer", std::string(name(options.optimizer.kind))},
          {"seed", std::to_string(options.seed)},
          {"global batch", std::to_string(options.global_batch)},
          {"training samples", std::to_string(training.size())},
          {"deterministic", options.deterministic ? "yes" : "no"},
          {"micro-batches", options.deterministic ? std::to_string(options.micro_batches) : "any"}};
}

}  // namespace

template <class Scalar>
TrainingCheckpoints<Scalar>::TrainingCheckpoints(Communicator& communicator, Model<Scalar>& model,
                                                 Optimizer<Scalar>& optimizer, const TrainerOptions& options,
                                                 const Dataset& training)
    : communicator_(communicator),
      model_(model),
      optimizer_(optimizer),
      resume_(options.checkpoints.resume),
      must_match_(options_to_match(options, training)) {
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
  std::array<std::int64_t, 4> numbers{state.training_step, state.epoch, state.position, state.correct};
  communicator_.broadcast(numbers, 0);
  communicator_.broadcast(BufferView(&state.loss_sum, 1, DType::kF64), 0);
  communicator_.broadcast(model_.parameters(), 0);
  if (!model_.statistics().empty()) communicator_.broadcast(model_.statistics(), 0);
  for (OptimizerState<Scalar>& values : optimizer_.states()) communicator_.broadcast(values.values, 0);
  state.training_step = numbers[0];
  state.epoch = numbers[1];
  state.position = numbers[2];
  state.correct = numbers[3];
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
