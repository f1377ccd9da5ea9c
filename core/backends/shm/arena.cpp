// SPDX-License-Identifier: Apache-2.0
#include "shm/arena.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#include "farandole/core/error.h"
#include "farandole/internal/forked_children.h"
#include "farandole/internal/memory_file.h"

namespace farandole {
namespace {

constexpr const char* kName = "farandole-windows";
constexpr std::uint64_t kPageBytes = 4096;
constexpr std::uint64_t kLineBytes = 128;         // alignment of smaller allocations: writers share no line
constexpr std::uint64_t kLargeBytes = 256 << 10;  // allocations from this size on go back to the system when released
constexpr const char* kAdvice =
    "start the ranks of a host as one user, in one container or with a common process name space";
constexpr std::uint64_t kGrowthBytes = 1ULL << 20;  // the file grows by multiples of this

std::uint64_t rounded_up(std::uint64_t bytes, std::uint64_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

std::uint64_t granularity(std::uint64_t bytes) {
  return bytes >= kLargeBytes ? kPageBytes : kLineBytes;
}

std::uint64_t rounded(std::uint64_t bytes) {
  return rounded_up(std::max<std::uint64_t>(bytes, 1), granularity(bytes));
}

void become_private_in_child(Arena& arena) {
  arena.become_private();
}
using ArenasInChildren = ForkedChildren<Arena, become_private_in_child>;

std::string reason(int error) {
  return std::generic_category().message(error);
}

/// True if the memory file has this nonce. The pid of a claim does not suffice: in another pid namespace the same
/// number means a different process.
bool has_nonce(int descriptor, const ArenaHeader::Nonce& nonce) {
  ArenaHeader::Nonce found{};
  return pread(descriptor, found.data(), sizeof found, offsetof(ArenaHeader, nonce)) ==
             static_cast<ssize_t>(sizeof found) &&
         found == nonce;
}

void* map_pages(int descriptor, std::size_t bytes) {
  // Ordinary memory is mapped inaccessible, and made accessible as the arena grows: with strict commit
  // (vm.overcommit_memory=2) the kernel reserves memory only for accessible pages.
  if (descriptor < 0) return mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, descriptor, 0);
}

/// Maps an arena, excluded from core dumps: a dump would make every page of the sparse file real.
std::byte* map_arena_bytes(int descriptor, std::size_t bytes) {
  void* memory = map_pages(descriptor, bytes);
  if (memory == MAP_FAILED) return nullptr;
  (void)madvise(memory, bytes, MADV_DONTDUMP);
  return static_cast<std::byte*>(memory);
}

}  // namespace

Arena::Arena(const ArenaPlan& plan) : plan_(plan), extents_(0, 0) {
  if (plan_.is_file) open_file();
  size_ = plan_.arena_bytes;
  // Free address space may be fragmented, or locked memory limited: half as much may still succeed.
  while (!map() && size_ / 2 >= kSmallestArena) size_ = size_ / 2 / kPageBytes * kPageBytes;
  if (base_ == nullptr) {
    const std::string why = reason(errno);
    if (descriptor_ >= 0) close(descriptor_);
    throw InvalidArgument(
        fmt::format("{} bytes of address space for the memory of a rank cannot be had ({}); raise the limits on "
                    "address space (ulimit -v) and locked memory (ulimit -l)",
                    size_, why));
  }
  extents_ = Extents(rounded_up(sizeof(ArenaHeader), kPageBytes), size_);
  ArenasInChildren::add(this);
}

Arena::~Arena() {
  ArenasInChildren::remove(this);
  if (size_ > 0) munmap(base_, size_);
  if (descriptor_ >= 0) close(descriptor_);
}

/// Creates the memory file. On failure `descriptor_` stays -1, and `problem_` says why.
void Arena::open_file() {
  if (plan_.arena_bytes < kSmallestArena) {
    problem_ = fmt::format("{} leaves {} bytes for it, and {} are needed; raise it", plan_.arena_owner,
                           plan_.arena_bytes, kSmallestArena);
    return;
  }
  descriptor_ = create_memory_file(kName);
  if (descriptor_ < 0) {
    problem_ = fmt::format("memfd_create: {}; let the rules of the sandbox or container allow it", reason(errno));
  }
}

/// Maps `size_` bytes, and makes the header usable. Returns false with errno on failure.
bool Arena::map() {
  base_ = map_arena_bytes(descriptor_, size_);
  if (base_ == nullptr) return false;
  // A header of zero bytes is a valid new header. Constructing it would touch all of its pages.
  if (make_usable(0, rounded_up(sizeof(ArenaHeader), kPageBytes))) {
    if (descriptor_ >= 0) {
      (void)fcntl(descriptor_, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_SEAL);
      (void)!getrandom(header().nonce.data(), sizeof header().nonce, 0);
    }
    return true;
  }
  const int error = errno;
  munmap(std::exchange(base_, nullptr), size_);
  errno = error;
  return false;
}

/// Makes [offset, offset + bytes) memory that can be written without a signal (SIGBUS), as far as the system can
/// promise that. Returns false with errno on failure.
bool Arena::make_usable(std::uint64_t offset, std::uint64_t bytes) {
  if (offset + bytes > end_.load(std::memory_order_relaxed) && !grow(offset + bytes)) return false;
  if (descriptor_ < 0 || !plan_.commits_strictly) return true;
  // The system provides pages of a file when they are touched, and raises SIGBUS if it has none. Reserve them now.
  return fallocate(descriptor_, 0, static_cast<off_t>(offset), static_cast<off_t>(bytes)) == 0;
}

/// Makes [0, end) memory, up to the next multiple of kGrowthBytes. Returns false with errno on failure.
bool Arena::grow(std::uint64_t end) {
  const std::uint64_t wanted = std::min<std::uint64_t>(rounded_up(end, kGrowthBytes), size_);
  const std::uint64_t former = end_.load(std::memory_order_relaxed);
  if (descriptor_ < 0) {
    if (mprotect(base_ + former, wanted - former, PROT_READ | PROT_WRITE) != 0) return false;
  } else {
    rlimit limit{};
    // The kernel sends SIGXFSZ to a process that exceeds this limit.
    if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur < wanted) {
      errno = EFBIG;
      return false;
    }
    if (ftruncate(descriptor_, static_cast<off_t>(wanted)) != 0) return false;
  }
  end_.store(wanted, std::memory_order_relaxed);
  return true;
}

