// SPDX-License-Identifier: Apache-2.0
// The memory of the gradients of an averager: where it overlaps, and which averagers of this process have it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "farandole/gradients/gradient_averager.h"

namespace farandole {

/// The gradient that each one is reduced as: itself, or, of several of the same memory, the first.
/// @param may_be_tied  GradientOptions::tied_spans   @throws InvalidArgument  spans overlap otherwise; names both
std::vector<std::size_t> find_tied(const std::vector<GradientSpan>& gradients, bool may_be_tied);

/// Memory that no other averager of this process may have while this object lives: both would write to it.
class ClaimedMemory {
 public:
  ClaimedMemory() = default;
  ClaimedMemory(const ClaimedMemory&) = delete;
  ClaimedMemory& operator=(const ClaimedMemory&) = delete;
  ~ClaimedMemory();

  /// @param tied   of `find_tied`   @param owner  for messages: "rank 3 (host node7, pid 4711)"
  /// @throws InvalidArgument  another averager has some of it; names both gradients and the other's owner. Nothing is
  /// claimed then
  void claim(const std::vector<GradientSpan>& gradients, const std::vector<std::size_t>& tied,
             const std::string& owner);

 private:
  std::uint64_t number_ = 0;  // of this claim; 0: nothing is claimed
};

}  // namespace farandole
