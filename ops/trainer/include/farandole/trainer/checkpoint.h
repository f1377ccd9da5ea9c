// SPDX-License-Identifier: Apache-2.0
// Checkpoints: directories with model, optimizer and position in training. Each checkpoint is complete or absent.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "farandole/core/buffer.h"
#include "farandole/core/export.h"
#include "farandole/trainer/learning_rate.h"
#include "farandole/trainer/model_description.h"
#include "farandole/trainer/tensor.h"

namespace farandole FARANDOLE_API {
namespace trainer {

/// A named tensor that a checkpoint stores; a view of the caller's memory.
struct CheckpointTensor {
  std::string name;
  Shape shape;
  BufferView values;
};

/// State of a training's monitor, which watches for the best epoch.
struct MonitorState {
  double best = 0;               ///< the best result
  std::int64_t best_step = -1;   ///< training step at the end of the best epoch; -1: there was no result yet
  std::int64_t bad_results = 0;  ///< number of results since that were not better
  bool pending = false;          ///< training was stopped before the result of its last epoch was computed

  friend bool operator==(const MonitorState&, const MonitorState&) = default;
};

/// Sums of a metric over the current epoch so far, over all replicas.
struct EpochMetric {
  std::string name;
  std::vector<double> sums;
  friend bool operator==(const EpochMetric&, const EpochMetric&) = default;
};

/// The loss scale of a training, see LossScale.
struct LossScaleState {
  double scale = 1;
  std::int64_t good_steps = 0, skipped_steps = 0;

  friend bool operator==(const LossScaleState&, const LossScaleState&) = default;
};

/// Position in training, and the options on which the position depends.
struct CheckpointState {
  std::int64_t training_step = 0;  ///< number of training steps done
  std::int64_t epoch = 0;          ///< number of epochs completed
  std::int64_t position = 0;       ///< number of samples of the current epoch already used
  /// Samples of `position` in skipped training steps whose loss is no finite number (LossScaleOptions). The sums leave
  /// them out.
  std::int64_t uncounted = 0;
  double loss_sum = 0;  ///< sum over the current epoch so far, over all replicas
  /// From a manifest of version 1: right answers and samples, as the metric "accuracy".
  std::vector<EpochMetric> metrics = {};
  /// Options that must be the same when training is resumed, as text: {"seed", "1"}, {"global batch", "128"}, …
  std::vector<std::pair<std::string, std::string>> options = {};
  std::optional<PlateauState> plateau = {};       ///< state of the schedule kPlateau; empty with other schedules
  std::optional<MonitorState> monitor = {};       ///< empty without a monitor
  std::optional<LossScaleState> loss_scale = {};  ///< empty without a loss scale
  std::optional<ModelDescription> model = {};     ///< empty in checkpoints of programs that did not describe the model
  /// Options that may change when training is resumed, as text, so that the program can tell what changed.
  std::vector<std::pair<std::string, std::string>> other_options = {};
};

class CheckpointLock;

/// A checkpoint that was read.
struct LoadedCheckpoint {
  std::filesystem::path path;
  CheckpointState state;
};

/// A directory of checkpoints. Each checkpoint is a directory `step-000123/` with `model.safetensors`,
/// `optimizer.safetensors` and `manifest.json` (state, options, and name, shape, type and CRC-32 of each tensor). Files
/// have mode 0600 and directories mode 0700, further restricted by the umask. The symbolic link `best`, if there is
/// one, names the checkpoint of the best epoch.
///
/// Use a store directly for training loops of your own; Trainer writes checkpoints by itself.
///
///     CheckpointStore store("checkpoints", 3);
///     store.prepare();
///     if (resume) state = store.load_newest(options, model, optimizer).state;
///     store.save(state, model, optimizer);
///
/// Writing is exclusive, over all processes and hosts: an object holds the directory's lock from `prepare` until the
/// object is destroyed or the process ends, for whatever reason. Reading (`latest`, `load`) needs no lock, even while
/// another process writes; if the writer removes the checkpoint meanwhile, `load` reports the checkpoint as damaged.
/// Not thread-safe.
class CheckpointStore {
 public:
  /// @param keep  number of checkpoints to keep, the newest
  CheckpointStore(std::filesystem::path directory, int keep);
  ~CheckpointStore();
  CheckpointStore(CheckpointStore&&) noexcept;
  CheckpointStore& operator=(CheckpointStore&&) noexcept;

