// SPDX-License-Identifier: Apache-2.0
#include "memory.h"

#include <malloc.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <new>

namespace farandole::fuzz {
namespace {

thread_local std::int64_t held = 0;
thread_local std::int64_t peak = 0;

void* allocate(std::size_t bytes) {
  void* const memory = bytes <= kLargestAllocation ? std::malloc(std::max<std::size_t>(bytes, 1)) : nullptr;
  if (memory == nullptr) throw std::bad_alloc();
  held += static_cast<std::int64_t>(malloc_usable_size(memory));
  peak = std::max(peak, held);
  return memory;
}

void release(void* memory) noexcept {
  held -= static_cast<std::int64_t>(malloc_usable_size(memory));
  std::free(memory);
}

}  // namespace

PeakMemory::PeakMemory() {
  held = 0;
  peak = 0;
}

std::size_t PeakMemory::bytes() const {
  return static_cast<std::size_t>(peak);
}

}  // namespace farandole::fuzz

// All forms without alignment: a sanitizer must not see one of ours end in one of its own.
void* operator new(std::size_t bytes) {
  return farandole::fuzz::allocate(bytes);
}
void* operator new[](std::size_t bytes) {
  return farandole::fuzz::allocate(bytes);
}
void operator delete(void* memory) noexcept {
  farandole::fuzz::release(memory);
}
void operator delete[](void* memory) noexcept {
  farandole::fuzz::release(memory);
}
void operator delete(void* memory, std::size_t /*bytes*/) noexcept {
  farandole::fuzz::release(memory);
}
void operator delete[](void* memory, std::size_t /*bytes*/) noexcept {
  farandole::fuzz::release(memory);
}
