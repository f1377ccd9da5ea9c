// SPDX-License-Identifier: Apache-2.0
// One writer at a time in a directory of checkpoints.
#pragma once

#include <filesystem>
#include <string>

#include "farandole/internal/forked_children.h"

namespace farandole::trainer {

/// The right to write to a directory. It ends with this object, or with the process, whatever ends that.
///
/// An flock on a file that stays in the directory and names its owner while there is one. The kernel drops the lock
/// with the last descriptor of the open file, so `kill -9` frees it, and network file systems carry it to other hosts.
/// (The locks of fcntl would not do: a process loses those when any part of it opens and closes the file, as a program
/// does that copies its checkpoints.) A forked child shares the open file and would keep the lock when its parent has
/// died: it closes its descriptor at the fork.
class CheckpointLock {
 public:
  /// Does not wait for another owner. Where the file system knows no locks, that is a warning.
  /// @throws InvalidArgument  another process, or another object of this one, has the lock; names its host and process
  /// @throws DataError  the file cannot be made
  explicit CheckpointLock(const std::filesystem::path& directory);
  ~CheckpointLock();
  CheckpointLock(const CheckpointLock&) = delete;
  CheckpointLock& operator=(const CheckpointLock&) = delete;

  /// False in a child that was forked from the owner.
  bool is_owner() const { return descriptor_ >= 0; }

 private:
  CheckpointLock();
  static void let_go_in_child(CheckpointLock& lock);
  using InChildren = ForkedChildren<CheckpointLock, let_go_in_child>;

  /// False if another has it.
  bool try_lock(const std::filesystem::path& file);
  void write_owner() const;
  /// Empty if the owner has not written its name yet.
  std::string read_owner() const;

  int descriptor_ = -1;
  bool locked_ = false;
};

}  // namespace farandole::trainer
