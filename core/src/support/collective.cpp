// SPDX-License-Identifier: Apache-2.0
#include "farandole/core/collective.h"

#include "farandole/internal/choice.h"

namespace farandole {
namespace {

constexpr Words<kCollectiveCount> kCollectiveNames = {
    "allreduce", "broadcast", "reduce", "allgather", "reduce_scatter", "gather", "scatter", "alltoall", "barrier"};

}  // namespace

std::string_view name(Collective collective) {
  return word_of(collective, kCollectiveNames);
}

Collective parse_collective(std::string_view text) {
  return parse_word<Collective>(text, "collective", kCollectiveNames);
}

}  // namespace farandole
