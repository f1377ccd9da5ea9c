// Memory that the processes of a host share.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "farandole/core/buffer.h"
#include "farandole/core/transport.h"
#include "farandole/core/waiter.h"

namespace farandole {

class Arena;

/// The start of every arena: what ranks of other processes must find without asking.
struct ArenaHeader {
  /// One per rank of the process.
  struct alignas(128) Seat {
    Doorbell doorbell;
  };
  std::atomic<std::uint64_t> allocated_bytes;  ///< written by the owner; summed by whoever allocates
  alignas(128) Doorbell progress;              ///< of the process's progress thread
  std::array<Seat, kMaxReplicas> seats;
  /// Where each rank's control block of a communicator lies in this arena; 0: nowhere yet.
  using Blocks = std::array<std::atomic<std::uint64_t>, kMaxCommunicators>;
  std::array<Blocks, kMaxReplicas> blocks;
};

/// This process's arena, and those of the other processes of its host as far as they are mapped.
///
/// An arena is one sparse memory file without a name: nothing of it stays behind when its process ends, however that
/// happens, and /dev/shm neither holds nor bounds it. Peers open it through /proc. In a forked child it becomes private
/// memory at the same address: with the same contents, until the parent writes or releases it. Thread-safe.
class HostMemory {
 public:
  /// What a peer needs to open the arena of a process.
  struct Claim {
    std::int32_t pid = 0;
    std::int32_t descriptor = -1;  ///< -1: the memory can not be shared
    std::uint64_t bytes = 0;
    std::uint64_t address = 0;  ///< in its process
  };
  /// @param processes  of the job; @param process  this one
  HostMemory(int processes, int process);
  ~HostMemory();
  HostMemory(const HostMemory&) = delete;
  HostMemory& operator=(const HostMemory&) = delete;

  Claim claim() const;
  /// Maps the arena of another process of this host. Returns why it can not, or nothing.
  std::string map(int process, const Claim& claim);
  /// Lets go of the other processes' arenas: this host falls back to messages.
  void unmap_peers();

  /// Whether the kernel lets this process read ordinary memory of itself and of all others that it has mapped. It does
  /// where a debugger could: not between users, and not where a Linux security module or a sandbox forbids it.
  bool can_copy() const { return can_copy_; }
  /// Another process of this host can not.
  void forbid_copies() { can_copy_ = false; }
  /// Copies `bytes` bytes at `address` of a mapped process to `to`. Returns 0 or an errno: ESRCH if that process has
  /// ended, EFAULT if it has no such memory.
  int copy_from(int process, std::uint64_t address, void* to, std::size_t bytes) const;

  bool is_mapped(int process) const { return bases_[static_cast<std::size_t>(process)] != nullptr; }
  /// Address of `offset` in the arena of a mapped process.
  std::byte* at(int process, std::uint64_t offset) const { return bases_[static_cast<std::size_t>(process)] + offset; }
  ArenaHeader& header(int process) const { return *reinterpret_cast<ArenaHeader*>(at(process, 0)); }
  ArenaHeader& header() const { return header(process_); }

  /// Where `bytes` bytes at `data` lie in this process's arena, if they do.
  std::optional<std::uint64_t> offset_of(const void* data, std::size_t bytes) const;
  /// `bytes` zeroed bytes of this process's arena. @throws InvalidArgument  the windows of this host would outgrow the
  /// machine
  std::uint64_t allocate(std::size_t bytes);
  void release(std::uint64_t offset, std::size_t bytes);
  /// Releases memory that others may still use, once `is_unused`; looked at in later allocations.
  void retire(std::uint64_t offset, std::size_t bytes, std::function<bool()> is_unused);
  /// A buffer in this process's arena: a window. Its memory outlives this object if need be.
  Buffer allocate(std::size_t count, DType dtype);
  /// After a fault: memory that is released is not given out again, because a peer that was stopped may still write it.
  void quarantine();

 private:
  void collect_retired();

  const int process_;
  const std::shared_ptr<Arena> arena_;
  std::vector<std::byte*> bases_;  // by process; const once the job has been joined
  std::vector<std::size_t> sizes_;
  std::vector<std::int32_t> pids_;
  bool can_copy_ = false;  // const once the job has been joined
  struct Retired {
    std::uint64_t offset;
    std::size_t bytes;
    std::function<bool()> is_unused;
  };
  std::mutex retired_mutex_;  // guards retired_
  std::vector<Retired> retired_;
};

/// Memory that all ranks of a host may use: of the machine, or of the control group if that is less.
std::uint64_t usable_memory_bytes();

}  // namespace farandole
