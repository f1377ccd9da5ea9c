// SPDX-License-Identifier: Apache-2.0
// Checks that the gradients of an averager overlap neither each other nor gradients of another averager of this
// process.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "farandole/gradients/gradient_averager.h"

namespace farandole {

/// Returns, for each gradient, the index of the first gradient with the same memory, which is reduced in its place. A
/// gradient that is not tied has its own index.
/// @param may_be_tied  GradientOptions::tied_spans
/// @throws InvalidArgument  gradients overlap in any other way, or are tied without `may_be_tied`; names both
std::vector<std::size_t> find_tied(const std::vector<GradientSpan>& gradients, bool may_be_tied);

/// Exclusive claim of an averager on memory of gradients, held while this object lives, because two averagers would
/// both write to shared memory. An averager has a claim for each list of gradients that it was given. Thread-safe
/// between objects.
class ClaimedMemory {
 public:
  ClaimedMemory() = default;
  ClaimedMemory(const ClaimedMemory&) = delete;
  ClaimedMemory& operator=(const ClaimedMemory&) = delete;
  ~ClaimedMemory();

  /// Claims the memory of the gradients from index `first` on, except the memory of gradients that are tied to earlier
  /// gradients.
  /// @param tied  result of `find_tied`   @param owner  for messages: "rank 3 (host node7, pid 4711)"
  /// @throws InvalidArgument  another averager has claimed some of the memory; names both gradients and the other
  /// owner. In this case nothing is claimed
  void claim(const std::vector<GradientSpan>& gradients, const std::vector<std::size_t>& tied, std::size_t first,
             const std::string& owner);

 private:
  std::uint64_t number_ = 0;  // number of this claim; 0: nothing is claimed
};

}  // namespace farandole
