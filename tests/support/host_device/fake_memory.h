// SPDX-License-Identifier: Apache-2.0
// Memory of the devices, and pinned memory: pages of this process that the double knows.
//
// Memory of a device has two addresses. The program gets the one, where it can touch nothing, as on a GPU; streams use
// the other. Every pointer is translated by `stream_address` on its way into the work of a stream.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace farandole::fake {

/// Memory returned by a call of CUDA. The record lives until the process ends, so that late uses are recognised.
struct Allocation {
  enum class Kind : std::uint8_t { kDevice, kPinned };
  Allocation(Kind kind_of_memory, int ordinal, std::uintptr_t address, std::uintptr_t address_of_streams,
             std::size_t size)
      : kind(kind_of_memory), device(ordinal), begin(address), stream_begin(address_of_streams), bytes(size) {}

  const Kind kind;
  const int device;                   ///< whose it is, or whose context was current
  const std::uintptr_t begin;         ///< as the program knows it
  const std::uintptr_t stream_begin;  ///< as streams know it; pinned memory is the same for both
  const std::size_t bytes;
  // Relaxed: neither orders a stream and the host, which a GPU would not order.
  std::atomic<bool> is_freed{false};
  std::atomic<std::int64_t> pending{0};  ///< items in streams that use it
};
std::string text_of(const Allocation& allocation);

/// Maps memory, filled with 0xff: no number in floating point. Null if the machine has no more.
Allocation* allocate(Allocation::Kind kind, int device, std::size_t bytes);
/// The allocation of this kind that begins there and is not freed. Null, after a report, if there is none.
Allocation* find_to_free(const char* call, Allocation::Kind kind, const void* memory);
/// Frees the allocation: later accesses end the process by a signal. Reports memory that items of streams still use.
void release(const char* call, Allocation& allocation);
/// Allocation that contains this address of the program, even if freed; null for ordinary host memory.
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
  /// Notes one. False, after a report, if `call` on `device` cannot use it.
  bool add(const char* call, int device, Reach reach, const Access& access);
  /// From now on the memory is in use; `finish` ends that.
  void begin() const;
  void finish() const;
  /// Null, or memory that was freed meanwhile.
  const Allocation* freed() const;
  /// True if a use of the host's ordinary memory was added.
  bool has_pageable() const { return has_pageable_; }
  bool has_device() const { return has_device_; }

 private:
  std::vector<Allocation*> allocations_;
  bool has_pageable_ = false;
  bool has_device_ = false;
};

/// The first two accesses of different `parts` that touch the same memory, one of which writes, as a text; or empty.
/// Within a part, an output may be the very memory of an input.
struct PartAccess {
  Access access;
  int part;
};
std::string first_conflict(const std::vector<PartAccess>& accesses);

}  // namespace farandole::fake
