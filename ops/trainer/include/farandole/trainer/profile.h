// SPDX-License-Identifier: Apache-2.0
// Where the time of a training step goes, by layer.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "farandole/core/dtype.h"
#include "farandole/core/export.h"
#include "farandole/trainer/model_description.h"

namespace farandole FARANDOLE_API {
namespace trainer {

/// Times of a layer or an operation, medians over the measured training steps, in seconds per training step.
struct LayerProfile {
  LayerWork layer;
  double forward = 0;
  double backward = 0;

  double seconds() const { return forward + backward; }
};

/// Times of the parts of a training step that are no layers: medians in seconds per training step.
struct StepParts {
  double loss = 0;  ///< loss, its gradient, and metrics
  /// Time that computation did not hide: starting the reductions of gradients, waiting for them, and the check's
  /// allreduce (TrainerOptions::check_every).
  double averaging = 0;
  double update = 0;  ///< optimizer and moving statistics
  double input = 0;   ///< gathering the samples, or waiting for the threads that gather them
  double rest = 0;    ///< everything else: accumulation, callbacks, the code between the layers

  double seconds() const { return loss + averaging + update + input + rest; }
};

/// Profile of a replica over the training steps of a call of Trainer::fit (TrainerOptions::profile). Each moment of a
/// training step counts in exactly one time. Layers that synchronise wait for other replicas in their own times.
///
/// The operations are those that the mathematics needs: LayerWork. An algorithm may need fewer, as Winograd's for
/// convolutions, whose layers may therefore exceed the peak.
struct TrainingProfile {
  int replica = 0;                        ///< rank of the replica
  int local_replicas = 1;                 ///< replicas on its host
  int kernel_threads = 1;                 ///< of the replica
  std::int64_t steps = 0;                 ///< number of measured training steps
  double samples = 0;                     ///< of this replica, per training step
  std::vector<LayerProfile> layers = {};  ///< in the order of the forward pass
  StepParts parts = {};
  double step = 0;  ///< duration of a training step, the median; on a busy machine more than `seconds()`
  /// Floating-point operations per second that a large matrix product reaches, measured at the end of `fit` with the
  /// model's type and the replica's kernel threads while the other replicas do the same.
  double peak = 0;
  DType type = DType::kF32;    ///< of the product, the model's
  int slowest_replica = 0;     ///< rank of the replica whose training steps took longest without averaging
  double slowest_seconds = 0;  ///< its median duration of a training step without averaging
  double busy_seconds = 0;     ///< this replica's

  /// Floating-point operations of a layer in a training step; empty if the layer names none.
  std::optional<double> flops(const LayerProfile& layer) const;
  /// Sum over all layers.
  double flops() const;
  /// Sum of all times.
  double seconds() const;
};

/// A table with a line per layer and part, and a line with the sums: times in ms, operations in GFLOP per training
/// step, GFLOP/s, and the share of the peak. Then lines with the peak, and with the slowest replica if it took at least
/// 10 % longer than this replica. Each line ends with a newline.
std::string describe(const TrainingProfile& profile);

}  // namespace trainer
}  // namespace FARANDOLE_API