std::uint64_t Arena::allocate(std::size_t bytes, std::uint64_t in_use_elsewhere) {
  if (is_in_child_) {
    throw InvalidArgument(
        "memory that ranks share cannot be allocated in a process that was forked from a rank: it is no rank itself");
  }
  const std::lock_guard lock(mutex_);
  const std::uint64_t own = header().allocated_bytes.load(std::memory_order_relaxed);
  std::optional<std::uint64_t> offset;
  if (bytes <= plan_.windows_bytes && own + in_use_elsewhere <= plan_.windows_bytes - bytes) {
    offset = extents_.take(rounded(bytes), granularity(bytes));
  }
  if (!offset) throw_does_not_fit(bytes, own + in_use_elsewhere);
  if (!make_usable(*offset, rounded(bytes))) {
    const int error = errno;
    extents_.give_back(*offset, rounded(bytes));
    throw InvalidArgument(fmt::format(
        "a window of {} bytes does not fit: the system refuses more memory than the {} bytes that the ranks "
        "of this host hold in windows ({}); release some, or use ordinary memory",
        bytes, own + in_use_elsewhere, reason(error)));
  }
  header().allocated_bytes.store(own + rounded(bytes), std::memory_order_relaxed);
  return *offset;
}

void Arena::throw_does_not_fit(std::size_t bytes, std::uint64_t in_use) const {
  const bool is_address_space = bytes <= plan_.windows_bytes && in_use <= plan_.windows_bytes - bytes;
  const std::string limit =
      !is_address_space ? fmt::format("the limit is {} bytes ({})", plan_.windows_bytes, plan_.windows_owner)
                        : fmt::format("{} leaves {} bytes of address space for those of this process",
                                      plan_.arena_owner.empty() ? "what is mapped already" : plan_.arena_owner, size_);
  throw InvalidArgument(
      fmt::format("a window of {} bytes does not fit: the ranks of this host hold windows of {} bytes, and {}; release "
                  "some, use ordinary memory, or raise that limit",
                  bytes, in_use, limit));
}

