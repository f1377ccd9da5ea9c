// SPDX-License-Identifier: Apache-2.0
// A replica's part of a training step: from the samples of a global batch to reduced gradients in the model.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "batch_feed.h"
#include "batch_source.h"
#include "device_timer.h"
#include "farandole/gradients/gradient_averager.h"
#include "farandole/trainer/trainer.h"
#include "metric_sums.h"
#include "step_graphs.h"
#include "step_profiler.h"
#include "tree_sum.h"

namespace farandole::trainer {

/// Requests of a replica that all replicas follow; they travel in the allreduce of the loss.
struct StepVotes {
  bool stop = false;        ///< end the training after this training step
  bool checkpoint = false;  ///< write a checkpoint after this training step
  bool finish = false;      ///< finish the pending checkpoint, whose writing has ended
  /// Training steps until the next check, at least 1. Rank 0's request counts.
  std::int64_t next_check = 1;
};

/// Durations and learning rate of a training step on this replica.
struct StepTimes {
  Seconds taken{0}, exposed{0}, input_waiting{0};
  double learning_rate = 0;
};

/// Sums over a global batch, over all replicas; if averaging is off, over this replica's part only.
struct StepResult {
  std::int64_t training_step = 0;  ///< 0-based
  double loss_sum = 0;
  std::int64_t samples = 0;
  std::span<const double> metrics = {};  ///< sums of all metrics; valid until the next training step
  StepTimes times = {};
  LossScale loss_scale = {};  ///< with a loss scale: after the update
};

/// Runs forward and backward on this replica's part of each global batch, and sums gradients and batch statistics over
/// the replicas. The result is the gradient of the global batch's mean loss: every micro-batch is scaled by 1 /
/// (samples of the global batch), so that parts of different sizes have the right weight and every reduction is a plain
/// sum.
///
/// Overlapped (default): the replica's part is cut into `accumulate` micro-batches. The gradients of the first
/// micro-batches are accumulated. During backward of the last micro-batch each gradient is added to the accumulated
/// value and passed to the averager, which reduces it while backward goes on.
///
/// Deterministic: the global batch is cut into M = `micro_batches` micro-batches, whatever the number R of replicas.
/// Replica r computes the M/R adjacent micro-batches from number r*M/R on, and sums their gradients pairwise in a
/// binary tree. R and M are powers of two, so the replica's sum is a complete subtree, and the allreduce by recursive
/// doubling continues the same tree over the replicas: the association of the additions does not depend on R. The sums
/// of loss and metrics follow the same tree.
///
/// More than 15 members: references to the parts of a training, and memory that every training step uses again.
template <class Scalar>
class TrainingStep {
 public:
  /// All references must outlive this object. Collective: makes a communicator for the averager.
  /// @param loss_scale  null, or where the model computes: the factor on the loss
  /// @param profiler  null, or measures where the time goes; the caller begins and ends its training steps
  TrainingStep(Communicator& communicator, Model<Scalar>& model, const Loss<Scalar>& loss,
               const MetricSums<Scalar>& metrics, BatchSource<Scalar>& source, const TrainerOptions& options,
               const LossScale* loss_scale, StepProfiler* profiler);

  /// Sets the numbers that captured work reads. No-op without graphs.
  void set_numbers(const StepNumbers& numbers) { graphs_.set_numbers(numbers); }
  const StepNumbers* numbers() const { return graphs_.numbers(); }
  bool has_graphs() const { return graphs_.is_on(); }
  /// Runs what the trainer does after a training step's gradients. `enqueue()` makes no collectives.
  template <class Enqueue>
  void run_update(const Enqueue& enqueue) {
    graphs_.run_alone(static_cast<std::size_t>(pieces()), enqueue);
    graphs_.end();
  }
  /// The times of training steps on the device; the trainer measures its update with it.
  DeviceTimer& timer() { return timer_; }

  /// Computes the gradients of a global batch. Keeps loss and metrics until `take`. A training step that an exception
  /// interrupted before its end may be run again. Collective; blocks.
  /// @param training_step  0-based
  void run(std::int64_t training_step);
  /// On a device: gathers the first micro-batch of the next training step, and starts to copy it, while the device
  /// computes this one.
  void fetch_ahead() { feed_.fetch_ahead(); }
  /// With a loss scale, after the update of the last training step: keeps the scale, and whether the step is skipped.
  void keep_loss_scale();
  /// Keeps the times of the last training step beside its sums.
  void end(const StepTimes& times) { kept_.back().times = times; }
  /// True if the sums since the last check take so much memory that one is due. The same on all replicas.
  bool is_check_due() const {
    return results_.size() + sums_.size() > kMaxResults ||
           (device_sums_.count() > 0 && unchecked() * sums_.size() == device_sums_.count());
  }
  /// Adds up the replicas' sums since the last check, and their votes. Collective; blocks.
  StepVotes check(const StepVotes& votes);
  /// Drops the results of the first checked training step for which `is_bad(result)`, and of all after it. Returns the
  /// number and the loss of this training step, without samples and metrics; empty if there is none.
  template <class IsBad>
  std::optional<StepResult> drop_from_first(const IsBad& is_bad) {
    for (std::size_t index = 0; index < checked_; ++index) {
      const StepResult found = result(index);
      if (!is_bad(found)) continue;
      drop_from(found.training_step);
      return StepResult{.training_step = found.training_step, .loss_sum = found.loss_sum};
    }
    return std::nullopt;
  }
  /// Returns the checked training steps, which are no longer kept then.
  std::vector<StepResult> take();
  /// Returns the first sample of this training step since the last check, by its index in the data, that has an input
  /// or target that is not a finite number: "Sample 57 of the training data". Empty if there is none. Collective;
  /// blocks.
  std::string find_not_finite(std::int64_t training_step);
  /// Time of communication in the last training step, and in the check after it, that computation did not hide.
  Seconds exposed() const { return exposed_; }
  /// Time of the last training step in which this replica waited for samples; see BatchFeed::waited.
  Seconds input_waiting() const { return feed_.waited(); }

