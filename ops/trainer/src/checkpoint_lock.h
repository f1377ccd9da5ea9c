// SPDX-License-Identifier: Apache-2.0
// Lock of a checkpoint directory: one writer at a time.
#pragma once

#include <filesystem>
#include <string>

#include "farandole/internal/forked_children.h"

namespace farandole::trainer {

/// Exclusive right to write to a checkpoint directory. Released by the destructor, or by the kernel when the process
/// ends, for whatever reason.
///
/// Implementation: an flock on a file that stays in the directory; while the lock is held, the file names the owner.
/// The kernel releases an flock with the last descriptor of the open file, so `kill -9` releases the lock, and network
/// file systems carry flocks to other hosts. Locks of fcntl are unsuitable: a process loses such a lock when any part
/// of the process opens and closes the file, for example to copy a checkpoint directory. A forked child shares the open
/// file and would keep the lock after the parent's death, so the child closes the descriptor at the fork.
class CheckpointLock {
 public:
  /// Takes the lock. If another owner holds the lock, throws after at most 1 s, the time for that owner to write its
  /// name. On a file system without locks, only warns.
  /// @throws InvalidArgument  another process, or another object of this process, holds the lock; names its host and
  /// process
  /// @throws DataError  the file cannot be made
  explicit CheckpointLock(const std::filesystem::path& directory);
  ~CheckpointLock();
  CheckpointLock(const CheckpointLock&) = delete;
  CheckpointLock& operator=(const CheckpointLock&) = delete;

  /// False in a forked child of the owner.
  bool is_owner() const { return descriptor_ >= 0; }

 private:
  CheckpointLock();
  static void close_in_child(CheckpointLock& lock);
  using InChildren = ForkedChildren<CheckpointLock, close_in_child>;

  /// Returns false if another owner holds the lock.
  bool try_lock(const std::filesystem::path& file);
  void write_owner() const;
  /// Returns the text of the owner; empty if the owner has not written the text yet.
  std::string read_owner() const;

  int descriptor_ = -1;
  bool locked_ = false;
};

}  // namespace farandole::trainer
