// SPDX-License-Identifier: Apache-2.0
// Memory shared by the processes of a host: one arena per process, mapped by the other processes.
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

/// Header at the start of every arena, with a fixed layout, through which ranks of other processes find the rest.
struct ArenaHeader {
  /// Slot of one rank of the process.
  struct alignas(128) Slot {
    Doorbell doorbell;
  };
  using Nonce = std::array<std::uint64_t, 2>;
  Nonce nonce;                                 ///< identifies the arena; const after creation
  std::atomic<std::uint64_t> allocated_bytes;  ///< written by the owner; summed by processes that allocate
  alignas(128) Doorbell progress;              ///< doorbell of the process's progress thread
  std::array<Slot, kMaxReplicas> slots;
  /// Offset in this arena of a rank's control block, by communicator; 0: no block yet.
  using Blocks = std::array<std::atomic<std::uint64_t>, kMaxCommunicators>;
  std::array<Blocks, kMaxReplicas> blocks;
};

/// This process's arena, and the mapped arenas of other processes of the host. Addresses in arenas are exchanged as
/// (process, offset).
///
/// An arena is one sparse, unnamed memory file. The kernel frees the file when the last process that maps it ends, even
/// after `kill -9`. The size of /dev/shm does not limit the file. Peers open the file through /proc. A process that
/// shares memory with no other process uses private memory instead. In a forked child an arena becomes private memory
/// at the same address, with the same contents until the parent writes or releases them; the child cannot allocate from
/// the arena. Thread-safe.
class SharedMemory {
 public:
  /// Message with which a process tells its peers how to open its arena.
  struct Claim {
    std::int32_t pid = 0;
    std::int32_t descriptor = -1;  ///< -1: the memory cannot be shared
    std::uint64_t bytes = 0;
    std::uint64_t address = 0;  ///< of the arena in the sender's address space
    ArenaHeader::Nonce nonce{};
  };
  struct Options {
    int sharing = 1;                  ///< number of processes of this host that share memory, including this process
    bool copies = false;              ///< use cross-memory attach between processes if the kernel permits it
    std::uint64_t windows_bytes = 0;  ///< maximum for all windows of the host together; 0: the memory limit
  };
  /// @param processes  number of processes in the job   @param process  this process's number
  /// @throws InvalidArgument  there is too little address space
  SharedMemory(int processes, int process, const Options& options);
  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  Claim claim() const;
  /// Reason why other processes cannot map this process's arena although the options ask for sharing; else empty.
  const std::string& problem() const;
  /// Maximum memory of windows, and the limit that sets it.
  const ArenaPlan& plan() const { return plan_; }
  /// Maps the arena of another process of this host. Returns the reason of a failure; empty on success.
  std::string map(int process, const Claim& claim);
  /// Unmaps the other processes' arenas: the host falls back to messages, or the job has ended.
  void unmap_peers();

  /// True if the kernel permits this process to read ordinary memory of all mapped processes (cross-memory attach,
  /// `process_vm_readv`). The kernel permits such reads where a debugger could attach: not between users, and not if a
  /// Linux security module or a sandbox forbids them.
  bool can_copy() const { return can_copy_; }
  /// Disables cross-memory attach because another process of this host cannot use it.
  void forbid_copies() { can_copy_ = false; }
  /// Copies `bytes` bytes at `address` of a mapped process to `to`, by cross-memory attach. Returns 0 or an errno:
  /// ESRCH if the process has ended, EFAULT if the process has no such memory.
  int copy_from(int process, std::uint64_t address, void* to, std::size_t bytes) const;

  bool is_mapped(int process) const { return bases_[static_cast<std::size_t>(process)] != nullptr; }
  /// Address of `offset` in the arena of a mapped process.
  std::byte* at(int process, std::uint64_t offset) const { return bases_[static_cast<std::size_t>(process)] + offset; }
  ArenaHeader& header(int process) const { return *reinterpret_cast<ArenaHeader*>(at(process, 0)); }
  ArenaHeader& header() const { return header(process_); }

  /// Returns the offset of `bytes` bytes at `data` in this process's arena; nothing if they are not all in the arena.
  std::optional<std::uint64_t> offset_of(const void* data, std::size_t bytes) const;
  /// Allocates `bytes` zeroed bytes of this process's arena and returns their offset.
  /// @throws InvalidArgument  a limit, named in the message, does not permit it; or this process is a forked child
  std::uint64_t allocate(std::size_t bytes);
  void release(std::uint64_t offset, std::size_t bytes);
  /// Releases memory that peers may still use, once `is_unused` returns true. Later allocations call `is_unused`.
  void retire(std::uint64_t offset, std::size_t bytes, std::function<bool()> is_unused);
  /// Allocates a window: a buffer in this process's arena. The memory outlives this object if the buffer does.
  Buffer allocate(std::size_t count, DType dtype);
  /// Never reuses memory released from now on. Called after a fault, because a stopped peer may still write the memory.
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
