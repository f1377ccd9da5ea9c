// SPDX-License-Identifier: Apache-2.0
// The shared memory of one process: a sparse memory file that grows under a mapping of fixed size.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>

#include "farandole/internal/limits.h"
#include "farandole/internal/shared_memory.h"
#include "shm/extents.h"

namespace farandole {

/// The memory of this process that all processes of its host can map. Windows, the ranks' control blocks for
/// collectives, and staging memory are allocated from the arena.
///
/// How it works:
/// - The arena reserves `plan.arena_bytes` of address space once (half as much, and so on, if that much is not free),
///   so that offsets and addresses stay valid. Only the part up to the highest allocation so far is backed by memory;
///   this part grows on demand.
/// - The memory is a file without a name (memfd). Peers open it as /proc/<pid>/fd/<descriptor> (`map_arena`), and map
///   the same number of bytes. The kernel frees the file when the last process that has it open or mapped ends, even if
///   that process is killed.
/// - The file stays open as long as the arena lives, so that peers can find it. It is sealed against shrinking, so that
///   no peer loses memory under its mapping.
/// - Core dumps leave arenas out.
///
/// Windows are allocations that programs get from `Communicator::allocate`. Ranks name a buffer in a window by its
/// offset in the owner's arena, so every rank of the host can read and write it in place (PeerBuffers).
///
/// In a forked child the arena is private memory at the same address, and `allocate` throws: the file is the parent's.
/// Thread-safe.
class Arena {
 public:
  /// Maps the arena. If the plan wants a memory file and the system cannot create the file, the arena is ordinary
  /// memory, and `problem` says why.
  /// @throws InvalidArgument  there is not enough address space even for kSmallestArena
  explicit Arena(const ArenaPlan& plan);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  std::byte* base() const { return base_; }
  std::size_t size() const { return size_; }
  /// The memory file; -1 if the arena is ordinary memory, for this process only.
  int descriptor() const { return descriptor_; }
  const std::string& problem() const { return problem_; }

  /// Allocates `bytes` zeroed bytes, and returns their offset.
  /// @param in_use_elsewhere  bytes that other processes of this host have allocated
  /// @throws InvalidArgument  a limit is exceeded, which the message names; or this is a forked child
  std::uint64_t allocate(std::size_t bytes, std::uint64_t in_use_elsewhere);
  /// Frees and zeroes an allocation. No-op after `quarantine`, and in a forked child.
  void release(std::uint64_t offset, std::size_t bytes);
  /// From now on, released memory is not allocated again: after a fault a stopped peer may still write to it.
  void quarantine();

  /// Replaces the shared mapping by private copies. Called in a forked child, while it has one thread.
  void become_private();

 private:
  ArenaHeader& header() const { return *reinterpret_cast<ArenaHeader*>(base_); }
  void open_file();
  bool map();
  bool make_usable(std::uint64_t offset, std::uint64_t bytes);
  bool grow(std::uint64_t end);
  bool discard_pages(std::uint64_t offset, std::uint64_t bytes) const;
  [[noreturn]] void throw_does_not_fit(std::size_t bytes, std::uint64_t in_use) const;

  const ArenaPlan plan_;
  int descriptor_ = -1;
  std::string problem_;
  std::size_t size_ = 0;
  std::byte* base_ = nullptr;
  bool is_in_child_ = false;           // written in a forked child only, while it has one thread
  std::atomic<std::uint64_t> end_{0};  // [0, end_) is memory; written under the mutex, and read in a forked child
  std::mutex mutex_;                   // guards the members below
  Extents extents_;
  bool quarantined_ = false;
};

/// Maps the arena of another process of this host. Returns null, with the reason in `error`, if the file of the claim
/// cannot be opened or mapped, or belongs to another process.
std::byte* map_arena(const SharedMemory::Claim& claim, std::string& error);

}  // namespace farandole
