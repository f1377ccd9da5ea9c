// SPDX-License-Identifier: Apache-2.0
// Large blocks of memory, kept for the next tensor of about the same size.
#ifndef FARANDOLE_TENSORFLOW_BLOCK_POOL_H
#define FARANDOLE_TENSORFLOW_BLOCK_POOL_H

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <list>
#include <mutex>
#include <unordered_map>

namespace farandole_tensorflow {

/// Blocks are windows (memory that all ranks of the host have mapped) while the engine runs with more than one rank on
/// this host, and ordinary memory otherwise. A new window costs a page fault and the zeroing of every page, so blocks
/// that are freed are kept, by size class (four to each power of two, hence at most a quarter too large). What is kept
/// is bounded; beyond the limit, what has been kept longest goes back to the system.
///
/// In a forked child blocks stay readable (as they are until the parent uses them again), but are neither handed out
/// nor freed any more: other memory is used from then on.
///
/// `mutex_` guards everything that is not atomic. It is not held while the engine or the system is asked for memory.
class BlockPool {
 public:
  /// Smaller tensors are packed by the engine at little cost, and are not worth the care.
  static constexpr std::size_t kSmallestBytes = 64 << 10;

  struct Memory {
    int64_t windows_in_use = 0, windows_kept = 0;
    int64_t ordinary_in_use = 0, ordinary_kept = 0;
    int64_t limit = 0;  // of what is kept
  };

  /// Never destroyed: tensors may be freed at exit.
  static BlockPool& instance();

  struct Allocated {
    void* memory = nullptr;
    std::size_t bytes = 0;
  };

  /// 64-byte aligned, maybe larger than asked for. nullptr: take other memory. @param bytes  at least kSmallestBytes
  Allocated allocate(std::size_t bytes);
  /// Size of the block; 0: `memory` is not of this pool. Cheap for small ordinary memory.
  std::size_t release(void* memory);
  /// Size of a block; 0 if `memory` is not of this pool.
  std::size_t size_of(const void* memory);
  /// The job has failed: a rank that was stopped may still write to windows that are in use now. When they are released
  /// they go back to the engine, which keeps such memory from being used again.
  void quarantine_windows_in_use();
  Memory memory();

 private:
  enum Kind { kWindow = 0, kOrdinary = 1 };
  struct Block {
    std::size_t bytes = 0;
    Kind kind = kOrdinary;
    bool is_trusted = true;
  };
  struct Kept {
    void* memory = nullptr;
    int size_class = 0;
    Kind kind = kOrdinary;
  };
  using KeptList = std::list<Kept>;

  BlockPool();
  bool windows_are_useful();
  void* take_kept(Kind kind, int size_class);
  void* allocate_new(Kind kind, std::size_t bytes);
  void adopt(void* memory, std::size_t bytes, Kind kind);
  void evict(int64_t most_kept_bytes);
  bool may_be_block(const void* memory) const;
  static void give_back(void* memory, Kind kind);

  std::mutex mutex_;
  std::unordered_map<const void*, Block> blocks_;
  KeptList kept_;                                                // longest kept first
  std::array<std::deque<KeptList::iterator>, 256> by_class_[2];  // of one class and kind, in the same order
  std::array<int64_t, 2> in_use_bytes_{}, kept_bytes_{};
  int64_t limit_ = 0;
  int tries_to_skip_ = 0;  // after the engine had no window
  // Windows lie in one mapping, so that a comparison tells most other memory apart.
  std::atomic<uintptr_t> lowest_window_{UINTPTR_MAX}, highest_window_{0};
  std::atomic<bool> is_forked_child_{false};
  std::atomic<int32_t> local_size_{-1};  // -1: not known
};

}  // namespace farandole_tensorflow

#endif  // FARANDOLE_TENSORFLOW_BLOCK_POOL_H
