// SPDX-License-Identifier: Apache-2.0
// One process's shared memory: a sparse memory file that grows under a mapping of fixed size.
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

/// Address space of `plan.arena_bytes` bytes, of which only the part up to the last allocation is memory. The memory
/// file, if the plan wants one, stays open as long as the arena lives, so that peers can find it; it can not shrink, so
/// that no peer finds memory gone under its mapping. Core dumps leave arenas out. Thread-safe.
///
/// In a forked child the arena is private memory at the same address, from which nothing can be allocated: the file is
/// the parent's.
class Arena {
 public:
  /// Where no memory file can be had the arena is ordinary memory, and `problem` says why.
  /// @throws InvalidArgument  there is not even address space for the smallest arena
  explicit Arena(const ArenaPlan& plan);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  std::byte* base() const { return base_; }
  std::size_t size() const { return size_; }
  int descriptor() const { return descriptor_; }  ///< -1: ordinary memory, for this process only
  const std::string& problem() const { return problem_; }

  /// @param in_use_elsewhere  bytes that other processes of this host have allocated
  /// @throws InvalidArgument  a limit is in the way, which the message names; or this is a forked child
  std::uint64_t allocate(std::size_t bytes, std::uint64_t in_use_elsewhere);
  void release(std::uint64_t offset, std::size_t bytes);
  void quarantine();

  /// In a forked child, which has one thread.
  void become_private();

 private:
  ArenaHeader& header() const { return *reinterpret_cast<ArenaHeader*>(base_); }
  void open_file();
  bool map();
  bool make_usable(std::uint64_t offset, std::uint64_t bytes);
  bool grow(std::uint64_t end);
  bool empty(std::uint64_t offset, std::uint64_t bytes) const;
  [[noreturn]] void refuse(std::size_t bytes, std::uint64_t in_use) const;

  const ArenaPlan plan_;
  int descriptor_ = -1;
  std::string problem_;
  std::size_t size_ = 0;
  std::byte* base_ = nullptr;
  bool is_in_child_ = false;           // written in a forked child only, while it has one thread
  std::atomic<std::uint64_t> end_{0};  // of what is memory; written under the mutex, and read in a forked child
  std::mutex mutex_;                   // guards what follows
  Extents extents_;
  bool quarantined_ = false;
};

/// The memory file of another process, mapped, or null with the reason in `error`.
std::byte* map_arena(const SharedMemory::Claim& claim, std::string& error);

}  // namespace farandole
