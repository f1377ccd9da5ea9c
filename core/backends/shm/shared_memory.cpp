// SPDX-License-Identifier: Apache-2.0
#include "farandole/internal/shared_memory.h"

#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <limits>
#include <utility>

#include "farandole/core/error.h"
#include "shm/arena.h"

namespace farandole {
namespace {

/// Copies from the memory of another process by process_vm_readv. @returns  bytes copied, or -1 with errno
ssize_t read_memory(std::int32_t pid, std::uint64_t address, void* to, std::size_t bytes) {
  const iovec local{to, bytes};
  const iovec remote{reinterpret_cast<void*>(address), bytes};  // NOLINT(performance-no-int-to-ptr)
  return process_vm_readv(pid, &local, 1, &remote, 1, 0);
}

/// True if the kernel lets this process read the memory of the process that made the claim.
bool can_read(const SharedMemory::Claim& claim) {
  std::uint64_t word = 0;
  return read_memory(claim.pid, claim.address, &word, sizeof word) == static_cast<ssize_t>(sizeof word);
}

}  // namespace

SharedMemory::SharedMemory(int processes, int process, const Options& options)
    : process_(process),
      plan_(plan_arena(process_limits(), options.sharing, options.windows_bytes)),
      arena_(std::make_shared<Arena>(plan_)),
      bases_(static_cast<std::size_t>(processes), nullptr),
      sizes_(static_cast<std::size_t>(processes), 0),
      pids_(static_cast<std::size_t>(processes), 0) {
  bases_[static_cast<std::size_t>(process)] = arena_->base();
  pids_[static_cast<std::size_t>(process)] = getpid();
  // A sandbox may kill a process for process_vm_readv, so try it only if copies are wanted.
  can_copy_ = options.copies && options.sharing > 1 && can_read(claim());
}

SharedMemory::~SharedMemory() {
  unmap_peers();
}

SharedMemory::Claim SharedMemory::claim() const {
  return {getpid(), arena_->descriptor(), arena_->size(), reinterpret_cast<std::uintptr_t>(arena_->base()),
          header().nonce};
}

const std::string& SharedMemory::problem() const {
  return arena_->problem();
}

std::string SharedMemory::map(int process, const Claim& claim) {
  if (claim.descriptor < 0) {
    return "a process of this host has no memory that can be shared: it says why itself, or has set "
           "FARANDOLE_SHARED_MEMORY=off, which must be the same for all";
  }
  std::string error;
  bases_[static_cast<std::size_t>(process)] = map_arena(claim, error);
  sizes_[static_cast<std::size_t>(process)] = claim.bytes;
  pids_[static_cast<std::size_t>(process)] = claim.pid;
  can_copy_ = can_copy_ && can_read(claim);
  return error;
}

int SharedMemory::copy_from(int process, std::uint64_t address, void* to, std::size_t bytes) const {
  auto* next = static_cast<std::byte*>(to);
  for (std::size_t left = bytes; left > 0;) {
    const ssize_t copied = read_memory(pids_[static_cast<std::size_t>(process)], address, next, left);
    if (copied <= 0) return copied < 0 ? errno : EFAULT;
    address += static_cast<std::uint64_t>(copied);
    next += copied;
    left -= static_cast<std::size_t>(copied);
  }
  return 0;
}

void SharedMemory::unmap_peers() {
  for (std::size_t p = 0; p < bases_.size(); ++p) {
    if (static_cast<int>(p) == process_ || bases_[p] == nullptr) continue;
    munmap(bases_[p], sizes_[p]);
    bases_[p] = nullptr;
  }
}

std::optional<std::uint64_t> SharedMemory::offset_of(const void* data, std::size_t bytes) const {
  const auto base = reinterpret_cast<std::uintptr_t>(arena_->base());
  const auto address = reinterpret_cast<std::uintptr_t>(data);
  if (address < base || address - base > arena_->size() || bytes > arena_->size() - (address - base)) {
    return std::nullopt;
  }
  return address - base;
}

std::uint64_t SharedMemory::allocate(std::size_t bytes) {
  collect_retired();
  std::uint64_t elsewhere = 0;
  for (std::size_t p = 0; p < bases_.size(); ++p) {
    if (static_cast<int>(p) == process_ || bases_[p] == nullptr) continue;
    elsewhere += header(static_cast<int>(p)).allocated_bytes.load(std::memory_order_relaxed);
  }
  return arena_->allocate(bytes, elsewhere);
}

void SharedMemory::retire(std::uint64_t offset, std::size_t bytes, std::function<bool()> is_unused) {
  const std::lock_guard lock(retired_mutex_);
  retired_.push_back({offset, bytes, std::move(is_unused)});
}

void SharedMemory::collect_retired() {
  const std::lock_guard lock(retired_mutex_);
  std::erase_if(retired_, [this](const Retired& entry) {
    if (!entry.is_unused()) return false;
    arena_->release(entry.offset, entry.bytes);
    return true;
  });
}

void SharedMemory::release(std::uint64_t offset, std::size_t bytes) {
  arena_->release(offset, bytes);
}

Buffer SharedMemory::allocate(std::size_t count, DType dtype) {
  const std::size_t element_bytes = size_in_bytes(dtype);
  if (count > std::numeric_limits<std::size_t>::max() / 2 / element_bytes) {
    throw InvalidArgument("a window of so many elements does not fit in the address space");
  }
  if (count == 0) return Buffer(0, dtype);
  const std::size_t bytes = count * element_bytes;
  const std::uint64_t offset = allocate(bytes);
  return Buffer(arena_->base() + offset, count, dtype,
                [arena = arena_, offset, bytes](void*) { arena->release(offset, bytes); });
}

void SharedMemory::quarantine() {
  arena_->quarantine();
}

}  // namespace farandole
