// SPDX-License-Identifier: Apache-2.0
// Pool of large memory blocks for TensorFlow's CPU tensors.
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

/// Allocates large tensors in windows (memory that all ranks of the host have mapped), so that collectives on them need
/// no copy. Blocks are windows while the engine runs with more than one rank on this host, and ordinary memory
/// otherwise. Thread-safe.
///
/// A new window costs a page fault and zeroing for every page, so the pool keeps freed blocks for reuse, by size class
/// (four classes per power of two, so a block is at most a quarter too large). When the kept blocks exceed a limit, the
/// pool returns those that it has kept longest to the system.
///
/// In a forked child, existing blocks stay readable until the parent reuses them. The pool neither allocates nor frees
/// blocks there; the child uses ordinary memory.
///
/// `mutex_` guards all members that are not atomic. It is not held during calls to the engine or the system allocator.
class BlockPool {
 public:
  /// Minimum size of a block. The engine packs smaller tensors at little cost, so windows would not pay.
  static constexpr std::size_t kMinBytes = 64 << 10;

  /// Figures for Python, in bytes.
  struct Memory {
    int64_t windows_in_use = 0, windows_kept = 0;
    int64_t ordinary_in_use = 0, ordinary_kept = 0;
    int64_t limit = 0;  // limit of the kept bytes
  };

  /// The pool of this process. Never destroyed: tensors may be freed at exit.
  static BlockPool& instance();

  /// A block and its size.
  struct Allocated {
    void* memory = nullptr;
    std::size_t bytes = 0;
  };

  /// Allocates a block, 64-byte aligned and possibly larger than requested. If the result's memory is null, the caller
  /// must use another allocator.
  /// @param bytes  at least kMinBytes
  Allocated allocate(std::size_t bytes);
  /// Releases a block. Returns its size; 0 if `memory` is not from this pool. Cheap for small memory that is not from
  /// this pool, because most such addresses are recognised without a lock.
  std::size_t release(void* memory);
  /// Returns the size of a block; 0 if `memory` is not from this pool.
  std::size_t size_of(const void* memory);
  /// Call after a fault of the job, because a rank that was stopped may still write to windows that are in use now.
  /// When these windows are released, the pool returns them to the engine, which does not reuse them.
  void quarantine_windows_in_use();
  Memory memory();

 private:
  enum Kind { kWindow = 0, kOrdinary = 1 };
  struct Block {
    std::size_t bytes = 0;
    Kind kind = kOrdinary;
    bool is_reusable = true;  ///< false: quarantined
  };
  /// A freed block that is kept for reuse.
  struct Kept {
    void* memory = nullptr;
    int size_class = 0;
    Kind kind = kOrdinary;
  };
  using KeptList = std::list<Kept>;

  BlockPool();
  /// True if the engine runs and other ranks live on this host. Asks the engine once per farandole_init.
  bool windows_are_useful();
  /// Takes a kept block of this class; null if there is none.
  void* take_kept(Kind kind, int size_class);
  /// Allocates a block from the engine or the system; null if neither has room.
  void* allocate_new(Kind kind, std::size_t bytes);
  /// Adds a new block to the table.
  void register_block(void* memory, std::size_t bytes, Kind kind);
  /// Returns kept blocks to the system until at most `max_kept_bytes` are left.
  void evict(int64_t max_kept_bytes);
  /// False if `memory` is certainly not of this pool; true means unknown. Needs no lock.
  bool may_be_block(const void* memory) const;
  static void free_block(void* memory, Kind kind);

  std::mutex mutex_;
  std::unordered_map<const void*, Block> blocks_;
  KeptList kept_;                                                // the block kept longest comes first
  std::array<std::deque<KeptList::iterator>, 256> by_class_[2];  // by kind and size class, in the order of kept_
  std::array<int64_t, 2> in_use_bytes_{}, kept_bytes_{};
  int64_t limit_ = 0;
  int attempts_to_skip_ = 0;  // number of window allocations to skip, because the engine had no room
  // Address range of the windows, which lie in one mapping: an address outside the range is no window.
  std::atomic<uintptr_t> lowest_window_{UINTPTR_MAX}, highest_window_{0};
  std::atomic<bool> is_forked_child_{false};
  std::atomic<int32_t> local_size_{-1};  // -1: unknown
};

}  // namespace farandole_tensorflow

#endif  // FARANDOLE_TENSORFLOW_BLOCK_POOL_H
