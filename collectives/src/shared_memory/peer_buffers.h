// SPDX-License-Identifier: Apache-2.0
// Access to the callers' buffers of other ranks of the host, without a copy through staging memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "farandole/internal/shared_memory.h"

namespace farandole {

/// Locates this rank's buffers for the peers, and resolves the locations that peers publish in their arrival records.
/// There are three ways, depending on the buffer's memory:
///
/// - If all ranks are threads of one process, they read and write every buffer. The location is the buffer's address.
///   (With FARANDOLE_SHARED_MEMORY=windows, threads use windows only, as processes do.)
/// - Ranks of several processes read and write a buffer in a window (memory of `Communicator::allocate`). The location
///   is the buffer's offset in the owner's arena, which every process of the host has mapped at some address.
/// - Ranks can only copy from other memory of another process, by cross-memory attach (`copy_from`). Each copy is a
///   system call. It pays only if the collective moves data without reducing them, in chunks of at least
///   FARANDOLE_SINGLE_COPY_BYTES.
///
/// Const after construction.
class PeerBuffers {
 public:
  /// Location of a buffer that peers cannot reach.
  static constexpr std::uint64_t kUnreachable = ~0ULL;

  /// @param processes  process of each rank, by local rank
  /// @param single_copy_bytes  minimum size of chunks that are copied by cross-memory attach; the same on all ranks of
  /// the host
  PeerBuffers(const SharedMemory& memory, std::vector<int> processes, bool by_address, std::size_t single_copy_bytes)
      : memory_(memory),
        processes_(std::move(processes)),
        by_address_(by_address),
        single_copy_bytes_(single_copy_bytes) {}

  /// True if locations are addresses. A peer's buffer may then be ordinary memory, which becomes invalid when the owner
  /// frees it; windows stay mapped.
  bool by_address() const { return by_address_; }
  /// Location of a buffer of this rank, for `resolve` on the peers, or kUnreachable.
  std::uint64_t locate(const void* data, std::size_t bytes) const {
    if (by_address_) return reinterpret_cast<std::uintptr_t>(data);
    return memory_.offset_of(data, bytes).value_or(kUnreachable);
  }
  /// Address in this process of a buffer of `local`. @param location  result of `locate` on that rank; not kUnreachable
  std::byte* resolve(int local, std::uint64_t location) const {
    if (by_address_) return reinterpret_cast<std::byte*>(location);  // NOLINT(performance-no-int-to-ptr)
    return memory_.at(processes_[static_cast<std::size_t>(local)], location);
  }

  /// True if chunks of this size in ordinary memory of another process are copied by cross-memory attach. The same on
  /// all ranks of the host.
  bool uses_single_copy(std::size_t bytes) const { return bytes >= single_copy_bytes_; }
  /// Copies `bytes` bytes from `address` in the process of `local`, as SharedMemory::copy_from. @returns  0 or an errno
  int copy_from(int local, std::uint64_t address, void* to, std::size_t bytes) const {
    return memory_.copy_from(processes_[static_cast<std::size_t>(local)], address, to, bytes);
  }

 private:
  const SharedMemory& memory_;
  const std::vector<int> processes_;
  const bool by_address_;
  const std::size_t single_copy_bytes_;
};

}  // namespace farandole
