// SPDX-License-Identifier: Apache-2.0
#include "fake_memory.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>
#include <shared_mutex>

#include "fake_faults.h"
#include "fake_host_faults.h"

// NOLINTBEGIN(performance-no-int-to-ptr): CUDA's driver has addresses as numbers
namespace farandole::fake {

namespace {

constexpr std::size_t kPageBytes = 4096;
constexpr std::size_t kAlignment = 256;  // as CUDA's
// Maximum number of bytes that are filled, from the start, because filling must not commit all pages of large arenas.
constexpr std::size_t kMaxFilledBytes = std::size_t{64} << 20;
constexpr int kFreshByte = 0xff;
constexpr int kFreedByte = 0xfe;

struct AllocationMap {
  // Guards the map. Calls that enqueue lock it shared, so that it does not order them.
  std::shared_mutex mutex;
  std::map<std::uintptr_t, Allocation*> by_begin;
};

AllocationMap& allocation_map() {
  static auto* const map = new AllocationMap;  // streams use allocations until the process ends
  return *map;
}

std::size_t round_up(std::size_t bytes, std::size_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

void fill(const Allocation& allocation, int byte) {
  std::memset(reinterpret_cast<void*>(allocation.stream_begin), byte, std::min(allocation.bytes, kMaxFilledBytes));
}

// Makes the pages inaccessible for ever; the process maps nothing else at these addresses.
void forbid(std::uintptr_t first, std::size_t bytes) {
  (void)mmap(reinterpret_cast<void*>(first), bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED,
             -1, 0);
}

}  // namespace

std::string text_of(const Allocation& allocation) {
  return fmt::format("{} {} ({} bytes at {:#x})",
                     allocation.kind == Allocation::Kind::kDevice ? "memory of device" : "pinned memory of device",
                     allocation.device, allocation.bytes, allocation.begin);
}

Allocation* allocate(Allocation::Kind kind, int device, std::size_t bytes) {
  // The memory ends where an inaccessible page begins. Before the pages of device memory lie as many inaccessible
  // pages, whose addresses the program gets.
  const std::size_t body = round_up(bytes, kPageBytes);
  const std::size_t distance = kind == Allocation::Kind::kDevice ? body + kPageBytes : 0;
  void* const reserved =
      mmap(nullptr, distance + body + kPageBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (reserved == MAP_FAILED) return nullptr;
  if (mprotect(static_cast<char*>(reserved) + distance, body, PROT_READ | PROT_WRITE) != 0) {
    munmap(reserved, distance + body + kPageBytes);
    return nullptr;
  }
  const std::uintptr_t begin = reinterpret_cast<std::uintptr_t>(reserved) + body - round_up(bytes, kAlignment);
  auto* const allocation = new Allocation(kind, device, begin, begin + distance, bytes);
  fill(*allocation, kFreshByte);
  if (kind == Allocation::Kind::kDevice) explain_faults_in(*allocation);
  const std::unique_lock guard(allocation_map().mutex);
  allocation_map().by_begin[allocation->begin] = allocation;
  return allocation;
}

Allocation* find_allocation(const void* address) {
  const auto wanted = reinterpret_cast<std::uintptr_t>(address);
  const std::shared_lock guard(allocation_map().mutex);
  auto next = allocation_map().by_begin.upper_bound(wanted);
  if (next == allocation_map().by_begin.begin()) return nullptr;
  Allocation* const found = std::prev(next)->second;
  return wanted < found->begin + found->bytes ? found : nullptr;
}

std::uintptr_t stream_address(std::uintptr_t address) {
  const Allocation* const found = find_allocation(reinterpret_cast<const void*>(address));
  return found == nullptr ? address : address - found->begin + found->stream_begin;
}

Allocation* find_to_free(const char* call, Allocation::Kind kind, const void* memory) {
  Allocation* const found = find_allocation(memory);
  if (found == nullptr || found->kind != kind || found->begin != reinterpret_cast<std::uintptr_t>(memory)) {
    misuse("{} of {}, which no call of this kind has allocated", call, fmt::ptr(memory));
    return nullptr;
  }
  if (found->is_freed.load(std::memory_order_relaxed)) {
    misuse("{} of {}, which was freed before", call, text_of(*found));
    return nullptr;
  }
  return found;
}

void release(const char* call, Allocation& allocation) {
  const std::int64_t pending = allocation.pending.load(std::memory_order_relaxed);
  if (pending > 0) {
    misuse("{} of {}, which {} items of streams still use; wait for them first", call, text_of(allocation), pending);
  } else {
    fill(allocation, kFreedByte);  // also shows the thread sanitizer a write, which races with what is not waited for
  }
  allocation.is_freed.store(true, std::memory_order_relaxed);
  const std::uintptr_t first = allocation.stream_begin / kPageBytes * kPageBytes;
  if (pending == 0) forbid(first, round_up(allocation.stream_begin + allocation.bytes - first, kPageBytes));
}

bool Uses::add(const char* call, int device, Reach reach, const Access& access) {
  if (access.bytes == 0) return true;
  Allocation* const found = find_allocation(access.begin);
  if (found == nullptr) {
    if (reach == Reach::kAnywhere && access.begin != nullptr) {
      has_pageable_ = true;
      return true;
    }
    misuse("{} on device {}: the {}, at {}, is no memory of a device", call, device, access.name,
           fmt::ptr(access.begin));
    return false;
  }
  const std::size_t offset = reinterpret_cast<std::uintptr_t>(access.begin) - found->begin;
  if (found->is_freed.load(std::memory_order_relaxed)) {
    misuse("{} on device {}: the {} is in {}, which was freed", call, device, access.name, text_of(*found));
    return false;
  }
  if (access.bytes > found->bytes - offset) {
    misuse("{} on device {}: the {} goes from byte {} to {} of {}", call, device, access.name, offset,
           offset + access.bytes, text_of(*found));
    return false;
  }
  const bool is_device = found->kind == Allocation::Kind::kDevice;
  if (reach == Reach::kDevice && is_device && found->device != device) {
    misuse("{} on device {}: the {} is in {}", call, device, access.name, text_of(*found));
    return false;
  }
  has_device_ = has_device_ || is_device;
  if (std::find(allocations_.begin(), allocations_.end(), found) == allocations_.end()) allocations_.push_back(found);
  return true;
}

void Uses::begin() const {
  for (Allocation* const allocation : allocations_) allocation->pending.fetch_add(1, std::memory_order_relaxed);
}

void Uses::finish() const {
  for (Allocation* const allocation : allocations_) allocation->pending.fetch_sub(1, std::memory_order_relaxed);
}

const Allocation* Uses::freed() const {
  const auto found = std::find_if(allocations_.begin(), allocations_.end(), [](const Allocation* allocation) {
    return allocation->is_freed.load(std::memory_order_relaxed);
  });
  return found == allocations_.end() ? nullptr : *found;
}

std::string first_conflict(const std::vector<PartAccess>& accesses) {
  for (std::size_t i = 0; i < accesses.size(); ++i) {
    const Access& one = accesses[i].access;
    for (std::size_t j = 0; j < accesses.size(); ++j) {
      const Access& other = accesses[j].access;
      if (i == j || !one.is_write || one.bytes == 0 || other.bytes == 0) continue;
      const auto* const one_begin = static_cast<const char*>(one.begin);
      const auto* const other_begin = static_cast<const char*>(other.begin);
      if (one_begin >= other_begin + other.bytes || other_begin >= one_begin + one.bytes) continue;
      if (accesses[i].part == accesses[j].part && one_begin == other_begin && one.bytes == other.bytes) continue;
      return fmt::format("the {} of part {} overlaps the {} of part {}", one.name, accesses[i].part, other.name,
                         accesses[j].part);
    }
  }
  return {};
}

}  // namespace farandole::fake
// NOLINTEND(performance-no-int-to-ptr)