void Arena::release(std::uint64_t offset, std::size_t bytes) {
  if (is_in_child_) return;
  const std::uint64_t length = rounded(bytes);
  const std::lock_guard lock(mutex_);
  if (quarantined_) return;
  if (length < kLargeBytes || !discard_pages(offset, length)) std::memset(base_ + offset, 0, length);
  extents_.give_back(offset, length);
  header().allocated_bytes.fetch_sub(length, std::memory_order_relaxed);
}

/// Returns whole pages to the system; they read as zeros afterwards. Returns false if the system refuses.
bool Arena::discard_pages(std::uint64_t offset, std::uint64_t bytes) const {
  if (descriptor_ < 0) return madvise(base_ + offset, bytes, MADV_DONTNEED) == 0;
  return fallocate(descriptor_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset),
                   static_cast<off_t>(bytes)) == 0;
}

void Arena::quarantine() {
  const std::lock_guard lock(mutex_);
  quarantined_ = true;
}

// The file remains the parent's memory. The child maps private copies of the file's pages, and closes the file. Memory
// that the parent adds later does not exist in the child.
void Arena::become_private() {
  is_in_child_ = true;
  if (descriptor_ < 0) return;
  const std::uint64_t end = end_.load(std::memory_order_relaxed);
  const auto remap = [&](int protection) {
    return mmap(base_, end, protection, MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE, descriptor_, 0) != MAP_FAILED;
  };
  // With strict commit the kernel may refuse memory for pages that the child might write; a read-only mapping reserves
  // none.
  const bool is_mapped = remap(PROT_READ | PROT_WRITE) || remap(PROT_READ);
  const std::uint64_t kept = is_mapped ? end : 0;
  munmap(base_ + kept, size_ - kept);
  size_ = kept;
  if (is_mapped) (void)madvise(base_, kept, MADV_DONTDUMP);
  close(std::exchange(descriptor_, -1));
}

std::byte* map_arena(const SharedMemory::Claim& claim, std::string& error) {
  const std::string path = fmt::format("/proc/{}/fd/{}", claim.pid, claim.descriptor);
  std::array<char, 64> target{};
  const ssize_t length = readlink(path.c_str(), target.data(), target.size());
  const std::string_view name(target.data(), static_cast<std::size_t>(std::max<ssize_t>(length, 0)));
  if (name.substr(0, name.find(' ')) != fmt::format("/memfd:{}", kName)) {
    const std::string why = length < 0 ? reason(errno) : fmt::format("is {}", name);
    const bool has_proc = access("/proc/self/fd", X_OK) == 0;
    error = fmt::format("{}: {}; {}", path, why, has_proc ? kAdvice : "mount /proc");
    return nullptr;
  }
  const int descriptor = open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (descriptor < 0) {
    error = fmt::format("{}: {}; {}", path, reason(errno), kAdvice);
    return nullptr;
  }
  std::byte* base = nullptr;
  if (!has_nonce(descriptor, claim.nonce)) {
    error = fmt::format("{}: is the memory of another process; {}", path, kAdvice);
  } else if (base = map_arena_bytes(descriptor, claim.bytes); base == nullptr) {
    error = fmt::format("mapping {} bytes: {}", claim.bytes, reason(errno));
  } else {
    // A forked child is not a rank, and must not touch the memory of peers: do not map their arenas in the child.
    (void)madvise(base, claim.bytes, MADV_DONTFORK);
  }
  close(descriptor);
  return base;
}

}  // namespace farandole
