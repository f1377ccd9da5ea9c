// SPDX-License-Identifier: Apache-2.0
#include "block_pool.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <vector>

#include "farandole/engine.h"

namespace farandole_tensorflow {
namespace {

constexpr std::size_t kPageBytes = 4096;
constexpr int64_t kMinLimit = 256 << 20;
constexpr int64_t kMemoryFraction = 8;  // all ranks of a host together keep at most 1/8 of its memory
constexpr int kAttemptsToSkip = 256;

int64_t machine_memory_bytes() {
  return static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<int64_t>(sysconf(_SC_PAGESIZE));
}

// Size classes: 2^k · {4, 5, 6, 7} / 4 bytes.
int size_class_of(std::size_t bytes) {
  const int power = 63 - __builtin_clzll(bytes);
  const std::size_t quarter = std::size_t{1} << (power - 2);
  const auto quarters = static_cast<int>((bytes + quarter - 1) / quarter);  // 4 to 8
  return 4 * power + quarters - 4;
}

std::size_t bytes_of_class(int size_class) {
  return (std::size_t{4} + static_cast<std::size_t>(size_class % 4)) << (size_class / 4 - 2);
}

}  // namespace

BlockPool& BlockPool::instance() {
  static auto* const pool = new BlockPool;
  return *pool;
}

BlockPool::BlockPool() : limit_(std::max(kMinLimit, machine_memory_bytes() / kMemoryFraction)) {
  pthread_atfork([] { instance().mutex_.lock(); }, [] { instance().mutex_.unlock(); },
                 [] {
                   instance().is_forked_child_.store(true);
                   instance().mutex_.unlock();
                 });
}

BlockPool::Allocated BlockPool::allocate(std::size_t bytes) {
  // Relaxed suffices: only a forked child sets the flag, while it has a single thread.
  if (is_forked_child_.load(std::memory_order_relaxed) || bytes > (std::size_t{1} << 48)) return {};
  const int size_class = size_class_of(bytes);
  const std::size_t class_bytes = bytes_of_class(size_class);
  const Kind wanted = windows_are_useful() ? kWindow : kOrdinary;
  void* memory = take_kept(wanted, size_class);
  Kind kind = wanted;
  if (memory == nullptr) memory = allocate_new(kind, class_bytes);
  if (memory == nullptr && kind == kWindow) {
    kind = kOrdinary;
    memory = take_kept(kind, size_class);
    if (memory == nullptr) memory = allocate_new(kind, class_bytes);
  }
  return {memory, class_bytes};
}

bool BlockPool::windows_are_useful() {
  if (farandole_is_initialized() == 0) {
    local_size_.store(-1, std::memory_order_relaxed);
    return false;
  }
  int32_t local_size = local_size_.load(std::memory_order_relaxed);
  if (local_size < 0) {
    farandole_place place{};
    place.struct_bytes = sizeof(place);
    farandole_get_place(&place);
    local_size = place.local_size;
    const std::lock_guard<std::mutex> lock(mutex_);
    local_size_.store(local_size, std::memory_order_relaxed);
    limit_ = std::max(kMinLimit, machine_memory_bytes() / kMemoryFraction / std::max(local_size, 1));
    attempts_to_skip_ = 0;
  }
  return local_size > 1;
}

void* BlockPool::take_kept(Kind kind, int size_class) {
  const std::lock_guard<std::mutex> lock(mutex_);
  auto& same_class = by_class_[kind][size_class];
  if (same_class.empty()) return nullptr;
  const auto kept = same_class.back();  // the block released last, which may still be in the caches
  same_class.pop_back();
  void* const memory = kept->memory;
  kept_.erase(kept);
  const auto bytes = static_cast<int64_t>(blocks_[memory].bytes);
  kept_bytes_[kind] -= bytes;
  in_use_bytes_[kind] += bytes;
  return memory;
}

void* BlockPool::allocate_new(Kind kind, std::size_t bytes) {
  void* memory = nullptr;
  if (kind == kOrdinary) {
    // Page-aligned, so that `may_be_block` recognises the block.
    if (posix_memalign(&memory, kPageBytes, bytes) != 0) return nullptr;
    register_block(memory, bytes, kind);
    return memory;
  }
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (attempts_to_skip_ > 0) {
      --attempts_to_skip_;
      return nullptr;
    }
  }
  memory = farandole_window_allocate(bytes);
  if (memory == nullptr) {
    evict(0);  // kept blocks may fill the memory for windows
    memory = farandole_window_allocate(bytes);
  }
  if (memory == nullptr) {
    const std::lock_guard<std::mutex> lock(mutex_);
    attempts_to_skip_ = kAttemptsToSkip;
    return nullptr;
  }
  register_block(memory, bytes, kind);
  return memory;
}

