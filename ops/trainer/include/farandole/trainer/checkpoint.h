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
#include "farandole/trainer/tensor.h"

namespace farandole FARANDOLE_API {
namespace trainer {

/// A named tensor that a checkpoint stores; a view of the caller's memory.
struct CheckpointTensor {
  std::string name;
  Shape shape;
  BufferView values;
};

/// Position in training, and the options on which the position depends.
struct CheckpointState {
  std::int64_t training_step = 0;  ///< number of training steps done
  std::int64_t epoch = 0;          ///< number of epochs completed
  std::int64_t position = 0;       ///< number of samples of the current epoch already used
  // Sums over the current epoch so far, over all replicas.
  double loss_sum = 0;
  std::int64_t correct = 0;
  /// Options that must be the same when training is resumed, as text: {"seed", "1"}, {"global batch", "128"}, …
  std::vector<std::pair<std::string, std::string>> options = {};
};

class CheckpointLock;

/// A checkpoint that was read.
struct LoadedCheckpoint {
  std::filesystem::path path;
  CheckpointState state;
};

/// A directory of checkpoints. Each is a directory `step-000123/` with `model.safetensors`, `optimizer.safetensors` and
/// `manifest.json` (state, options, and name, shape, type and CRC-32 of each tensor). Files have the mode 0600 and
/// directories 0700, or less by the umask.
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
/// another process writes; if the writer removes the checkpoint meanwhile, `load` reports it as damaged. Not
/// thread-safe.
class CheckpointStore {
 public:
  /// @param keep  number of checkpoints to keep, the newest
  CheckpointStore(std::filesystem::path directory, int keep);
  ~CheckpointStore();
  CheckpointStore(CheckpointStore&&) noexcept;
  CheckpointStore& operator=(CheckpointStore&&) noexcept;

  /// Creates and locks the directory, and removes remains of interrupted writes. Does not wait for the lock.
  /// @throws InvalidArgument  another process writes to the directory (the text names its host and process)
  /// @throws DataError  the directory cannot be made
  void prepare();
  /// The checkpoint of the highest training step; nothing if there is none.
  std::optional<std::filesystem::path> latest() const;
  /// Like `latest`, but counts incomplete checkpoints, which have no manifest.
  std::optional<std::filesystem::path> latest_with_incomplete() const;
  const std::filesystem::path& directory() const { return directory_; }

  /// Writes a checkpoint to a temporary directory, synchronises and renames the directory, and removes old checkpoints;
  /// failure to remove an old checkpoint is a warning. After `prepare`. Blocks.
  /// @throws DataError  the disk is full or not writable, or a checkpoint of that training step exists; older
  /// checkpoints stay untouched
  /// @throws InvalidArgument  this process has not called `prepare` (the lock of a parent process does not count), or
  /// two tensors have the same name
  void save(const CheckpointState& state, std::span<const CheckpointTensor> model,
            std::span<const CheckpointTensor> optimizer);

  /// Reads a checkpoint into the given tensors, which stay unchanged if anything is wrong.
  /// @param options  must equal the checkpoint's
  /// @throws InvalidArgument  the checkpoint is of another model (names the first tensor that differs) or of other
  /// options
  /// @throws DataError  the checkpoint is cut or altered; names the tensor
  CheckpointState load(const std::filesystem::path& checkpoint,
                       const std::vector<std::pair<std::string, std::string>>& options,
                       std::span<const CheckpointTensor> model, std::span<const CheckpointTensor> optimizer) const;

  /// Loads the newest complete checkpoint. Newer checkpoints that are damaged are renamed to `step-000123.damaged`,
  /// with a warning that gives the reason, so that training can save those training steps again. After `prepare`.
  /// @throws InvalidArgument  there is no checkpoint, or `load` throws it
  /// @throws DataError  no checkpoint is complete; gives the reason for each
  LoadedCheckpoint load_newest(const std::vector<std::pair<std::string, std::string>>& options,
                               std::span<const CheckpointTensor> model, std::span<const CheckpointTensor> optimizer);

 private:
  void check_owner() const;
  void remove_old();

  std::filesystem::path directory_;
  int keep_;
  std::unique_ptr<CheckpointLock> lock_;               // null before `prepare`
  std::set<std::filesystem::path> cannot_be_removed_;  // old checkpoints about which a warning was given
};

}  // namespace trainer
}  // namespace FARANDOLE_API
