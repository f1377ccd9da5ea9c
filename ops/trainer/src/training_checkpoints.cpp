// SPDX-License-Identifier: Apache-2.0
#include "training_checkpoints.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <exception>
#include <span>
#include <utility>

#include "farandole/collectives/agreement.h"
#include "farandole/core/error.h"
#include "farandole/internal/log.h"
#include "kernels/transfer.h"
#include "model_tensors.h"
#include "option_texts.h"
#include "shared_facts.h"

namespace farandole::trainer {
namespace {

/// Name of the data whose results the monitor and the schedule kPlateau observe.
constexpr const char* kObservedData = "observed results";

/// Options that must be the same after a resume: they determine the samples and random numbers of the next training
/// step, and the optimizer's state.
/// @param rule  name of the update rule
OptionTexts options_to_match(const TrainerOptions& options, const std::string& rule, Precision precision,
                             const BatchPlan& plan) {
  const bool has_masters = precision.master != precision.compute;
  OptionTexts must_match{{"optimizer", rule},
                         {"parameter average", options.optimizer.ema_decay > 0 ? "exponential" : "none"},
                         {"type of master values", has_masters ? std::string(name(precision.master)) : "none"},
                         {"seed", std::to_string(options.seed)},
                         {"global batch", std::to_string(options.global_batch)},
                         {"deterministic", options.deterministic ? "yes" : "no"},
                         {"micro-batches", options.deterministic ? std::to_string(options.micro_batches) : "any"}};
  const auto of_data = plan.options_to_match();
  must_match.insert(must_match.end(), of_data.begin(), of_data.end());
  return must_match;
}

/// Options that a resume may change, and the number of replicas.
OptionTexts options_that_may_change(const TrainerOptions& options, int replicas, bool has_test) {
  constexpr std::string_view kPrefix = "TrainerOptions::";
  // They must match, or say only how this run begins and where it writes.
  constexpr std::array<std::string_view, 5> kOthers{"seed", "global_batch", "deterministic", "micro_batches",
                                                    "initialize"};
  OptionTexts result{{"replicas", std::to_string(replicas)}};
  for (const SharedFact& fact : facts_of(options)) {
    const std::string name = fact.what.substr(kPrefix.size());
    if (std::find(kOthers.begin(), kOthers.end(), name) == kOthers.end() && !name.starts_with("checkpoints.")) {
      result.emplace_back(name, fact.value);
    }
  }
  result.emplace_back(kObservedData, has_test && options.evaluate_every > 0 ? "test" : "training");
  return result;
}

/// Drops results that this training cannot compare with its own, because they are of other data, or are another
/// metric's.
/// @param before  options of the checkpoint
void forget_other_results(const OptionTexts& before, const OptionTexts& now, CheckpointState& state) {
  const auto differs = [&](std::string_view option) {
    const std::string* const old = find_option(before, option);
    return old != nullptr && *old != *find_option(now, option);
  };
  const bool other_data = differs(kObservedData);
  if (other_data || differs("monitor.value") || differs("monitor.higher_is_better")) state.monitor.reset();
  if (other_data && state.plateau) state.plateau = PlateauState{.factor = state.plateau->factor};
}

/// Returns a text for each option that has another value now. Checkpoints of older programs have no such options.
std::vector<std::string> compare(const OptionTexts& before, const OptionTexts& now) {
  std::vector<std::string> changes;
  for (const auto& [option, value] : now) {
    const std::string* const old = find_option(before, option);
    if (old != nullptr && *old != value) changes.push_back(fmt::format("{}: {}, now {}", option, *old, value));
  }
  return changes;
}

}  // namespace

template <class Scalar>
TrainingCheckpoints<Scalar>::TrainingCheckpoints(Communicator& communicator, Model<Scalar>& model,
                                                 Optimizer<Scalar>& optimizer, const TrainerOptions& options,
                                                 const BatchPlan& plan, bool has_test)
    : communicator_(communicator),
      model_(model),
      optimizer_(optimizer),
      resumes_(options.checkpoints.resume || options.checkpoints.resume_if_any),
      needs_one_(options.checkpoints.resume),
      keeps_best_(options.checkpoints.keep_best),
      must_match_(options_to_match(options, optimizer.rule_name(), optimizer.precision(), plan)),
      may_change_(options_that_may_change(options, communicator.size(), has_test)) {
  if (!options.checkpoints.directory.empty()) store_.emplace(options.checkpoints.directory, options.checkpoints.keep);
  agree(communicator, [&] {
    if (store_ && communicator.rank() == 0) values_.emplace(model.execution(), vectors());
  });
  if (!values_) return;
  const std::vector<BufferView>& views = values_->copies.views();
  append_tensors(values_->of_model, model.parameter_layout(), views[0]);
  append_tensors(values_->of_model, model.statistic_layout(), views[1]);
  for (std::size_t k = 0; k < optimizer.states().size(); ++k) {
    append_tensors(values_->of_optimizer, model.parameter_layout(), views[2 + k], "." + optimizer.states()[k].name);
  }
}

template <class Scalar>
TrainingCheckpoints<Scalar>::~TrainingCheckpoints() {
  try {
    writer_.wait();
  } catch (const DataError& error) {
    log(LogLevel::kWarning, error.message());
  } catch (const std::exception&) {
    // A forked child, which writes nothing, or a device that has failed, which other errors tell.
  }
}

template <class Scalar>
std::vector<BufferView> TrainingCheckpoints<Scalar>::vectors() {
  std::vector<BufferView> all{model_.parameters(), model_.statistics()};
  for (OptimizerState& state : optimizer_.states()) all.push_back(state.values.view());
  return all;
}

template <class Scalar>
CheckpointState TrainingCheckpoints<Scalar>::open() {
  CheckpointState state;
  agree(communicator_, [&] {
    if (store_ && communicator_.rank() == 0) read(state);
  });
  const PlateauState plateau = state.plateau.value_or(PlateauState{});
  const MonitorState monitor = state.monitor.value_or(MonitorState{});
  const LossScaleState loss_scale = state.loss_scale.value_or(LossScaleState{});
  std::array<std::int64_t, 14> numbers{state.training_step,
                                       state.epoch,
                                       state.position,
                                       state.plateau.has_value(),
                                       plateau.bad_losses,
                                       plateau.pending,
                                       state.monitor.has_value(),
                                       monitor.best_step,
                                       monitor.bad_results,
                                       monitor.pending,
                                       state.loss_scale.has_value(),
                                       loss_scale.good_steps,
                                       loss_scale.skipped_steps,
                                       state.uncounted};
  std::array<double, 5> sums{state.loss_sum, plateau.best, plateau.factor, monitor.best, loss_scale.scale};
  communicator_.broadcast(numbers, 0);
  communicator_.broadcast(sums, 0);
  finish(model_.execution());  // the broadcasts do not wait for its stream
  communicator_.broadcast(model_.parameters(), 0);
  if (!model_.statistics().empty()) communicator_.broadcast(model_.statistics(), 0);
  for (OptimizerState& values : optimizer_.states()) communicator_.broadcast(values.values.view(), 0);
  state.training_step = numbers[0];
  state.epoch = numbers[1];
  state.position = numbers[2];
  state.uncounted = numbers[13];
  state.loss_sum = sums[0];
  if (numbers[3] != 0) {
    state.plateau = {.best = sums[1], .bad_losses = numbers[4], .factor = sums[2], .pending = numbers[5] != 0};
  }
  if (numbers[6] != 0) {
    state.monitor = {.best = sums[3], .best_step = numbers[7], .bad_results = numbers[8], .pending = numbers[9] != 0};
  }
  if (numbers[10] != 0) {
    state.loss_scale = {.scale = sums[4], .good_steps = numbers[11], .skipped_steps = numbers[12]};
  }
  if (state.training_step > 0) last_saved_ = state.training_step;
  return state;
}

template <class Scalar>
void TrainingCheckpoints<Scalar>::read(CheckpointState& state) {
  // When resuming, skip `prepare` if the directory is missing, because `prepare` would create it; `load_newest` then
  // throws.
  if (!needs_one_ || std::filesystem::exists(store_->directory())) store_->prepare();
  const std::optional<std::filesystem::path> newest = store_->latest_with_incomplete();
  if (needs_one_ || (resumes_ && newest)) {
    LoadedCheckpoint loaded =
        store_->load_newest(must_match_, values_->of_model, values_->of_optimizer, model_.description());
    values_->copies.put_back();
    state = std::move(loaded.state);
    resumed_.from = std::move(loaded.path);
    resumed_.changed_options = compare(state.other_options, may_change_);
    forget_other_results(state.other_options, may_change_, state);
    // The former run may have ended between writing the checkpoint and the link.
    if (is_best(state)) store_->mark_best(state.training_step);
    return;
  }
  if (newest) {
    throw InvalidArgument(fmt::format(
        "{} holds checkpoints of an earlier training, the newest {}. Add --resume (CheckpointOptions::resume) to go on "
        "from it, or choose another directory",
        store_->directory().string(), newest->filename().string()));
  }
}

template <class Scalar>
void TrainingCheckpoints<Scalar>::begin(CheckpointState state) {
  state.options = must_match_;
  state.other_options = may_change_;
  state.model = model_.description();
  const std::int64_t training_step = state.training_step;
  agree(communicator_, [&] {
    if (communicator_.rank() != 0) return;
    values_->copies.take();
    writer_.start([this, state = std::move(state)] { write(state); });
  });
  last_saved_ = training_step;
  is_pending_ = true;
}

template <class Scalar>
void TrainingCheckpoints<Scalar>::write(const CheckpointState& state) {
  values_->copies.wait();
  check_finite(state.training_step);
  // If only the link to the best failed, the checkpoint itself is there.
  if (written_ != state.training_step) store_->save(state, values_->of_model, values_->of_optimizer);
  written_ = state.training_step;
  if (is_best(state)) store_->mark_best(state.training_step);
}

template <class Scalar>
void TrainingCheckpoints<Scalar>::check_finite(std::int64_t training_step) const {
  const auto parameters = std::span(values_->of_model).first(model_.parameter_layout().size());
  for (const CheckpointTensor& parameter : parameters) {
    const std::span values(static_cast<const Scalar*>(parameter.values.data), parameter.values.count);
    const auto bad = std::ranges::find_if(values, [](Scalar value) { return !std::isfinite(value); });
    if (bad == values.end()) continue;
    const std::optional<std::filesystem::path> newest = store_->latest();
    throw DataError(fmt::format(
        "after training step {} element {} of the parameter '{}' is {}, so no checkpoint of it was written: the "
        "training has diverged. {}. What to try: a lower learning rate, a longer warm-up, a limit of the gradients' "
        "norm",
        training_step, bad - values.begin(), parameter.name, *bad,
        newest ? fmt::format("The newest checkpoint is {}", newest->string()) : "There is no earlier checkpoint"));
  }
}

template <class Scalar>
void TrainingCheckpoints<Scalar>::finish_pending() {
  is_pending_ = false;
  const std::int64_t written = std::exchange(last_saved_, -1);
  agree(communicator_, [&] { writer_.wait(); });
  last_saved_ = written;
}

template <class Scalar>
void TrainingCheckpoints<Scalar>::mark_best(std::int64_t training_step) {
  if (!store_ || !keeps_best_ || last_saved_ != training_step) return;
  agree(communicator_, [&] {
    if (communicator_.rank() == 0) store_->mark_best(training_step);
  });
}

template class TrainingCheckpoints<float>;
template class TrainingCheckpoints<double>;

}  // namespace farandole::trainer
