// SPDX-License-Identifier: Apache-2.0
// Device memory that the program has allocated, with the calls that use it.
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

/// Marks a queued operation as a user of blocks; the blocks are in use as long as this object exists.
struct BlockUser {
  std::atomic<bool> is_enqueued{false};  ///< all work is on the device, so no other rank's program can delay its end
};

/// The blocks of Communicator::allocate on a rank's device. If the program releases a block while calls use it, the
/// block returns to the device's pool only after these calls have ended on the device. So the pool never gives the
/// block to other work too early. Knows Farandole's calls only: neither the program's own kernels nor replays of
/// graphs.
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
  /// Keeps blocks that are still in use until the process ends; this happens after a fault.
  ~DeviceBlocks();
  /// Takes a new block. Returns its address.
  void* add(DeviceScratch memory, std::size_t bytes);
  /// Notes that a direct call, about to be enqueued, uses the blocks that overlap the memory. Treats earlier calls of
  /// the same communicator as if they used them, too. @param ends  DirectLog::ends()   @param number  the call's number
  void note_use(const void* memory, std::size_t bytes, const std::shared_ptr<const CallEnds>& ends,
                std::uint64_t number);
  /// Notes that the blocks that overlap the memory are used while `user` exists.
  void note_use(const void* memory, std::size_t bytes, const std::shared_ptr<const BlockUser>& user);
  /// Releases the block that begins at `memory`: returns it to the pool, or keeps it while calls use it. No-op in a
  /// forked child.
  void release(void* memory);

  /// Result of `collect`.
  struct Released {
    std::uint64_t returned = 0;  ///< blocks that were kept and then returned to the pool, ever since the beginning
    bool are_left = false;       ///< released blocks are still in use
    bool are_running = false;    ///< at least one of them is used only by calls that are on the device
  };
  /// Returns released blocks to the pool if all calls that used them have ended.
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
  /// Calls `visit` with each block that overlaps the range.
  template <class Visit>
  void for_each(const void* memory, std::size_t bytes, const Visit& visit);

  /// True in a forked child: it cannot use the parent's device, and `mutex_` may be locked there for ever.
  bool is_forked_child() const { return getpid() != owner_; }

  const pid_t owner_ = getpid();
  std::mutex mutex_;               // guards the members below
  std::map<void*, Block> blocks_;  // not released by the program; by address
  std::vector<Block> released_;    // released by the program, but in use
  std::uint64_t returned_ = 0;
};

}  // namespace farandole
