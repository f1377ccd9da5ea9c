// SPDX-License-Identifier: Apache-2.0
// Measures the peak memory of a piece of code.
#pragma once

#include <cstddef>

namespace farandole::fuzz {

/// A single allocation of more than this throws std::bad_alloc, so that a length that was believed is seen at once.
inline constexpr std::size_t kLargestAllocation = 64 << 20;

/// The most bytes of `operator new` that this thread has held at once since construction, beyond those held then.
class PeakMemory {
 public:
  PeakMemory();
  std::size_t bytes() const;
};

}  // namespace farandole::fuzz