  /// Creates the directory if necessary, locks it, and removes temporary directories of interrupted writes. If another
  /// owner holds the lock, throws instead of waiting.
  /// @throws InvalidArgument  another process, or another store of this process, holds the lock (the text names its
  /// host and process)
  /// @throws DataError  the directory cannot be created or used
  void prepare();
  /// Returns the complete checkpoint of the highest training step; empty if there is none.
  std::optional<std::filesystem::path> latest() const;
  /// Like `latest`, but includes incomplete checkpoints, i.e. directories without a manifest.
  std::optional<std::filesystem::path> latest_with_incomplete() const;
  const std::filesystem::path& directory() const { return directory_; }

  /// Returns the path of the checkpoint of a training step, whether it exists or not.
  std::filesystem::path path_of(std::int64_t training_step) const;

  /// Writes a checkpoint to a temporary directory, synchronises that directory with the disk, and renames it to its
  /// final name. Then removes all but the newest `keep` checkpoints and the one that `best` names; a checkpoint that
  /// cannot be removed causes only a warning. Call `prepare` first. Blocks.
  /// @throws DataError  the disk is full or not writable, or a checkpoint of that training step exists; older
  /// checkpoints stay untouched
  /// @throws InvalidArgument  this process has not called `prepare` (the lock of a parent process does not count), or
  /// two tensors have the same name
  void save(const CheckpointState& state, std::span<const CheckpointTensor> model,
            std::span<const CheckpointTensor> optimizer);

  /// Lets the link `best` name a checkpoint that exists, instead of the one before, which is removed unless it is among
  /// the newest. @throws DataError  the link cannot be written
  void mark_best(std::int64_t training_step);

  /// Reads a checkpoint into the given tensors, which stay unchanged if `load` throws.
  /// @param options  each must equal the checkpoint's option of that name; an option that the checkpoint lacks counts
  /// as "none"   @param description  of the model that has the tensors, for messages
  /// @throws InvalidArgument  the checkpoint belongs to another model (the text describes both, and names the first
  /// tensor that differs), or was written with other options
  /// @throws DataError  the checkpoint is truncated or altered; the text names the tensor
  CheckpointState load(const std::filesystem::path& checkpoint,
                       const std::vector<std::pair<std::string, std::string>>& options,
                       std::span<const CheckpointTensor> model, std::span<const CheckpointTensor> optimizer,
                       const std::optional<ModelDescription>& description = {}) const;

  /// Loads the newest complete checkpoint. Renames newer, damaged checkpoints to `step-000123.damaged` and logs the
  /// reason as a warning, so that training can save those training steps again. Call `prepare` first.
  /// @throws InvalidArgument  there is no checkpoint; or as `load`
  /// @throws DataError  no checkpoint is complete (the text gives the reason for each), or a damaged checkpoint cannot
  /// be renamed
  LoadedCheckpoint load_newest(const std::vector<std::pair<std::string, std::string>>& options,
                               std::span<const CheckpointTensor> model, std::span<const CheckpointTensor> optimizer,
                               const std::optional<ModelDescription>& description = {});

 private:
  void check_owner() const;
  void remove_old();

  std::filesystem::path directory_;
  int keep_;
  std::unique_ptr<CheckpointLock> lock_;               // null before `prepare`
  std::set<std::filesystem::path> cannot_be_removed_;  // old checkpoints about which a warning was given
};

/// Returns path, position, options and model of a checkpoint, without reading the tensors. Needs no lock.
///
///     const LoadedCheckpoint found = describe_checkpoint("checkpoints");
///     if (found.state.model) std::cout << describe(*found.state.model) << '\n';
/// @param from  a checkpoint, "checkpoints/step-000123"; or a directory of checkpoints, for the newest complete one
/// @throws InvalidArgument  `from` has no checkpoint   @throws DataError  the manifest is truncated or altered
LoadedCheckpoint describe_checkpoint(const std::filesystem::path& from);

}  // namespace trainer
}  // namespace FARANDOLE_API
