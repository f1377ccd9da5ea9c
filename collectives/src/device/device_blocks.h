// SPDX-License-Identifier: Apache-2.0
// Device memory that the program has allocated, and the calls that use it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "device/device_scratch.h"
#include "device/direct_log.h"

namespace farandole {

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
  /// Notes that a direct call, which is about to be enqueued, uses the block that contains `address`. No-op if there is
  /// no such block. Earlier calls of the same communicator are taken to use it, too. @param ends  DirectLog::ends()
  void note_use(const void* address, const std::shared_ptr<const CallEnds>& ends, std::uint64_t number);
  /// Notes that the block that contains `address` is used while `user` exists. No-op if there is no such block.
  void note_use(const void* address, const std::shared_ptr<const void>& user);
  /// The program has released the block that begins at `memory`.
  void release(void* memory);
  /// Returns the released blocks whose calls have ended to the pool. True if no released block is left.
  bool collect();

 private:
  struct Use {
    std::weak_ptr<const void> user;  ///< CallEnds if `number` is not 0
    const CallEnds* ends = nullptr;  ///< valid while `user` exists
    std::uint64_t number = 0;
  };
  struct Block {
    DeviceScratch memory;
    std::size_t bytes = 0;
    std::vector<Use> uses;
  };
  static bool is_in_use(const Block& block);
  Block* find(const void* address);

  std::mutex mutex_;               // guards the members below
  std::map<void*, Block> blocks_;  // of the program, by address
  std::vector<Block> released_;    // by the program, but in use
};

}  // namespace farandole
