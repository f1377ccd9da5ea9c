// SPDX-License-Identifier: Apache-2.0
// A training: what a Trainer holds, and the course of `fit`.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "batch_source.h"
#include "checkpoint_schedule.h"
#include "epoch_totals.h"
#include "farandole/collectives/agreement.h"
#include "farandole/trainer/trainer.h"
#include "loss_scaling.h"
#include "metric_sums.h"
#include "parameter_swap.h"
#include "program_code.h"
#include "shared_facts.h"
#include "step_profiler.h"
#include "trainer_options.h"
#include "training_checkpoints.h"
#include "training_monitor.h"
#include "training_rate.h"
#include "training_step.h"

namespace farandole::trainer {

/// Functions are collective, unless they are const. More than 15 members: the parts of a training, and its position.
template <class Scalar>
struct Training {
  Training(Communicator world, Model<Scalar> network, std::shared_ptr<const Dataset> training_data,
           std::shared_ptr<const Dataset> test_data, TrainerOptions wanted, LossPointer<Scalar> wanted_loss,
           std::vector<MetricPointer<Scalar>> wanted_metrics, const std::vector<std::int64_t>& shards);

  EpochReport fit();
  /// @param name  of the data, for messages: "the test data"
  Evaluation evaluate(const Dataset& data, const std::string& name);
  Tensor<Scalar> predict(const Dataset& data, const std::string& name);
  /// Checks that the model can take the data, and that all ranks have the same.
  /// @param check_more  further checks of this rank
  template <class Check>
  void check_to_use(const Dataset& data, const std::string& what, const Check& check_more) {
    check_process();
    agree(communicator, [&] {
      check_data(data, what, model.input_shape());
      check_more();
    });
    require_same(communicator, facts_of(&data, what, options.data.own_shards));
  }
  /// Throws in a forked child, which would wait for kernel threads that it does not have.
  void check_process() const;

  std::int64_t total_steps() const { return options.epochs * loader.batches_per_epoch(); }
  std::int64_t last_step() const {
    return options.max_steps > 0 ? std::min(options.max_steps, total_steps()) : total_steps();
  }
  bool is_finished() const { return steps_done >= last_step(); }

  void begin_epoch() const;
  /// Returns the requests of all replicas; none if this training step has no check.
  StepVotes train_one_step();
  /// True if the training step at hand ends with a check. The same on all replicas.
  bool is_check_due() const;
  /// Adds up the sums of all replicas, and checks the losses. Returns the requests of all replicas.
  /// @param done  number of training steps whose gradients were computed, in all three
  StepVotes check(std::int64_t done);
  StepVotes vote(std::int64_t done) const;
  /// Number of training steps until the next check: about a second's worth, at most `check_every`.
  std::int64_t steps_until_check(std::int64_t done) const;
  /// Raises DataError on all ranks if a loss is not a finite number, unless its training step was skipped; see
  /// SkippedLosses. Says whether the data are the reason.
  void check_losses();
  /// Adds the times of measured training steps that the device has completed.
  void read_device_times(EpochTotals& totals);
  /// Measures the speed of the device once, if times are measured.
  void measure_peak();
  /// Ends the profile of a training step that was begun, if it counts. @param training_step  0-based
  void end_profiled_step(std::int64_t training_step);
  /// See EpochReport::profile. Collective.
  std::optional<TrainingProfile> make_profile();
  /// See EpochReport::peak_share.
  std::optional<double> peak_share(const std::optional<DeviceTimes>& times) const;
  /// Updates parameters and moving statistics.
  void apply(const UpdateStep& update);
  /// Adds the checked training steps to the epoch, and calls `on_step` for each.
  void report_steps();
  StepReport make_step_report(const StepResult& result) const;
  /// Evaluates if an epoch ended without the evaluation that the learning rate or the monitor needs.
  void catch_up_evaluation();
  /// @param wants_checkpoint  a replica has asked for a checkpoint. Returns true if a replica has asked to stop.
  bool finish_epoch(bool wants_checkpoint);
  /// Ends an epoch for the schedule and the monitor before its evaluation, which a stop leaves out.
  void end_epoch_unevaluated();
  /// Returns true if `stop` was called on any replica.
  bool agree_to_stop();
  /// Report without the checksum of the parameters, which is 0. Not collective.
  EpochReport results_of(const EpochTotals& totals) const;
  /// Report, after a comparison of all replicas' parameters.
  /// @param compares  false: without the comparison and its checksum
  EpochReport make_report(const EpochTotals& totals, bool compares);
  ParameterSwap<Scalar> parameters_to_evaluate();
  std::vector<MetricResult> metrics_in(const EpochTotals& totals) const {
    return call_program(communicator, "Metric::value", [&] { return metrics.results(totals.metrics); });
  }
  /// Begins a checkpoint, unless there is one of this training step or no directory. Finishes the one before first.
  void save();
  /// Waits until the pending checkpoint is whole, if there is one, and reports it. @throws DataError  on all ranks
  void finish_checkpoint();
  std::uint32_t check_replicas();

  Communicator communicator;
  Model<Scalar> model;
  std::shared_ptr<const Dataset> training, test;
  const TrainerOptions options;
  const LossPointer<Scalar> loss;
  const MetricSums<Scalar> metrics;
  BatchSource<Scalar> loader;
  Optimizer<Scalar> optimizer;
  TrainingRate rate;
  TrainingMonitor monitor;
  TrainingCheckpoints<Scalar> checkpoints;
  CheckpointSchedule checkpoint_schedule;
  LossScaling loss_scaling;
  SkippedLosses skipped_losses;
  double last_rate = 0;                 // of the last training step
  CheckpointReport pending_checkpoint;  // without its time
  Clock::time_point pending_since;
  const std::unique_ptr<StepProfiler> profiler;  // null without TrainerOptions::profile
  TrainingStep<Scalar> step;
  std::int64_t steps_done = 0;
  std::int64_t last_check = 0, next_check = 0;  // numbers of training steps
  Clock::time_point last_check_time;
  std::deque<StepReport> unreported;  // reports for `on_step`
  EpochTotals current;                // of the last epoch; a later `fit` continues an epoch that is not complete
  double peak = 0;                    // measured_peak or measured_host_peak; 0: not measured
  std::optional<Evaluation> last_evaluation;  // with the current parameters; empty after an update
  std::atomic<bool> stop_asked{false};        // by Trainer::stop, on this replica
  static_assert(std::atomic<bool>::is_always_lock_free, "Trainer::stop may be called in a signal handler");
};

}  // namespace farandole::trainer