 private:
  /// 8 MiB, as many as the metrics of a training step may have.
  static constexpr std::size_t kMaxResults = std::size_t{1} << 20;
  static constexpr std::size_t kMaxRows = 256;

  bool on_device() const { return !model_.execution().space().is_host(); }
  /// Number of training steps since the last check.
  std::size_t unchecked() const { return kept_.size() - checked_; }
  /// The sums of the training step at hand, where the model computes.
  VectorView<double> sums();
  /// On a device: copies the sums of the training step at hand to their row of `device_sums_`.
  void keep_device_sums();
  /// Adds the sums that lie on the device to `results_`. Waits for the device.
  void fetch_device_sums();
  /// The same for the loss scales. @param first  training steps since the last check that were fetched before
  void fetch_loss_scales(std::size_t first);
  /// Begins a training step in the way in which all replicas can run it. Collective if graphs are on.
  void begin_graphs(const StepSamples& samples);
  /// Number of pieces of StepGraphs in which a training step computes gradients.
  std::int64_t pieces() const;

  // Both leave this replica's sums in `sums_`.
  void run_overlapped(const StepSamples& samples);
  void run_deterministic(const StepSamples& samples);
  /// Moves to the next micro-batch. Returns its number of samples.
  std::int64_t next_micro_batch();
  /// Puts the micro-batch where the model computes.
  void place();
  /// Computes forward pass, loss and loss gradient of the micro-batch, adds loss and metrics to `sums()`, and scales
  /// the batch statistics by the micro-batch's share of the samples. @param scale  1 / samples of the global batch
  void forward(double scale);
  /// Keeps the micro-batch's first sample with a number that is not finite, if there is one.
  void note_not_finite();
  /// Runs backward, and passes each gradient to the averager when it is final.
  void backward_and_average(bool add_accumulated);
  /// Adds `reducible` to `accumulated_`. @param first  overwrite `accumulated_` instead
  void accumulate(bool first);
  /// Adds a part of `accumulated_` to a part of `reducible`. @param first  place of both in their vectors
  void add_accumulated(std::size_t first, std::size_t count);
  /// Waits until all gradients are averaged: on a device its stream waits.
  void finish_averaging();
  /// Runs a piece of the gradients. `enqueue` ends the phases of its work by `end_phase`.
  template <class Enqueue>
  void run_piece(std::int64_t piece, const Enqueue& enqueue);
  /// Ends a phase of a piece, unless the piece is captured.
  void end_phase(DevicePhase phase) {
    if (!graphs_.is_capturing()) timer_.end(phase);
  }
  /// Ends the communication after the gradients. After a graph it counts as a part of the graph of the gradients.
  void end_communication() { end_phase(graphs_.is_enqueuing() ? DevicePhase::kCommunication : DevicePhase::kGraph); }
  /// The scope's time counts for a part of the training step.
  ProfiledPart profiled(StepPart part) const { return {pass_.profiler, part}; }
  void make_averager();
  /// @throws Unsupported  on all ranks
  void check_calls_can_be_captured() const;

  Communicator& communicator_;
  /// Graphs on several hosts: collectives between hosts cannot be captured, so they are made between the graphs of the
  /// gradients and that of the update.
  const bool has_outer_calls_;
  /// For collectives that are enqueued among the work of the device: in graphs a communicator in the caller's order.
  Communicator in_stream_;
  Model<Scalar>& model_;
  const Loss<Scalar>& loss_;
  const MetricSums<Scalar>& metrics_;
  BatchSource<Scalar>& source_;
  const TrainerOptions& options_;
  const LossScale* const loss_scale_;
  const bool reducing_;  // false if there is one replica or averaging is off
  std::optional<GradientAverager> averager_;
  TreeSum<Scalar> gradient_tree_;
  TreeSum<double> sum_tree_;

  Pass pass_{.training = true};
  const MicroBatch<Scalar>* micro_batch_ = nullptr;  // the feed's
  /// A training step since the last check, the first one with such a sample on this replica.
  struct NotFinite {
    std::int64_t training_step;
    std::uint32_t sample;
  };
  std::optional<NotFinite> not_finite_;
  Tensor<Scalar> output_gradient_;
  BatchFeed<Scalar> feed_;
  std::optional<BatchView<Scalar>> batch_;  // the micro-batch, where the model computes
  Buffer accumulated_;                      // laid out like model_.reducible(), in the same memory
  std::vector<double> sums_;                // of a training step: loss, samples, metrics; on a device only the samples
  /// On a device: the sums of the training step at hand, and of each training step since the last check, kMaxRows of
  /// them at most. Without the samples.
  Buffer step_sums_, device_sums_;
  Buffer loss_scales_;  // after each of them

  /// A training step whose results were not yet taken.
  struct Kept {
    std::int64_t training_step = 0;
    StepTimes times = {};
    LossScale loss_scale = {};
  };
  void drop_from(std::int64_t training_step);
  StepResult result(std::size_t index) const;
  std::vector<Kept> kept_;
  std::vector<double> results_;  // sums of each kept training step
  std::size_t fetched_ = 0;      // likewise, whose sums on the device are in results_
  std::size_t checked_ = 0;      // number of kept training steps, the first ones, whose sums are those of all replicas
  Seconds exposed_{0};
  StepGraphs graphs_;  // after the communicators whose calls the graphs hold
  DeviceTimer timer_;
};

}  // namespace farandole::trainer
