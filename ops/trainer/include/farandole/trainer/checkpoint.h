// SPDX-License-Identifier: Apache-2.0
// Checkpoints: directories that hold a model, its optimizer and where training stands, each complete or not there.
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

/// A named part of memory that a checkpoint keeps.
struct CheckpointTensor {
  std::string name;
  Shape shape;
  BufferView values;
};

/// Where training stands, and for which training that holds.
struct CheckpointState {
  std::int64_t training_step = 0;  ///< training steps done
  std::int64_t epoch = 0;          ///< epochs completed
  std::int64_t position = 0;       ///< samples of the current epoch already used
  // Of the current epoch so far, summed over all replicas.
  double loss_sum = 0;
  std::int64_t correct = 0;
  /// Options that a resumed training must share, as text: {"seed", "1"}, {"global batch", "128"}, …
  std::vector<std::pair<std::string, std::string>> options = {};
};

class CheckpointLock;

/// A checkpoint that was read, and what it says.
struct LoadedCheckpoint {
  std::filesystem::path path;
  CheckpointState state;
};

/// A directory of checkpoints: `step-000123/` with `model.safetensors`, `optimizer.safetensors` and `manifest.json`
/// (state, options, and name, shape, type and CRC-32 of each tensor). Files have the mode 0600 and directories 0700, or
/// less by the umask.
///
/// One object at a time may write to it, of all processes and hosts: from `prepare` on, until it is destroyed or its
/// process ends, however that ends. Reading (`latest`, `load`) needs nothing of that, also while another writes; a
/// checkpoint may then be removed under the reader's hands, which `load` reports as damage.
class CheckpointStore {
 public:
  /// @param keep  checkpoints that are kept, the newest ones
  CheckpointStore(std::filesystem::path directory, int keep);
  ~CheckpointStore();
  CheckpointStore(CheckpointStore&&) noexcept;
  CheckpointStore& operator=(CheckpointStore&&) noexcept;

  /// Creates the directory, takes its lock, and removes what an interrupted write has left behind.
  /// @throws InvalidArgument  another training writes to it (names its host and process)
  /// @throws DataError  it cannot be made
  void prepare();
  /// The checkpoint of the highest training step, if there is any.
  std::optional<std::filesystem::path> latest() const;
  /// The same, also if it has no manifest and so is no whole checkpoint.
  std::optional<std::filesystem::path> latest_remains() const;
  const std::filesystem::path& directory() const { return directory_; }

  /// Writes a checkpoint aside, synchronises it with the disk, moves it to its place, and removes old ones; old ones
  /// that cannot be removed are a warning. After `prepare`.
  /// @throws DataError  disk full, not writable, or a checkpoint of that training step exists; older ones stay
  /// untouched.
  /// @throws InvalidArgument  not prepared, or a child forked from the process that is; or two tensors of one name
  void save(const CheckpointState& state, std::span<const CheckpointTensor> model,
            std::span<const CheckpointTensor> optimizer);

  /// Reads a checkpoint into the given tensors, which are only touched when all of it is right.
  /// @param options  must equal those of the checkpoint
  /// @throws InvalidArgument  it is of another model (names the first differing tensor) or other options
  /// @throws DataError  cut or altered; names the tensor
  CheckpointState load(const std::filesystem::path& checkpoint,
                       const std::vector<std::pair<std::string, std::string>>& options,
                       std::span<const CheckpointTensor> model, std::span<const CheckpointTensor> optimizer) const;

  /// Loads the newest checkpoint that is whole. Damaged ones that are newer are renamed to `step-000123.damaged`, with
  /// a warning that says why each is not used, so that training can save those training steps again. After `prepare`.
  /// @throws InvalidArgument  there is none, or as `load`
  /// @throws DataError  none is whole; says why of each
  LoadedCheckpoint load_newest(const std::vector<std::pair<std::string, std::string>>& options,
                               std::span<const CheckpointTensor> model, std::span<const CheckpointTensor> optimizer);

 private:
  void check_owner() const;
  void remove_old();

  std::filesystem::path directory_;
  int keep_;
  std::unique_ptr<CheckpointLock> lock_;               // null before `prepare`
  std::set<std::filesystem::path> cannot_be_removed_;  // old ones, of which a warning was given
};

}  // namespace trainer
}  // namespace FARANDOLE_API
