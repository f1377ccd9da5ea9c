// SPDX-License-Identifier: Apache-2.0
// Pool of device memory or pinned memory. Released blocks are kept for reuse, because the driver's own functions may
// block until the device is idle.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

namespace farandole::cuda {

/// Memory pool with size classes. Four classes per power of two limit the unused part of a block above 8 MiB to a
/// fifth. Blocks above 1 MiB are multiples of 2 MiB, the driver's page size.
///
/// Thread-safe; functions of the source are called without a lock held.
class MemoryPool {
 public:
  /// The allocator below the pool.
  struct Source {
    std::function<void*(std::size_t bytes)> allocate;  ///< returns null if there is no memory left; may throw
    std::function<void(void* memory)> release;         ///< must not throw
    /// Called before kept blocks are released because memory has run out: blocks until `release` no longer blocks other
    /// threads; may throw. Empty if there is nothing to wait for.
    std::function<void()> wait_for_release = {};
  };
  explicit MemoryPool(Source source) : source_(std::move(source)) {}
  MemoryPool(const MemoryPool&) = delete;
  MemoryPool& operator=(const MemoryPool&) = delete;
  ~MemoryPool() { return_kept(); }

  /// Returns a block of at least `bytes` bytes. If the source has no memory left, first waits
  /// (Source::wait_for_release) and returns all kept blocks to the source; returns null if that does not help.
  void* allocate(std::size_t bytes);
  /// Keeps a block for reuse. @param memory  from this pool, or null
  void release(void* memory);
  /// Returns all kept blocks to the source; first waits (Source::wait_for_release) if there are any. Returns their
  /// size.
  std::size_t trim();

  struct Use {
    std::size_t in_use_bytes = 0;  ///< blocks that were allocated and not released
    std::size_t kept_bytes = 0;    ///< blocks kept for reuse
  };
  Use use() const;

  /// Size of the block that a request of `bytes` bytes gets.
  static std::size_t block_bytes(std::size_t bytes);

 private:
  void* take_kept(std::size_t block);
  void* allocate_anew(std::size_t block);
  std::size_t return_kept();

  const Source source_;
  mutable std::mutex mutex_;                        // guards the members below
  std::map<std::size_t, std::vector<void*>> kept_;  // by block size
  std::unordered_map<void*, std::size_t> in_use_;   // address → block size
};

}  // namespace farandole::cuda
