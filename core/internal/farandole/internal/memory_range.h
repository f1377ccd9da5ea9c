// SPDX-License-Identifier: Apache-2.0
// Ranges of memory that a caller passes, and whether two of them overlap.
#pragma once

#include <fmt/core.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "farandole/core/buffer.h"

namespace farandole {

/// `bytes` bytes from `begin`. Numbers, because pointers into different objects cannot be ordered.
struct MemoryRange {
  std::uintptr_t begin = 0;
  std::size_t bytes = 0;

  MemoryRange(const void* memory, std::size_t size) : begin(reinterpret_cast<std::uintptr_t>(memory)), bytes(size) {}
  explicit MemoryRange(const ConstBufferView& view) : MemoryRange(view.data, view.size_in_bytes()) {}
  std::uintptr_t end() const { return begin + bytes; }
  bool operator==(const MemoryRange&) const = default;
};

/// An empty range overlaps nothing.
inline bool overlap(const MemoryRange& a, const MemoryRange& b) {
  return a.begin < b.end() && b.begin < a.end() && a.bytes > 0 && b.bytes > 0;
}

/// "[0x7f0010, 0x7f0050)"
inline std::string describe(const MemoryRange& range) {
  return fmt::format("[{:#x}, {:#x})", range.begin, range.end());
}

}  // namespace farandole
