// SPDX-License-Identifier: Apache-2.0
#include "memory.h"

#include <malloc.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <new>

#include "replaced_new.h"

namespace farandole::fuzz {
namespace {

thread_local std::int64_t held = 0;
thread_local std::int64_t peak = 0;

}  // namespace

PeakMemory::PeakMemory() {
  held = 0;
  peak = 0;
}

std::size_t PeakMemory::bytes() const {
  return static_cast<std::size_t>(peak);
}

}  // namespace farandole::fuzz

void* farandole::test::allocate(std::size_t bytes) {
  void* const memory = bytes <= fuzz::kLargestAllocation ? std::malloc(std::max<std::size_t>(bytes, 1)) : nullptr;
  if (memory == nullptr) throw std::bad_alloc();
  fuzz::held += static_cast<std::int64_t>(malloc_usable_size(memory));
  fuzz::peak = std::max(fuzz::peak, fuzz::held);
  return memory;
}

void farandole::test::release(void* memory) noexcept {
  fuzz::held -= static_cast<std::int64_t>(malloc_usable_size(memory));
  std::free(memory);
}
