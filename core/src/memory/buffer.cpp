// SPDX-License-Identifier: Apache-2.0
#include "farandole/core/buffer.h"

#include <fmt/format.h>

#include <cstdlib>
#include <cstring>
#include <new>

#include "farandole/core/error.h"

namespace farandole {
namespace {

constexpr std::size_t kAlignmentBytes = 64;  // a cache line, and the widest vector register

}  // namespace

std::string describe(MemorySpace space) {
  return space.is_host() ? "host memory" : fmt::format("memory of CUDA device {}", space.ordinal);
}

std::size_t allocated_bytes(std::size_t count, DType dtype) {
  const std::size_t element_bytes = size_in_bytes(dtype);
  constexpr std::size_t kLargest = static_cast<std::size_t>(PTRDIFF_MAX) - kAlignmentBytes;
  if (count > kLargest / element_bytes) {
    throw InvalidArgument(fmt::format("a buffer of {} {} elements does not fit in the address space; at most {} do.",
                                      count, name(dtype), kLargest / element_bytes));
  }
  return count * element_bytes;
}

Buffer::Buffer(std::size_t count, DType dtype) : count_(count), dtype_(dtype) {
  const std::size_t wanted_bytes = allocated_bytes(count, dtype);
  if (count == 0) return;
  const std::size_t bytes = (wanted_bytes + kAlignmentBytes - 1) / kAlignmentBytes * kAlignmentBytes;
  memory_.reset(std::aligned_alloc(kAlignmentBytes, bytes));
  if (!memory_) throw std::bad_alloc();
  std::memset(memory_.get(), 0, bytes);
}

void Buffer::Free::operator()(void* memory) const {
  release ? release(memory) : std::free(memory);
}

}  // namespace farandole
