// Checkpoints: directories that hold a model, its optimizer and where training stands, each complete or not there.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "farandole/core/buffer.h"
#include "farandole/trainer/tensor.h"

namespace farandole::trainer {

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

/// A directory of checkpoints: `step-000123/` with `model.safetensors`, `optimizer.safetensors` and `manifest.json`
/// (state, options, and name, shape, type and CRC-32 of each tensor). One process at a time may write to it.
class CheckpointStore {
 public:
  /// @param keep  checkpoints that are kept, the newest ones
  CheckpointStore(std::filesystem::path directory, int keep);

  /// Creates the directory and removes what an interrupted write has left behind. @throws DataError  it cannot be made
  void prepare();
  /// The checkpoint of the highest training step, if there is any.
  std::optional<std::filesystem::path> latest() const;
  const std::filesystem::path& directory() const { return directory_; }

  /// Writes a checkpoint aside, synchronises it with the disk, moves it to its place, and removes old ones.
  /// @throws DataError  disk full, not writable, or a checkpoint of that training step exists; older ones stay
  /// untouched.
  void save(const CheckpointState& state, std::span<const CheckpointTensor> model,
            std::span<const CheckpointTensor> optimizer) const;

  /// Reads a checkpoint into the given tensors, which are only touched when all of it is right.
  /// @param options  must equal those of the checkpoint
  /// @throws InvalidArgument  it is of another model (names the first differing tensor) or other options
  /// @throws DataError  cut or altered; names the tensor
  CheckpointState load(const std::filesystem::path& checkpoint,
                       const std::vector<std::pair<std::string, std::string>>& options,
                       std::span<const CheckpointTensor> model, std::span<const CheckpointTensor> optimizer) const;

 private:
  void remove_old() const;

  std::filesystem::path directory_;
  int keep_;
};

}  // namespace farandole::trainer
