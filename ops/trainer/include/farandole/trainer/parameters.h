// SPDX-License-Identifier: Apache-2.0
// Parameters of a model in a file: to predict in another program, or to start from a trained model.
#pragma once

#include <filesystem>

#include "farandole/core/export.h"
#include "farandole/trainer/model.h"

namespace farandole FARANDOLE_API {
namespace trainer {

/// Writes parameters and moving statistics to a file in the safetensors format, which Python reads with
/// `safetensors.numpy.load_file`. Replaces an existing file once the new one is complete and on the disk. In a job call
/// the function on one rank: all replicas have the same parameters. Threads that write the same file at the same time
/// do not disturb each other; the file is then that of the call that ends last.
///
///     save_parameters(trainer.model(), "model.safetensors");   // one program
///     load_parameters("model.safetensors", model);             // another program, with the same layers
///     load_parameters("checkpoints", model, {.average = true});   // or from the newest checkpoint
///     const Tensor<float>& outputs = model.forward({}, inputs);
/// @throws DataError  the file cannot be written; an existing file is untouched
template <class Scalar>
FARANDOLE_API void save_parameters(Model<Scalar>& model, const std::filesystem::path& file);

struct LoadOptions {
  /// True: load the moving average of the parameters (OptimizerOptions::ema_decay), which only a checkpoint has.
  bool average = false;
};

/// Reads parameters and moving statistics into a model, which stays unchanged if the function throws. Converts between
/// f32 and f64. In a job call the function on every rank, or on rank 0 before `Trainer` with
/// TrainerOptions::initialize = false, which copies rank 0's parameters to all ranks.
/// @param from  a file of `save_parameters`; a checkpoint, "checkpoints/step-000123"; or a directory of checkpoints, of
/// which the newest complete one is read, without optimizer and data
/// @throws InvalidArgument  `from` belongs to another model (names the first tensor that differs; for a checkpoint,
/// also describes both models), has no checkpoint, or has no moving average
/// @throws DataError  there is no such file, or the file is truncated or altered
template <class Scalar>
FARANDOLE_API void load_parameters(const std::filesystem::path& from, Model<Scalar>& model,
                                   const LoadOptions& options = {});

}  // namespace trainer
}  // namespace FARANDOLE_API
