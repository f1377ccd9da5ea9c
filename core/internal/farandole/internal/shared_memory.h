// SPDX-License-Identifier: Apache-2.0
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
#include "farandole/core/topology.h"
#include "farandole/internal/limits.h"
#include "farandole/internal/waiter.h"
#include "farandole/sdk/transport.h"

namespace farandole {

class Arena;

/// The start of every arena: what ranks of other processes must find without asking.
struct ArenaHeader {
  /// One per rank of the process.
  struct alignas(128) Slot {
    Doorbell doorbell;
  };
  using Nonce = std::array<std::uint64_t, 2>;
  Nonce nonce;                                 ///< tells this arena from all others; const once it is made
  std::atomic<std::uint64_t> allocated_bytes;  ///< written by the owner; summed by processes that allocate
  alignas(128) Doorbell progress;              ///< of the process's progress thread
  std::array<Slot, kMaxReplicas> slots;
  /// Where each rank's control block of a communicator lies in this arena; 0: nowhere yet.
  using Blocks = std::array<std::atomic<std::uint64_t>, kMaxCommunicators>;
  std::array<Blocks, kMaxReplicas> blocks;
};

/// This process's arena, and those of the other processes of its host as far as they are mapped.
///
/// An arena is one sparse memory file without a name: nothing of it stays behind when its process ends, however that
/// happens, and /dev/shm neither holds nor bounds it. Peers open it through /proc. A process that shares with no other
/// has ordinary memory instead. In a forked child an arena is private memory at the same address: with the same
/// contents, until the parent writes or releases it; nothing can be allocated there. Thread-safe.
class SharedMemory {
 public:
  /// What a peer needs to open the arena of a process.
  struct Claim {
    std::int32_t pid = 0;
    std::int32_t descriptor = -1;  ///< -1: the memory can not be shared
    std::uint64_t bytes = 0;
    std::uint64_t address = 0;  ///< in its process
    ArenaHeader::Nonce nonce{};
  };
  struct Options {
    int sharing = 1;      ///< processes of this host that share memory, this one among them
    bool copies = false;  ///< processes may copy out of each other's ordinary memory, if the kernel lets them
    std::uint64_t windows_bytes = 0;  ///< most memory of the host's windows together; 0: all that there is
  };
  /// @param processes  of the job; @param process  this one   @throws InvalidArgument  there is no address space
  SharedMemory(int processes, int process, const Options& options);
  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  Claim claim() const;
  /// Why no other process can map this one's arena although the options wanted that; else empty.
  const std::string& problem() const;
  /// How much memory windows may take, and what bounds it.
  const ArenaPlan& plan() const { return plan_; }
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
  /// `bytes` zeroed bytes of this process's arena. @throws InvalidArgument  a limit is in the way, which the message
  /// names; or this is a forked child
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
  const ArenaPlan plan_;
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

}  // namespace farandole
