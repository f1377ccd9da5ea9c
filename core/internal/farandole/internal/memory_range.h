// SPDX-License-Identifier: Apache-2.0
// Address ranges of buffers that a caller passes, and whether two ranges overlap.
#pragma once

#include <fmt/core.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "farandole/core/buffer.h"

namespace farandole {

/// The addresses [begin, begin + bytes), as integers, because pointers into different objects cannot be ordered.
struct MemoryRange {
  std::uintptr_t begin = 0;
  std::size_t bytes = 0;

  MemoryRange(const void* memory, std::size_t size) : begin(reinterpret_cast<std::uintptr_t>(memory)), bytes(size) {}
  explicit MemoryRange(const ConstBufferView& view) : MemoryRange(view.data, view.size_in_bytes()) {}
  std::uintptr_t end() const { return begin + bytes; }
  bool operator==(const MemoryRange&) const = default;
};

/// True if the ranges have a byte in common. An empty range overlaps no range.
inline bool overlap(const MemoryRange& a, const MemoryRange& b) {
  return a.begin < b.end() && b.begin < a.end() && a.bytes > 0 && b.bytes > 0;
}

/// Formats a range: "[0x7f0010, 0x7f0050)".
inline std::string describe(const MemoryRange& range) {
  return fmt::format("[{:#x}, {:#x})", range.begin, range.end());
}

}  // namespace farandole