void BlockPool::register_block(void* memory, std::size_t bytes, Kind kind) {
  const std::lock_guard<std::mutex> lock(mutex_);
  blocks_[memory] = {.bytes = bytes, .kind = kind};
  in_use_bytes_[kind] += static_cast<int64_t>(bytes);
  if (kind == kOrdinary) return;
  const auto address = reinterpret_cast<uintptr_t>(memory);
  if (address < lowest_window_.load(std::memory_order_relaxed)) lowest_window_.store(address);
  if (address > highest_window_.load(std::memory_order_relaxed)) highest_window_.store(address);
}

// Relaxed loads suffice: the thread that allocated the block passed the pointer to the thread that frees it, which
// orders the stores before these loads.
bool BlockPool::may_be_block(const void* memory) const {
  const auto address = reinterpret_cast<uintptr_t>(memory);
  return address % kPageBytes == 0 || (address >= lowest_window_.load(std::memory_order_relaxed) &&
                                       address <= highest_window_.load(std::memory_order_relaxed));
}

std::size_t BlockPool::release(void* memory) {
  if (!may_be_block(memory)) return 0;
  std::size_t bytes = 0;
  int64_t limit = 0;
  bool exceeds_limit = false, is_reusable = true;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = blocks_.find(memory);
    if (found == blocks_.end()) return 0;
    Block& block = found->second;
    bytes = block.bytes;
    if (is_forked_child_.load(std::memory_order_relaxed)) return bytes;
    in_use_bytes_[block.kind] -= static_cast<int64_t>(block.bytes);
    is_reusable = block.is_reusable;
    if (is_reusable) {
      const int size_class = size_class_of(block.bytes);
      kept_.push_back({memory, size_class, block.kind});
      by_class_[block.kind][size_class].push_back(std::prev(kept_.end()));
      kept_bytes_[block.kind] += static_cast<int64_t>(block.bytes);
      limit = limit_;
      exceeds_limit = kept_bytes_[kWindow] + kept_bytes_[kOrdinary] > limit;
    } else {
      blocks_.erase(found);
    }
  }
  if (!is_reusable) free_block(memory, kWindow);
  if (exceeds_limit) evict(limit);
  return bytes;
}

void BlockPool::evict(int64_t max_kept_bytes) {
  std::vector<Kept> evicted;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    while (kept_bytes_[kWindow] + kept_bytes_[kOrdinary] > max_kept_bytes && !kept_.empty()) {
      const Kept oldest = kept_.front();
      by_class_[oldest.kind][oldest.size_class].pop_front();
      kept_.pop_front();
      const auto found = blocks_.find(oldest.memory);
      kept_bytes_[oldest.kind] -= static_cast<int64_t>(found->second.bytes);
      blocks_.erase(found);
      evicted.push_back(oldest);
    }
  }
  for (const Kept& each : evicted) free_block(each.memory, each.kind);
}

void BlockPool::quarantine_windows_in_use() {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (auto& [memory, block] : blocks_) block.is_reusable = block.kind != kWindow;
  for (const Kept& each : kept_) blocks_[each.memory].is_reusable = true;
}

void BlockPool::free_block(void* memory, Kind kind) {
  if (kind == kWindow) {
    (void)farandole_window_free(memory);
  } else {
    free(memory);
  }
}

std::size_t BlockPool::size_of(const void* memory) {
  if (!may_be_block(memory)) return 0;
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = blocks_.find(memory);
  return found == blocks_.end() ? 0 : found->second.bytes;
}

BlockPool::Memory BlockPool::memory() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return {in_use_bytes_[kWindow], kept_bytes_[kWindow], in_use_bytes_[kOrdinary], kept_bytes_[kOrdinary], limit_};
}

}  // namespace farandole_tensorflow
