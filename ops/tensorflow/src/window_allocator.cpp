// SPDX-License-Identifier: Apache-2.0
// CPU allocator for TensorFlow that places large tensors in windows (memory that all ranks of the host have mapped), so
// that collectives on these tensors need no copy.
#include "window_allocator.h"

#include <malloc.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <optional>
#include <string>

#include "block_pool.h"
#include "tensorflow/core/framework/allocator.h"
#include "tensorflow/core/framework/allocator_registry.h"

namespace farandole_tensorflow {
namespace {

/// Above the priority of TensorFlow's own allocators, which is at most 200.
constexpr int kPriority = 1000;
constexpr std::size_t kBlockAlignment = 64;

void* ordinary_memory(size_t alignment, size_t bytes) {
  void* memory = nullptr;
  return posix_memalign(&memory, std::max(alignment, sizeof(void*)), bytes) == 0 ? memory : nullptr;
}

/// Statistics that TensorFlow shows as memory of the device CPU:0. Each figure is exact, but the figures of one `read`
/// may be of slightly different times.
class Statistics {
 public:
  void add(std::size_t bytes) {
    count_.fetch_add(1, std::memory_order_relaxed);
    const auto size = static_cast<int64_t>(bytes);
    raise(largest_, size);
    raise(peak_, in_use_.fetch_add(size, std::memory_order_relaxed) + size);
  }
  void remove(std::size_t bytes) { in_use_.fetch_sub(static_cast<int64_t>(bytes), std::memory_order_relaxed); }

  tensorflow::AllocatorStats read() const {
    tensorflow::AllocatorStats stats;
    stats.num_allocs = count_.load(std::memory_order_relaxed);
    stats.bytes_in_use = in_use_.load(std::memory_order_relaxed);
    stats.peak_bytes_in_use = peak_.load(std::memory_order_relaxed);
    stats.largest_alloc_size = largest_.load(std::memory_order_relaxed);
    return stats;
  }
  void clear() {
    count_.store(0, std::memory_order_relaxed);
    largest_.store(0, std::memory_order_relaxed);
    peak_.store(in_use_.load(std::memory_order_relaxed), std::memory_order_relaxed);
  }

 private:
  static void raise(std::atomic<int64_t>& value, int64_t to) {
    int64_t current = value.load(std::memory_order_relaxed);
    while (current < to && !value.compare_exchange_weak(current, to, std::memory_order_relaxed)) {
    }
  }
  std::atomic<int64_t> count_{0}, in_use_{0}, peak_{0}, largest_{0};
};

class WindowAllocator : public tensorflow::Allocator {
 public:
  std::string Name() override { return "farandole"; }

  void* AllocateRaw(size_t alignment, size_t bytes) override {
    if (bytes >= BlockPool::kMinBytes && alignment <= kBlockAlignment) {
      const BlockPool::Allocated block = pool_.allocate(bytes);
      if (block.memory != nullptr) {
        statistics_.add(block.bytes);
        return block.memory;
      }
    }
    void* const memory = ordinary_memory(alignment, bytes);
    if (memory != nullptr) statistics_.add(malloc_usable_size(memory));
    return memory;
  }

  void DeallocateRaw(void* memory) override {
    const std::size_t block_bytes = pool_.release(memory);
    if (block_bytes != 0) {
      statistics_.remove(block_bytes);
      return;
    }
    statistics_.remove(malloc_usable_size(memory));
    free(memory);
  }

  size_t AllocatedSizeSlow(const void* memory) const override {
    const std::size_t block_bytes = pool_.size_of(memory);
    return block_bytes != 0 ? block_bytes : malloc_usable_size(const_cast<void*>(memory));
  }
  std::optional<tensorflow::AllocatorStats> GetStats() override { return statistics_.read(); }
  bool ClearStats() override {
    statistics_.clear();
    return true;
  }
  tensorflow::AllocatorMemoryType GetMemoryType() const override {
    return tensorflow::AllocatorMemoryType::kHostPageable;
  }

 private:
  BlockPool& pool_ = BlockPool::instance();
  Statistics statistics_;
};

/// Provides ordinary memory in large regions to TensorFlow's allocators that pool memory themselves
/// (TF_CPU_ALLOCATOR_USE_BFC, staging for devices).
class OrdinaryMemory : public tensorflow::SubAllocator {
 public:
  OrdinaryMemory() : SubAllocator({}, {}) {}
  void* Alloc(size_t alignment, size_t bytes, size_t* received) override {
    *received = bytes;
    return ordinary_memory(alignment, bytes);
  }
  void Free(void* memory, size_t) override { free(memory); }
  bool SupportsCoalescing() const override { return false; }
  tensorflow::AllocatorMemoryType GetMemoryType() const override {
    return tensorflow::AllocatorMemoryType::kHostPageable;
  }
};

class Factory : public tensorflow::AllocatorFactory {
 public:
  tensorflow::Allocator* CreateAllocator() override { return new WindowAllocator; }
  tensorflow::SubAllocator* CreateSubAllocator(int) override { return new OrdinaryMemory; }
};

}  // namespace

void register_window_allocator() {
  tensorflow::AllocatorFactoryRegistry::singleton()->Register(__FILE__, __LINE__, "farandole", kPriority, new Factory);
}

}  // namespace farandole_tensorflow
