// SPDX-License-Identifier: Apache-2.0
// Memory that is released is kept for the next request of as many bytes: the driver's own calls may wait for the
// device.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

namespace farandole::cuda {

/// Blocks in classes of sizes, a quarter of a power of two apart, so that at most a fifth of a large block is not asked
/// for. Those above 1 MiB are multiples of 2 MiB, as the driver's pages are. Thread-safe; calls of the source are made
/// without a lock.
class MemoryPool {
 public:
  /// Where blocks come from and go to.
  struct Source {
    std::function<void*(std::size_t bytes)> allocate;  ///< null if there is no more; may throw
    std::function<void(void* memory)> release;         ///< does not throw
    /// Called before kept blocks go back because there is no more memory: waits until the driver can take them without
    /// making others wait; may throw. Empty: there is nothing to wait for.
    std::function<void()> wait_for_release = {};
  };
  explicit MemoryPool(Source source) : source_(std::move(source)) {}
  MemoryPool(const MemoryPool&) = delete;
  MemoryPool& operator=(const MemoryPool&) = delete;
  ~MemoryPool() { give_back(); }

  /// Null if the source has no more, even after all that was kept has gone back to it. Blocks only then.
  void* allocate(std::size_t bytes);
  /// @param memory  of this pool, or null
  void release(void* memory);
  /// What is kept goes back to the source.
  void give_back();

  struct Use {
    std::size_t in_use_bytes = 0;
    std::size_t kept_bytes = 0;
  };
  Use use() const;

  /// What a request of so many bytes takes.
  static std::size_t block_bytes(std::size_t bytes);

 private:
  void* take_kept(std::size_t block);
  void* allocate_anew(std::size_t block);

  const Source source_;
  mutable std::mutex mutex_;                        // guards all below
  std::map<std::size_t, std::vector<void*>> kept_;  // by size of block
  std::unordered_map<void*, std::size_t> in_use_;   // to size of block
};

}  // namespace farandole::cuda
