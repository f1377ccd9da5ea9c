// SPDX-License-Identifier: Apache-2.0
#include "training.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "checksum.h"
#include "device_peak.h"
#include "evaluation.h"
#include "farandole/internal/communicator_access.h"
#include "farandole/internal/endpoint.h"
#include "farandole/internal/log.h"
#include "host_peak.h"
#include "kernel_threads.h"
#include "kernels/device_execution.h"
#include "kernels/transfer.h"
#include "mirror.h"
#include "training_profile.h"

namespace farandole::trainer {
namespace {

/// Moves the model to where it computes, and the gradients to memory from which collectives need no copies: in host
/// memory a window, which all ranks of the host have mapped. Collective.
template <class Scalar>
Model<Scalar> placed(Model<Scalar> model, Communicator& communicator, const TrainerOptions& options) {
  const auto place = [&] {
    const MemorySpace space = model.execution().space();
    model.place_reducible([&](std::size_t count, DType dtype) { return communicator.allocate(count, dtype, space); });
  };
  if (options.device != ComputeDevice::kCuda) {
    place();
    return model;
  }
  agree(communicator, [&] {
    model.move_to(device_execution(
        communicator, {.choice = options.deterministic ? AlgorithmChoice::kFixed : AlgorithmChoice::kMeasured,
                       .compute = options.compute.value_or(dtype_of<Scalar>)}));
    place();
  });
  return model;
}

/// The optimizer, with states where the model is. Collective.
template <class Scalar>
Optimizer<Scalar> placed_optimizer(Communicator& communicator, const OptimizerOptions& options, Model<Scalar>& model) {
  std::optional<Optimizer<Scalar>> made;
  agree(communicator,
        [&] { made.emplace(options, model.parameter_layout(), model.parameters().size(), model.execution()); });
  return std::move(*made);
}

template <class Scalar>
std::uint32_t checksum_of(const Execution& execution, VectorView<Scalar> values) {
  if (execution.space().is_host()) return checksum(std::as_bytes(values.host()));
  const std::vector<Scalar> copy = to_host<Scalar>(execution, values);
  return checksum(std::as_bytes(std::span(copy)));
}

}  // namespace

template <class Scalar>
Training<Scalar>::Training(Communicator world, Model<Scalar> network, std::shared_ptr<const Dataset> training_data,
                           std::shared_ptr<const Dataset> test_data, TrainerOptions wanted,
                           LossPointer<Scalar> wanted_loss, std::vector<MetricPointer<Scalar>> wanted_metrics,
                           const std::vector<std::int64_t>& shards)
    : communicator(std::move(world)),
      model(placed(std::move(network), communicator, wanted)),
      training(std::move(training_data)),
      test(std::move(test_data)),
      options(std::move(wanted)),
      loss(std::move(wanted_loss)),
      metrics(std::move(wanted_metrics), model.output_shape()),
      loader(*training, options.data, {options, *training, shards, communicator.rank(), communicator.size()},
             model.execution().space()),
      optimizer(placed_optimizer(communicator, options.optimizer, model)),
      rate(communicator, options, test != nullptr, loader.batches_per_epoch(), total_steps(), last_step()),
      monitor(options, test != nullptr),
      checkpoints(communicator, model, optimizer, options, loader.plan(), test != nullptr),
      checkpoint_schedule(options.checkpoints),
      loss_scaling(model.execution(), options),
      skipped_losses(options.loss_scale, options.compute.value_or(dtype_of<Scalar>)),
      profiler(options.profile ? std::make_unique<StepProfiler>(model.work().size()) : nullptr),
      step(communicator, model, *loss, metrics, loader, options, loss_scaling.on_device(), profiler.get()) {
  const KernelThreads threads(kernel_threads(options, communicator));
  if (options.initialize) model.initialize(options.seed);
  const CheckpointState state = checkpoints.open();
  steps_done = state.training_step;
  current.loss_sum = state.loss_sum;
  current.metrics = metrics.restored(communicator, state.metrics);
  current.samples = state.position;
  current.uncounted = state.uncounted;
  rate.restore(state.plateau);
  monitor.restore(state.monitor);
  loss_scaling.restore(state.loss_scale);
}

template <class Scalar>
void Training<Scalar>::check_process() const {
  internals(communicator).endpoint().faults().check_process();
}

template <class Scalar>
EpochReport Training<Scalar>::fit() {
  const KernelThreads threads(kernel_threads(options, communicator));
  const typename BatchSource<Scalar>::Reading reading(loader, last_step());
  const std::int64_t per_epoch = loader.batches_per_epoch();
  EpochTotals all;
  finish_checkpoint();  // of a call that an exception has ended
  current.restart_times();
  last_rate = 0;
  if (profiler) profiler->restart();
  catch_up_evaluation();
  checkpoint_schedule.written();  // the time between two calls does not count
  next_check = steps_done + 1;    // tells how long a training step takes
  last_check = steps_done;
  last_check_time = Clock::now();
  skipped_losses.restart();
  bool stopped = false, begins = true;
  while (!is_finished() && !stopped && !monitor.is_exhausted()) {
    if (steps_done % per_epoch == 0) current = {};
    if (begins || steps_done % per_epoch == 0) begin_epoch();
    begins = false;
    const StepVotes votes = call_device(communicator, [&] { return train_one_step(); });
    const std::int64_t written = pending_checkpoint.training_step;
    stopped = votes.stop && !is_finished();
    const bool wants_checkpoint = votes.checkpoint || checkpoint_schedule.is_due_after_step(steps_done);
    if (steps_done % per_epoch == 0) {
      all.add_time_of(current);
      if (stopped) {
        end_epoch_unevaluated();
      } else {
        stopped = finish_epoch(wants_checkpoint) && !is_finished();
      }
    } else if (stopped || is_finished()) {
      all.add_time_of(current);
    } else if (wants_checkpoint) {
      save();
    }
    // After the end of an epoch, which an error of the writing must not leave out.
    if (votes.finish && pending_checkpoint.training_step == written) finish_checkpoint();
  }
  save();
  if (test && !last_evaluation && !stopped) last_evaluation = evaluate(*test, kTestData);
  finish_checkpoint();
  measure_peak();
  read_device_times(all);
  all.set_results_of(current);
  stop_asked = false;
  EpochReport report = make_report(all, true);
  report.stopped = stopped;
  report.stopped_early = monitor.is_exhausted() && !is_finished();
  report.profile = make_profile();
  return report;
}

template <class Scalar>
void Training<Scalar>::begin_epoch() const {
  if (!options.before_epoch) return;
  const std::int64_t epoch = steps_done / loader.batches_per_epoch() + 1;
  call_program(communicator, "TrainerOptions::before_epoch", [&] { options.before_epoch(epoch); });
}

template <class Scalar>
StepVotes Training<Scalar>::train_one_step() {
  const auto start = Clock::now();
  if (profiler) profiler->begin_step();
  if (options.before_step) {
    call_program(communicator, "TrainerOptions::before_step", [&] { options.before_step(steps_done + 1); });
  }
  last_rate = rate.at(steps_done);
  const UpdateStep update{.learning_rate = last_rate,
                          .training_step = steps_done,
                          .skipped_steps = loss_scaling.skipped_before(),
                          .clip_norm = options.clip_norm,
                          .step_numbers = step.numbers(),
                          .loss_scale = loss_scaling.on_device()};
  if (step.has_graphs()) step.set_numbers(optimizer.step_numbers(update));
  step.run(steps_done);
  const bool is_checked = is_check_due();
  if (is_checked) step.fetch_ahead();  // before the check waits for the device
  StepVotes votes;
  if (is_checked && !loss_scaling.is_on()) votes = check(steps_done + 1);
  apply(update);
  if (!is_checked) step.fetch_ahead();
  current.trained += loader.samples(steps_done).all;
  ++steps_done;
  last_evaluation.reset();
  // A loss scale's update tells whether it is skipped, and then the loss may be no number.
  if (is_checked && loss_scaling.is_on()) votes = check(steps_done);
  const StepTimes times{Clock::now() - start, step.exposed(), step.input_waiting(), last_rate};
  step.end(times);
  if (profiler) end_profiled_step(steps_done - 1);
  current.training += times.taken;
  current.exposed += times.exposed;
  current.input_waiting += times.input_waiting;
  if (is_checked) report_steps();
  return votes;
}

template <class Scalar>
bool Training<Scalar>::is_check_due() const {
  const std::int64_t done = steps_done + 1;
  return done >= next_check || done % loader.batches_per_epoch() == 0 || done == last_step() ||
         checkpoint_schedule.is_due_after_step(done) || step.is_check_due();
}

template <class Scalar>
StepVotes Training<Scalar>::check(std::int64_t done) {
  const StepVotes votes = step.check(vote(done));
  last_check = done;
  last_check_time = Clock::now();
  next_check = last_check + votes.next_check;
  read_device_times(current);
  check_losses();
  return votes;
}

template <class Scalar>
void Training<Scalar>::read_device_times(EpochTotals& totals) {
  call_device(communicator, [&] { step.timer().collect(totals.device_times); });
}

template <class Scalar>
void Training<Scalar>::measure_peak() {
  if (!step.timer().is_on() || peak > 0) return;
  peak = call_device(communicator, [&] { return measured_peak<Scalar>(model.execution()); });
}

template <class Scalar>
void Training<Scalar>::end_profiled_step(std::int64_t training_step) {
  const StepSamples samples = loader.samples(training_step);
  const bool is_complete = samples.all == loader.samples(0).all;
  if (is_complete || loader.plan().has_own_shards()) profiler->end_step(samples.own.count);
}

template <class Scalar>
std::optional<TrainingProfile> Training<Scalar>::make_profile() {
  if (!profiler || profiler->steps() == 0) return std::nullopt;
  TrainingProfile profile = profiler->report(model.work());
  if (peak == 0) peak = measured_host_peak<Scalar>(communicator);
  profile.peak = peak;
  profile.type = dtype_of<Scalar>;
  profile.kernel_threads = kernel_threads(options, communicator);
  compare_replicas(communicator, profile);
  return profile;
}

template <class Scalar>
std::optional<double> Training<Scalar>::peak_share(const std::optional<DeviceTimes>& times) const {
  if (!times || peak == 0) return std::nullopt;
  constexpr double kPasses = 3;  // backward costs twice a forward pass
  const double samples = static_cast<double>(options.global_batch) / communicator.size();
  return kPasses * model.flops() * samples / times->step() / peak;
}

template <class Scalar>
std::int64_t Training<Scalar>::steps_until_check(std::int64_t done) const {
  constexpr Seconds kReaction{1};
  const Seconds taken = (Clock::now() - last_check_time) / static_cast<double>(done - last_check);
  return std::clamp(static_cast<std::int64_t>(std::min(kReaction / taken, 1e9)), std::int64_t{1}, options.check_every);
}

template <class Scalar>
StepVotes Training<Scalar>::vote(std::int64_t done) const {
  const bool stop =
      stop_asked || (options.stop_requested && call_program(communicator, "TrainerOptions::stop_requested",
                                                            [&] { return options.stop_requested(); }));
  // Clocks differ from rank to rank, so rank 0's decides.
  return {.stop = stop,
          .checkpoint = communicator.rank() == 0 && checkpoint_schedule.time_has_passed(),
          .finish = communicator.rank() == 0 && checkpoints.has_ended(),
          .next_check = steps_until_check(done)};
}

template <class Scalar>
void Training<Scalar>::check_losses() {
  std::string not_skipped;
  const std::optional<StepResult> bad = step.drop_from_first([&](const StepResult& result) {
    if (!loss_scaling.is_on()) return !std::isfinite(result.loss_sum);
    not_skipped = skipped_losses.judge(result.loss_sum, result.loss_scale);
    return !not_skipped.empty();
  });
  if (!bad) return;
  skipped_losses.restart();
  const std::string sample = step.find_not_finite(bad->training_step);
  std::string reason = sample.empty()
                           ? fmt::format("What to try: a lower --learning-rate, --warmup-steps, --clip-norm 1{}",
                                         loss_scaling.is_on() ? ", --precision bf16" : "")
                           : fmt::format("{} has a number that is NaN or infinite", sample);
  std::string parameters = "Parameters are as they were before it";
  if (loss_scaling.is_on()) {
    parameters = not_skipped;
  } else if (bad->training_step < steps_done) {
    parameters = fmt::format(
        "Parameters, moving statistics and the optimizer's state were updated with it, up to training "
        "step {}, because not every training step has a check (check_every is {}); go on from a "
        "checkpoint",
        steps_done, options.check_every);
  }
  raise_on_all(ErrorKind::kDataError,
               fmt::format("training step {}, epoch {}: the loss is not a number ({}). {}. {}", bad->training_step + 1,
                           bad->training_step / loader.batches_per_epoch() + 1,
                           std::isnan(bad->loss_sum) ? "NaN" : "infinite", parameters, reason));
}

template <class Scalar>
void Training<Scalar>::apply(const UpdateStep& update) {
  const ProfiledPart part(profiler.get(), StepPart::kUpdate);
  step.timer().start();
  step.run_update([&] {
    optimizer.update(model.execution(), model.parameters(), model.gradients(), update);
    model.move_statistics(update.loss_scale);
    loss_scaling.end_step();
  });
  step.keep_loss_scale();
  step.timer().end(DevicePhase::kUpdate);
  step.timer().end_step();
}

template <class Scalar>
void Training<Scalar>::report_steps() {
  for (const StepResult& result : step.take()) {
    current.add(result);
    if (options.on_step) unreported.push_back(make_step_report(result));
  }
  while (!unreported.empty()) {
    const StepReport report = std::move(unreported.front());
    unreported.pop_front();  // first, because `on_step` may throw
    call_program(communicator, "TrainerOptions::on_step", [&] { options.on_step(report); });
  }
}

template <class Scalar>
StepReport Training<Scalar>::make_step_report(const StepResult& result) const {
  const std::int64_t per_epoch = loader.batches_per_epoch();
  return {.training_step = result.training_step + 1,
          .epoch = result.training_step / per_epoch + 1,
          .step_of_epoch = result.training_step % per_epoch + 1,
          .steps_per_epoch = per_epoch,
          .loss = result.loss_sum / static_cast<double>(result.samples),
          .epoch_loss = current.loss(),
          .metrics = metrics_in(current),
          .seconds = result.times.taken.count(),
          .exposed_communication_seconds = result.times.exposed.count(),
          .input_waiting_seconds = result.times.input_waiting.count(),
          .learning_rate = result.times.learning_rate};
}

template <class Scalar>
void Training<Scalar>::catch_up_evaluation() {
  if (!rate.needs_test_loss() && !monitor.needs_test_result()) return;
  last_evaluation = evaluate(*test, kTestData);
  if (rate.needs_test_loss()) rate.end_epoch(current.loss(), last_evaluation);
  // The stop has saved this epoch's checkpoint before the result told that it is the best.
  if (monitor.needs_test_result() && monitor.end_epoch(results_of(current))) checkpoints.mark_best(steps_done);
}

template <class Scalar>
bool Training<Scalar>::finish_epoch(bool wants_checkpoint) {
  const std::int64_t done = steps_done / loader.batches_per_epoch();
  const bool saves = wants_checkpoint || checkpoint_schedule.is_due_after_epoch(done);
  if (test && options.evaluate_every > 0 && done % options.evaluate_every == 0) {
    if (saves) {  // first, so that an error or a kill during the evaluation loses no training step
      end_epoch_unevaluated();
      save();
    }
    last_evaluation = evaluate(*test, kTestData);
  }
  rate.end_epoch(current.loss(), last_evaluation);
  const std::int64_t every = options.compare_every;
  const EpochReport report = make_report(current, every > 0 && done % every == 0);
  const bool is_best = monitor.end_epoch(report) && options.checkpoints.keep_best;
  if (saves || is_best) save();
  if (options.on_epoch) {
    call_program(communicator, "TrainerOptions::on_epoch", [&] { options.on_epoch(report); });
  }
  return agree_to_stop();
}

template <class Scalar>
void Training<Scalar>::end_epoch_unevaluated() {
  const std::int64_t done = steps_done / loader.batches_per_epoch();
  rate.end_epoch_unevaluated(current.loss(), done);
  monitor.end_epoch_unevaluated(results_of(current), done);
}

template <class Scalar>
bool Training<Scalar>::agree_to_stop() {
  std::int64_t asked = stop_asked ? 1 : 0;
  if (options.averaging && communicator.size() > 1) {
    communicator.allreduce(BufferView(&asked, 1, DType::kI64), ReduceOp::kMax);
  }
  return asked != 0;
}

template <class Scalar>
std::uint32_t Training<Scalar>::check_replicas() {
  const std::uint32_t parameters = checksum_of(model.execution(), model.parameters());
  if (options.averaging) check_mirrored(communicator, parameters, checksum_of(model.execution(), model.statistics()));
  return parameters;
}

template <class Scalar>
EpochReport Training<Scalar>::results_of(const EpochTotals& totals) const {
  const std::int64_t per_epoch = loader.batches_per_epoch();
  const std::optional<DeviceTimes> device_times = totals.device_times.medians();
  return {.epoch = (steps_done + per_epoch - 1) / per_epoch,
          .training_steps = steps_done,
          .loss = totals.loss(),
          .metrics = metrics_in(totals),
          .test = last_evaluation,
          .learning_rate = last_rate,
          .images_per_second = totals.images_per_second(),
          .seconds = totals.training.count(),
          .exposed_communication_share = totals.exposed_share(),
          .input_waiting_share = totals.input_waiting_share(),
          .device_times = device_times,
          .peak_share = peak_share(device_times),
          .replicas = communicator.size()};
}

template <class Scalar>
EpochReport Training<Scalar>::make_report(const EpochTotals& totals, bool compares) {
  EpochReport report = results_of(totals);
  if (const std::optional<LossScaleState> state = call_device(communicator, [&] { return loss_scaling.state(); })) {
    report.skipped_steps = state->skipped_steps;
    report.loss_scale = state->scale;
  }
  if (compares) report.parameters_checksum = check_replicas();
  return report;
}

template <class Scalar>
ParameterSwap<Scalar> Training<Scalar>::parameters_to_evaluate() {
  const bool swaps = options.evaluate_with_ema && steps_done > 0;
  return {model.execution(), model.parameters(), swaps ? optimizer.average() : BufferView{}};
}

template <class Scalar>
Evaluation Training<Scalar>::evaluate(const Dataset& data, const std::string& name) {
  const ParameterSwap<Scalar> swap = parameters_to_evaluate();
  Evaluation evaluation = trainer::evaluate(communicator, model, *loss, metrics, {data, name, options.data.own_shards},
                                            options.evaluation_batch);
  if (!std::isfinite(evaluation.loss) && communicator.rank() == 0) {
    log(LogLevel::kWarning,
        fmt::format("the evaluation after training step {} has the loss {}: the training has diverged, or a sample or "
                    "the loss function gives a number that is NaN or infinite",
                    steps_done, evaluation.loss));
  }
  return evaluation;
}

template <class Scalar>
Tensor<Scalar> Training<Scalar>::predict(const Dataset& data, const std::string& name) {
  const ParameterSwap<Scalar> swap = parameters_to_evaluate();
  return trainer::predict(communicator, model, {data, name, options.data.own_shards}, options.evaluation_batch);
}

template <class Scalar>
void Training<Scalar>::save() {
  if (!checkpoints.is_needed(steps_done)) return;
  finish_checkpoint();
  if (options.before_checkpoint) {
    call_program(communicator, "TrainerOptions::before_checkpoint", [&] { options.before_checkpoint(steps_done); });
  }
  pending_since = Clock::now();
  const std::int64_t per_epoch = loader.batches_per_epoch();
  CheckpointState state{.training_step = steps_done,
                        .epoch = steps_done / per_epoch,
                        .plateau = rate.state(),
                        .monitor = monitor.state(),
                        .loss_scale = call_device(communicator, [&] { return loss_scaling.saved(); })};
  if (steps_done % per_epoch != 0) {
    state.position = current.samples;
    state.uncounted = current.uncounted;
    state.loss_sum = current.loss_sum;
    state.metrics = metrics.saved(current.metrics);
  }
  pending_checkpoint = {.training_step = steps_done, .path = checkpoints.path_of(steps_done)};
  checkpoints.begin(std::move(state));
  checkpoint_schedule.written();
}

template <class Scalar>
void Training<Scalar>::finish_checkpoint() {
  if (!checkpoints.is_pending()) return;
  checkpoints.finish_pending();
  pending_checkpoint.best = monitor.is_best(pending_checkpoint.training_step);
  if (pending_checkpoint.best) checkpoints.mark_best(pending_checkpoint.training_step);
  if (!options.on_checkpoint) return;
  pending_checkpoint.seconds = Seconds(Clock::now() - pending_since).count();
  call_program(communicator, "TrainerOptions::on_checkpoint", [&] { options.on_checkpoint(pending_checkpoint); });
}

template struct Training<float>;
template struct Training<double>;

}  // namespace farandole::trainer
