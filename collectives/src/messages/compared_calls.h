// SPDX-License-Identifier: Apache-2.0
// The calls that a rank knows during a comparison, reduced to two of them.
#pragma once

#include <cstdint>

#include "operation/descriptor.h"
#include "operation/group.h"

namespace farandole {

/// State of a comparison of calls: the call of the lowest rank known so far, and the call of the lowest rank known to
/// differ from that call.
///
/// Both are minima, so merging is idempotent and independent of order: information about a rank may arrive twice, and
/// all ranks that have merged the calls of every rank hold the same two entries. Sent as the first 64 bytes of each
/// message of a Dissemination.
struct ComparedCalls {
  struct Entry {
    std::int32_t rank = -1;  ///< in the communicator; -1 if this entry is empty
    std::uint32_t unused = 0;
    Descriptor descriptor;
  };
  Entry lowest, differing;

  /// The call of one rank. `sequence` is mixed into the digest, so that ranks that have made different numbers of calls
  /// find a difference, too.
  static ComparedCalls of(int rank, const Descriptor& call, std::uint64_t sequence);
  /// Adds the calls that a peer knows.
  /// @param size  of the communicator   @throws TransportError  an entry names a rank outside the communicator
  void merge(const ComparedCalls& received, int size);
  /// To be called after the calls of all ranks were merged.
  /// @throws Mismatch  two calls differ: describes both, with the same text on every rank
  /// @throws Mismatch  the calls are the same, but refused (Descriptor::kRefused): the counts of an alltoall do not fit
  void throw_if_different(const Group& group) const;

 private:
  void merge(Entry entry, int size);
};
static_assert(sizeof(ComparedCalls) == 64);

}  // namespace farandole
