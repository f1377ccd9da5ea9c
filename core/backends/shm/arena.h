// One process's shared memory: a sparse memory file, mapped as a whole.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>

#include "farandole/core/host_memory.h"
#include "shm/extents.h"

namespace farandole {

/// The memory file stays open as long as the arena lives, so that peers can find it. Thread-safe.
class Arena {
 public:
  Arena();
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  std::byte* base() const { return base_; }
  std::size_t size() const { return size_; }
  int descriptor() const { return descriptor_; }

  /// @param in_use_elsewhere  bytes that other processes of this host have allocated
  std::uint64_t allocate(std::size_t bytes, std::uint64_t in_use_elsewhere);
  void release(std::uint64_t offset, std::size_t bytes);
  void quarantine();

 private:
  ArenaHeader& header() const { return *reinterpret_cast<ArenaHeader*>(base_); }

  int descriptor_ = -1;  // -1: ordinary memory, for this process only
  std::size_t size_ = 0;
  std::byte* base_ = nullptr;
  std::mutex mutex_;  // guards what follows
  Extents extents_;
  bool quarantined_ = false;
};

/// The memory file of another process, mapped, or null with the reason in `error`.
std::byte* map_arena(const HostMemory::Claim& claim, std::string& error);

}  // namespace farandole
