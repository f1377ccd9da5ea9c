// SPDX-License-Identifier: Apache-2.0
// Device memory that the program has allocated, and the calls that use it.
#pragma once

#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "device/device_scratch.h"
#include "device/direct_log.h"

namespace farandole {

/// An operation in the agreed order, as a user of blocks.
struct BlockUser {
  std::atomic<bool> is_enqueued{false};  ///< all work is on the device: no other rank's program can delay its end
};

/// The blocks of Communicator::allocate on a rank's device. A block that the program releases while calls use it
/// returns to the device's pool only after these calls have ended on the device, so that the pool never gives it to
/// other work too early. Only calls of Farandole are known: not the program's own kernels, and not replays of graphs.
///
///     blocks.add(memory, bytes);
///     blocks.note_use(memory, ends, 7);    // for each call that uses memory of the block
///     blocks.release(memory);              // kept while call 7 runs
///     blocks.collect();                    // later: to the pool
///
/// Thread-safe.
class DeviceBlocks {
 public:
  DeviceBlocks() = default;
  DeviceBlocks(const DeviceBlocks&) = delete;
  DeviceBlocks& operator=(const DeviceBlocks&) = delete;
  /// Keeps blocks that are still in use, after a fault, until the process ends.
  ~DeviceBlocks();
  /// Takes a new block. Returns its address.
  void* add(DeviceScratch memory, std::size_t bytes);
  /// Notes that a direct call, which is about to be enqueued, uses the blocks that overlap the memory. Earlier calls of
  /// the same communicator are taken to use them, too. @param ends  DirectLog::ends()
  void note_use(const void* memory, std::size_t bytes, const std::shared_ptr<const CallEnds>& ends,
                std::uint64_t number);
  /// Notes that the blocks that overlap the memory are used while `user` exists.
  void note_use(const void* memory, std::size_t bytes, const std::shared_ptr<const BlockUser>& user);
  /// The program has released the block that begins at `memory`. No-op in a forked child.
  void release(void* memory);

  /// The released blocks after `collect`.
  struct Released {
    std::uint64_t returned = 0;  ///< number of blocks that were ever kept and then returned to the pool
    bool are_left = false;       ///< blocks are in use
    bool are_running = false;    ///< blocks are in use whose calls are all on the device
  };
  /// Returns the released blocks whose calls have ended to the pool.
  Released collect();

 private:
  struct Use {
    std::weak_ptr<const BlockUser> operation;
    std::weak_ptr<const CallEnds> ends;
    std::uint64_t number = 0;  ///< of the last direct call; 0 for an operation

    bool has_ended() const;
    bool is_on_device() const;
  };
  struct Block {
    DeviceScratch memory;
    std::size_t bytes = 0;
    std::vector<Use> uses;
  };
  static bool is_in_use(const Block& block);
  /// Calls `visit` with the block that contains `memory` and those after it that begin in the range.
  template <class Visit>
  void for_each(const void* memory, std::size_t bytes, const Visit& visit);

  /// In a forked child: the parent's device is of no use there, and the mutex may be locked for ever.
  bool is_forked_child() const { return getpid() != owner_; }

  const pid_t owner_ = getpid();
  std::mutex mutex_;               // guards the members below
  std::map<void*, Block> blocks_;  // of the program, by address
  std::vector<Block> released_;    // by the program, but in use
  std::uint64_t returned_ = 0;
};

}  // namespace farandole
