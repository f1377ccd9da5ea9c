// SPDX-License-Identifier: Apache-2.0
// One training step of one replica: from the samples of a global batch to reduced gradients in the model.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "farandole/gradients/gradient_averager.h"
#include "farandole/trainer/loader.h"
#include "farandole/trainer/trainer.h"
#include "tree_sum.h"

namespace farandole::trainer {

/// Of a global batch, all replicas together (without averaging: of this replica's part).
struct StepResult {
  double loss_sum = 0;
  std::int64_t correct = 0;
  std::int64_t samples = 0;
};

/// Runs forward and backward on this replica's part of each global batch and sums gradients and batch statistics over
/// the replicas. Gradients are those of the mean loss of the global batch: every micro-batch is scaled by 1 / (samples
/// of the global batch), so that uneven parts weigh right and everything is a plain sum.
///
/// Overlapped (the normal way): the replica's part is cut into `accumulate` micro-batches; the gradients of the last
/// one are added to those before and handed to the averager one by one, while backward goes on.
///
/// Deterministic: the global batch is cut into `micro_batches`, whatever the number of replicas. Replica r of R
/// computes M/R neighbours and sums them pairwise as a binary tree; R and M being powers of two, that is a whole
/// subtree, and the allreduce by recursive doubling goes on with the same tree over the replicas.
template <class Scalar>
class TrainingStep {
 public:
  /// All references must outlive this object. Collective: makes a communicator for the averager.
  TrainingStep(Communicator& communicator, Model<Scalar>& model, const Dataset& data, const TrainerOptions& options);

  /// @param batch  samples of the global batch   @param training_step  0-based
  StepResult run(std::span<const std::uint32_t> batch, std::int64_t training_step);
  /// Communication of the last training step that computation did not hide.
  Seconds exposed() const { return exposed_; }

 private:
  struct MicroBatch {
    Range samples;     // of the global batch
    double scale = 1;  // 1 / samples of the global batch
  };
  StepResult run_overlapped(std::span<const std::uint32_t> batch);
  StepResult run_deterministic(std::span<const std::uint32_t> batch);
  /// Forward, loss, its gradient, and batch statistics weighted by the share of samples.
  BatchResult forward(std::span<const std::uint32_t> batch, const MicroBatch& part);
  void backward_and_average(bool add_accumulated);
  void accumulate(bool first);
  void make_averager();

  Communicator& communicator_;
  Model<Scalar>& model_;
  const Dataset& data_;
  const TrainerOptions& options_;
  const bool reducing_;  // false for one replica, and without averaging
  std::optional<GradientAverager> averager_;
  TreeSum<Scalar> gradient_tree_;
  TreeSum<double> result_tree_;

  Pass pass_{.training = true};
  Tensor<Scalar> inputs_, logits_gradient_;
  std::vector<std::int32_t> labels_;
  std::vector<Scalar> accumulated_;  // like model_.reducible()
  Seconds exposed_{0};
};

}  // namespace farandole::trainer
