// SPDX-License-Identifier: Apache-2.0
#include "messages/compared_calls.h"

#include <fmt/core.h>

#include <cstring>
#include <utility>

#include "farandole/core/error.h"

namespace farandole {
namespace {

bool is_same(const Descriptor& a, const Descriptor& b) {
  return std::memcmp(&a, &b, sizeof a) == 0;
}

}  // namespace

ComparedCalls ComparedCalls::of(int rank, const Descriptor& call, std::uint64_t sequence) {
  ComparedCalls calls;
  calls.lowest = {rank, 0, call};
  calls.lowest.descriptor.digest = mix(call.digest, sequence);
  return calls;
}

void ComparedCalls::merge(const ComparedCalls& received, int size) {
  merge(received.lowest, size);
  merge(received.differing, size);
}

void ComparedCalls::merge(Entry entry, int size) {
  if (entry.rank < 0) return;
  if (entry.rank >= size) {
    throw TransportError(fmt::format("a comparison of calls names rank {} of a communicator of {}", entry.rank, size));
  }
  if (entry.rank < lowest.rank) std::swap(entry, lowest);
  // `entry` now has the higher rank of both. `differing` may agree with a new `lowest`: then `differing` is dropped.
  if (is_same(differing.descriptor, lowest.descriptor)) differing.rank = -1;
  if (is_same(entry.descriptor, lowest.descriptor)) return;
  if (differing.rank < 0 || entry.rank < differing.rank) differing = entry;
}

void ComparedCalls::throw_if_different(const Group& group) const {
  if (differing.rank >= 0) {
    throw_mismatch(group, lowest.rank, lowest.descriptor, differing.rank, differing.descriptor);
  }
  if (lowest.descriptor.algorithm == Descriptor::kRefused) throw_refused(lowest.descriptor);
}

}  // namespace farandole
