// SPDX-License-Identifier: Apache-2.0
// Collectives on short vectors among ranks that do not all share memory: the data travels with the comparison of calls.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "messages/call_comparison.h"
#include "operation/call.h"
#include "operation/group.h"
#include "operation/operation.h"
#include "operation/short_collective.h"
#include "selection/method.h"

namespace farandole {

extern const Method kExchangeMethod;

/// A collective on a short vector that needs no message beyond the comparison of calls.
///
/// Each rank attaches its payload (its vector, or the part that its peers need) to the messages of CallComparison. With
/// P ranks on P hosts the comparison is a dissemination: after ⌈log₂P⌉ rounds every rank has the payload of every peer,
/// and computes the result locally. All ranks reduce in the order of ranks, and so get bitwise equal results. A
/// reduction of N bytes costs ⌈log₂P⌉ messages and (P-1)·N received bytes per rank, which is fast as long as latency
/// dominates. Over H hosts of several ranks the first rank of each host collects the host's payloads in shared memory,
/// exchanges them in ⌈log₂H⌉ rounds, and answers with all ranks' payloads.
///
/// Each rank writes its output only after all ranks have agreed: a Mismatch leaves the output unchanged.
class Exchange final : public Operation {
 public:
  /// @param hierarchy, host  as in MethodInputs   @param prepared  a valid call, which outlives the operation
  Exchange(const Group& group, const Hierarchy* hierarchy, ShmGroup* host, const PreparedCall& prepared,
           std::uint64_t sequence);

  State advance() override;
  std::vector<int> waits_for() const override { return comparison_->waits_for(); }
  BufferHazard withdraw() override { return comparison_->withdraw(); }

 private:
  /// The payloads of all ranks, as `collective_` defines them.
  PayloadBlocks blocks() const;

  const Group& group_;
  const std::vector<std::size_t> part_offsets_;  // where each rank's part begins, if the parts are uneven; else empty
  const ShortCollective collective_;
  const std::unique_ptr<CallComparison> comparison_;
};

}  // namespace farandole
