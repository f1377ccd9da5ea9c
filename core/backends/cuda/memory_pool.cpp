// SPDX-License-Identifier: Apache-2.0
#include "cuda/memory_pool.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <limits>

namespace farandole::cuda {

namespace {

constexpr std::size_t kSmallestBlock = 512;
constexpr std::size_t kLargestSmallBlock = std::size_t{1} << 20;
constexpr std::size_t kPage = std::size_t{2} << 20;
/// Larger requests fail immediately: rounding them up could overflow.
constexpr std::size_t kMaxBytes = std::numeric_limits<std::size_t>::max() / 2;

}  // namespace

std::size_t MemoryPool::block_bytes(std::size_t bytes) {
  if (bytes <= kSmallestBlock) return kSmallestBlock;
  const std::size_t quarter = std::bit_floor(bytes - 1) / 4;
  const std::size_t step = bytes > kLargestSmallBlock ? std::max(quarter, kPage) : std::max(quarter, kSmallestBlock);
  return (bytes + step - 1) / step * step;
}

void* MemoryPool::allocate(std::size_t bytes) {
  if (bytes > kMaxBytes) return nullptr;
  const std::size_t block = block_bytes(bytes);
  if (void* const memory = take_kept(block)) return memory;
  void* const memory = allocate_anew(block);
  if (memory == nullptr) return nullptr;
  const std::lock_guard guard(mutex_);
  in_use_.emplace(memory, block);
  return memory;
}

void* MemoryPool::take_kept(std::size_t block) {
  const std::lock_guard guard(mutex_);
  const auto blocks = kept_.find(block);
  if (blocks == kept_.end() || blocks->second.empty()) return nullptr;
  void* const memory = blocks->second.back();
  in_use_.emplace(memory, block);
  blocks->second.pop_back();
  return memory;
}

void* MemoryPool::allocate_anew(std::size_t block) {
  if (void* const memory = source_.allocate(block)) return memory;
  if (use().kept_bytes == 0) return nullptr;
  trim();
  return source_.allocate(block);
}

void MemoryPool::release(void* memory) {
  if (memory == nullptr) return;
  const std::lock_guard guard(mutex_);
  const auto block = in_use_.find(memory);
  assert(block != in_use_.end() && "memory of another pool, or released twice");
  if (block == in_use_.end()) return;
  kept_[block->second].push_back(memory);
  in_use_.erase(block);
}

std::size_t MemoryPool::trim() {
  if (use().kept_bytes == 0) return 0;
  if (source_.wait_for_release) source_.wait_for_release();
  return return_kept();
}

std::size_t MemoryPool::return_kept() {
  std::map<std::size_t, std::vector<void*>> kept;
  {
    const std::lock_guard guard(mutex_);
    kept.swap(kept_);
  }
  std::size_t bytes = 0;
  for (const auto& [block, memories] : kept) {
    for (void* const memory : memories) source_.release(memory);
    bytes += block * memories.size();
  }
  return bytes;
}

MemoryPool::Use MemoryPool::use() const {
  const std::lock_guard guard(mutex_);
  Use use;
  for (const auto& [memory, block] : in_use_) use.in_use_bytes += block;
  for (const auto& [block, memories] : kept_) use.kept_bytes += block * memories.size();
  return use;
}

}  // namespace farandole::cuda
