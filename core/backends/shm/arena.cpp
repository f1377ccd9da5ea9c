#include "shm/arena.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <new>
#include <string_view>
#include <vector>

#include "farandole/core/error.h"
#include "farandole/core/forked_children.h"
#include "farandole/core/log.h"

namespace farandole {
namespace {

constexpr const char* kName = "farandole-windows";
constexpr std::uint64_t kPageBytes = 4096;
constexpr std::uint64_t kLineBytes = 128;              // between memory of different writers
constexpr std::uint64_t kLargeBytes = 256 << 10;       // from here on, memory goes back to the system when released
constexpr std::uint64_t kLargestArena = 1ULL << 40;    // address space, not memory
constexpr std::uint64_t kSmallestArena = 64ULL << 20;  // less is not worth having

std::uint64_t rounded(std::uint64_t bytes) {
  const std::uint64_t unit = bytes >= kLargeBytes ? kPageBytes : kLineBytes;
  return (std::max<std::uint64_t>(bytes, 1) + unit - 1) / unit * unit;
}

/// In a child the file would still be the parent's memory. Private pages with the same contents take its place.
void privatize_in_child(Arena& arena) {
  if (arena.descriptor() < 0) return;
  (void)mmap(arena.base(), arena.size(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE,
             arena.descriptor(), 0);
}
using ArenasInChildren = ForkedChildren<Arena, privatize_in_child>;

std::byte* map_shared(int descriptor, std::size_t bytes) {
  const int flags = MAP_SHARED | MAP_NORESERVE | (descriptor < 0 ? MAP_ANONYMOUS : 0);
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, flags, descriptor, 0);
  return memory == MAP_FAILED ? nullptr : static_cast<std::byte*>(memory);
}

}  // namespace

std::uint64_t usable_memory_bytes() {
  const auto pages = static_cast<std::uint64_t>(std::max(sysconf(_SC_PHYS_PAGES), 1L));
  std::uint64_t bytes = pages * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  for (const char* file : {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"}) {
    std::uint64_t limit = 0;
    if (std::ifstream(file) >> limit) bytes = std::min(bytes, limit);
  }
  return bytes;
}

Arena::Arena() : extents_(0, 0) {
  descriptor_ = memfd_create(kName, MFD_CLOEXEC);
  // Twice the memory of the machine leaves room for holes. A limit on address space may allow less.
  size_ = std::min(kLargestArena, std::max(kSmallestArena, 2 * usable_memory_bytes() / kPageBytes * kPageBytes));
  for (; size_ >= kSmallestArena; size_ = size_ / 2 / kPageBytes * kPageBytes) {
    if (descriptor_ >= 0 && ftruncate(descriptor_, static_cast<off_t>(size_)) != 0) continue;
    base_ = map_shared(descriptor_, size_);
    if (base_ != nullptr) break;
  }
  if (base_ == nullptr) {
    if (descriptor_ >= 0) close(descriptor_);
    throw std::bad_alloc();
  }
  // A header of zero bytes is a new header; constructing it would touch all of it.
  extents_ = Extents((sizeof(ArenaHeader) + kPageBytes - 1) / kPageBytes * kPageBytes, size_);
  ArenasInChildren::add(this);
}

Arena::~Arena() {
  ArenasInChildren::remove(this);
  munmap(base_, size_);
  if (descriptor_ >= 0) close(descriptor_);
}

std::uint64_t Arena::allocate(std::size_t bytes, std::uint64_t in_use_elsewhere) {
  const std::lock_guard lock(mutex_);
  const std::uint64_t own = header().allocated_bytes.load(std::memory_order_relaxed);
  const std::uint64_t limit = usable_memory_bytes();
  std::optional<std::uint64_t> offset;
  if (bytes <= limit && own + in_use_elsewhere <= limit - bytes) {
    offset = extents_.take(rounded(bytes), bytes >= kLargeBytes ? kPageBytes : kLineBytes);
  }
  if (!offset) {
    throw InvalidArgument(fmt::format(
        "a window of {} bytes does not fit: the ranks of this host hold windows of {} bytes, and {} bytes is what the "
        "machine, or the control group, has; release some, or use ordinary memory",
        bytes, own + in_use_elsewhere, limit));
  }
  header().allocated_bytes.store(own + rounded(bytes), std::memory_order_relaxed);
  return *offset;
}

void Arena::release(std::uint64_t offset, std::size_t bytes) {
  const std::uint64_t length = rounded(bytes);
  const std::lock_guard lock(mutex_);
  if (quarantined_) return;
  const bool punched = descriptor_ >= 0 && length >= kLargeBytes &&
                       fallocate(descriptor_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset),
                                 static_cast<off_t>(length)) == 0;
  if (!punched) std::memset(base_ + offset, 0, length);
  extents_.give_back(offset, length);
  header().allocated_bytes.fetch_sub(length, std::memory_order_relaxed);
}

void Arena::quarantine() {
  const std::lock_guard lock(mutex_);
  quarantined_ = true;
}

std::byte* map_arena(const HostMemory::Claim& claim, std::string& error) {
  const std::string path = fmt::format("/proc/{}/fd/{}", claim.pid, claim.descriptor);
  std::array<char, 64> target{};
  const ssize_t length = readlink(path.c_str(), target.data(), target.size());
  const std::string_view name(target.data(), static_cast<std::size_t>(std::max<ssize_t>(length, 0)));
  if (name.substr(0, name.find(' ')) != fmt::format("/memfd:{}", kName)) {
    error = length < 0 ? fmt::format("{}: {}", path, std::strerror(errno)) : fmt::format("{} is {}", path, name);
    return nullptr;
  }
  const int descriptor = open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (descriptor < 0) {
    error = fmt::format("{}: {}", path, std::strerror(errno));
    return nullptr;
  }
  std::byte* base = map_shared(descriptor, claim.bytes);
  if (base == nullptr) error = fmt::format("mapping {} bytes: {}", claim.bytes, std::strerror(errno));
  close(descriptor);
  // A child is no rank: what it must not touch it does not see.
  if (base != nullptr) madvise(base, claim.bytes, MADV_DONTFORK);
  return base;
}

}  // namespace farandole
