// SPDX-License-Identifier: Apache-2.0
// What a rank knows of the ranks' calls while it learns them.
#pragma once

#include <cstdint>

#include "operation/descriptor.h"
#include "operation/group.h"

namespace farandole {

/// The call of the lowest rank known, and that of the lowest rank known to differ from it. Both are minima, so a rank
/// may be merged twice, and every rank that has merged all ranks knows the same two.
struct ComparedCalls {
  struct Entry {
    std::int32_t rank = -1;  ///< in the communicator; -1: none
    std::uint32_t unused = 0;
    Descriptor descriptor;
  };
  Entry lowest, differing;

  /// Of one rank. The digest carries the sequence number, so that ranks whose numbers of calls differ find that, too.
  static ComparedCalls of(int rank, const Descriptor& called, std::uint64_t sequence);
  /// @param size  of the communicator   @throws TransportError  an entry names no rank of it
  void merge(const ComparedCalls& received, int size);
  /// Valid after contributions of all ranks were merged. @throws Mismatch  with both descriptions, the same on every rank
  void throw_if_different(const Group& group) const;

 private:
  void merge(Entry entry, int size);
};
static_assert(sizeof(ComparedCalls) == 64);

}  // namespace farandole
