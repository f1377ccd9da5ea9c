// SPDX-License-Identifier: Apache-2.0
// A replica's part of a training step: from the samples of a global batch to reduced gradients in the model.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "batch_source.h"
#include "farandole/gradients/gradient_averager.h"
#include "farandole/trainer/trainer.h"
#include "metric_sums.h"
#include "tree_sum.h"

namespace farandole::trainer {

/// Requests of a replica that all replicas follow; they travel in the allreduce of the loss.
struct StepVotes {
  bool stop = false;        ///< end the training after this training step
  bool checkpoint = false;  ///< write a checkpoint after this training step
};

/// Sums over a global batch, over all replicas; if averaging is off, over this replica's part only.
struct StepResult {
  double loss_sum = 0;
  std::int64_t samples = 0;
  StepVotes votes;                       ///< of any replica
  std::span<const double> metrics = {};  ///< sums of all metrics; valid until the next training step
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
  TrainingStep(Communicator& communicator, Model<Scalar>& model, const Loss<Scalar>& loss,
               const MetricSums<Scalar>& metrics, BatchSource<Scalar>& source, const TrainerOptions& options);

  /// Computes the gradients of a global batch. Collective; blocks.
  /// @param training_step  0-based   @param vote  called once, after backward
  StepResult run(std::int64_t training_step, const std::function<StepVotes()>& vote);
  /// Returns the first sample of the last training step, by its index in the data, that has an input, target or weight
  /// that is not a finite number: "Sample 57 of the training data". Empty if there is none. Collective; blocks.
  std::string find_not_finite();
  /// Time of communication in the last training step that computation did not hide.
  Seconds exposed() const { return exposed_; }

 private:
  // Both leave the sums over the replicas in `sums_`.
  void run_overlapped(const StepSamples& samples, const std::function<StepVotes()>& vote);
  void run_deterministic(const StepSamples& samples, const std::function<StepVotes()>& vote);
  /// Writes this replica's requests to `sums_`.
  void take_votes(const std::function<StepVotes()>& vote);
  /// Moves to the next micro-batch. Returns its number of samples.
  std::int64_t next_micro_batch();
  /// Computes forward pass, loss and loss gradient of the micro-batch, adds loss, samples and metrics to `sums_`, and
  /// scales the batch statistics by the micro-batch's share of the samples. @param scale  1 / samples of the global
  /// batch
  void forward(double scale);
  /// Keeps the micro-batch's first sample with a number that is not finite, if there is one.
  void note_not_finite();
  /// Runs backward, and passes each gradient to the averager when it is final.
  void backward_and_average(bool add_accumulated);
  /// Adds `reducible` to `accumulated_`. @param first  overwrite `accumulated_` instead
  void accumulate(bool first);
  void make_averager();

  Communicator& communicator_;
  Model<Scalar>& model_;
  const Loss<Scalar>& loss_;
  const MetricSums<Scalar>& metrics_;
  BatchSource<Scalar>& source_;
  const TrainerOptions& options_;
  const bool reducing_;  // false if there is one replica or averaging is off
  std::optional<GradientAverager> averager_;
  TreeSum<Scalar> gradient_tree_;
  TreeSum<double> sum_tree_;

  Pass pass_{.training = true};
  const MicroBatch<Scalar>* micro_batch_ = nullptr;  // the source's
  std::optional<std::uint32_t> not_finite_;          // sample of the last training step
  Tensor<Scalar> output_gradient_;
  std::vector<Scalar> accumulated_;  // laid out like model_.reducible()
  std::vector<double> sums_;         // loss, samples, votes, metrics
  Seconds exposed_{0};
};

}  // namespace farandole::trainer
