// SPDX-License-Identifier: Apache-2.0
// Memory of the devices, and pinned memory: pages of this process that the double has mapped and keeps track of.
//
// Device memory has two addresses. The program gets an address that host code cannot access, as on a GPU. Streams use
// the other address: `stream_address` translates every pointer when work is enqueued.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace farandole::fake {

/// Record of memory that a CUDA call has returned. Lives until the process ends, so that late uses are recognised.
struct Allocation {
  enum class Kind : std::uint8_t { kDevice, kPinned };
  Allocation(Kind kind_of_memory, int ordinal, std::uintptr_t address, std::uintptr_t address_of_streams,
             std::size_t size)
      : kind(kind_of_memory), device(ordinal), begin(address), stream_begin(address_of_streams), bytes(size) {}

  const Kind kind;
  const int device;                   ///< owner; pinned memory: device whose context was current
  const std::uintptr_t begin;         ///< address for the program
  const std::uintptr_t stream_begin;  ///< address for streams; pinned memory: the same as `begin`
  const std::size_t bytes;
  // Relaxed, so that neither orders a stream with the host, which a GPU would not do.
  std::atomic<bool> is_freed{false};
  std::atomic<std::int64_t> pending{0};  ///< number of items in streams that use the memory
};
std::string text_of(const Allocation& allocation);

/// Maps memory, filled with 0xff, which is NaN in floating point. Returns null if the machine has no memory left.
Allocation* allocate(Allocation::Kind kind, int device, std::size_t bytes);
/// Returns the allocation of this kind that begins at `memory` and is not freed. If there is none, reports a misuse and
/// returns null.
Allocation* find_to_free(const char* call, Allocation::Kind kind, const void* memory);
/// Frees the allocation: later accesses end the process by a signal. Reports a misuse if items of streams still use the
/// memory.
void release(const char* call, Allocation& allocation);
/// Returns the allocation that contains this address of the program, even if freed; null for ordinary host memory.
Allocation* find_allocation(const void* address);
/// Translates an address of the program for streams. Called when work is enqueued, never by a stream.
std::uintptr_t stream_address(std::uintptr_t address);
template <class T>
T* stream_address(T* address) {
  return reinterpret_cast<T*>(  // NOLINT(performance-no-int-to-ptr): the driver has addresses as numbers
      stream_address(reinterpret_cast<std::uintptr_t>(address)));
}

/// Memory that an item reads or writes.
struct Access {
  const void* begin;
  std::size_t bytes;
  bool is_write;
  const char* name;  ///< "output"
};

/// Kinds of memory that an item may use.
enum class Reach : std::uint8_t {
  kDevice,    ///< the stream's device, and pinned memory: kernels, NCCL
  kAnywhere,  ///< copies
};

/// All accesses of an item. Empty accesses are ignored.
class Uses {
 public:
  /// Adds an access. If `call` on `device` cannot use the memory, reports a misuse and returns false.
  bool add(const char* call, int device, Reach reach, const Access& access);
  /// Marks the memory as in use, until `finish`.
  void begin() const;
  void finish() const;
  /// Returns an allocation that was freed meanwhile; null if there is none.
  const Allocation* freed() const;
  /// True if an access to ordinary host memory was added.
  bool has_pageable() const { return has_pageable_; }
  bool has_device() const { return has_device_; }

 private:
  std::vector<Allocation*> allocations_;
  bool has_pageable_ = false;
  bool has_device_ = false;
};

/// An access by one of several parts that run at the same time: calls of a group, or tasks of a kernel.
struct PartAccess {
  Access access;
  int part;
};
/// Describes the first two accesses of different parts to the same memory of which one writes; empty if there are none.
/// Within a part, an output may be the same memory as an input.
std::string first_conflict(const std::vector<PartAccess>& accesses);

}  // namespace farandole::fake
