// SPDX-License-Identifier: Apache-2.0
// The comparison of calls among ranks that do not all share memory, and the short vectors that travel with it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "messages/dissemination.h"
#include "messages/hierarchy.h"
#include "operation/call.h"
#include "operation/group.h"
#include "operation/operation.h"
#include "shared_memory/host_gather.h"

namespace farandole {

/// Checks that all ranks of a communicator have made the same call (collective, counts, type, reduction, root, sequence
/// number, …), before any rank's buffer is touched, and distributes short payloads on the way.
///
/// Who sends to whom, and in which round, depends only on the ranks, never on their calls; only the lengths of messages
/// depend on the calls. So ranks that disagree about everything still complete the comparison, and every rank throws
/// the same Mismatch. `advance` returns kDone if all calls are the same.
class CallComparison : public Operation {
 public:
  /// The payload of a rank. Valid once the comparison is done, as long as this object lives.
  virtual const std::byte* block(int rank) const = 0;

  // `advance` @throws Mismatch  two ranks' calls differ: describes both, on every rank

  /// Returns a comparison inside and between hosts if `hierarchy` is not null, else a comparison by messages only.
  /// @param hierarchy, host  as in MethodInputs   @param blocks  payloads, by rank of the communicator
  /// @param number  LaneLedger::first_number of the collective; plus 1 for the second comparison of the same collective
  static std::unique_ptr<CallComparison> make(const Group& group, const Hierarchy* hierarchy, ShmGroup* host,
                                              std::uint64_t number, const Descriptor& mine, PayloadBlocks blocks = {});
};

/// Comparison by messages among all ranks, whether or not some share memory: a single dissemination, in which each rank
/// sends and receives a message in each of ⌈log₂P⌉ rounds.
class FlatComparison final : public CallComparison {
 public:
  FlatComparison(const Group& group, std::uint64_t number, const Descriptor& mine, PayloadBlocks blocks = {});
  State advance() override;
  std::vector<int> waits_for() const override { return dissemination_.waits_for(); }
  BufferHazard withdraw() override { return dissemination_.withdraw(); }
  const std::byte* block(int rank) const override { return dissemination_.block(rank); }

 private:
  const Group& group_;
  Dissemination dissemination_;
};

/// Comparison over hosts of several ranks, in three stages:
///
/// 1. Inside each host every rank writes its call and its payload to shared memory, where the host's first rank (local
/// rank 0) reads and merges them (HostGather).
/// 2. The first ranks of the H hosts run a dissemination among themselves: ⌈log₂H⌉ rounds of messages. No other rank
/// sends a message. The payload of a host is the concatenation of its ranks' payloads.
/// 3. The first rank of each host writes the result of the comparison, and the payloads of all ranks, to shared memory,
/// where the other ranks of the host read both.
///
/// Every rank then has the same result, so a difference between any two ranks is a Mismatch on all. A host with a
/// single rank has stage 2 only.
class HierarchicalComparison final : public CallComparison {
 public:
  /// @param blocks  payloads of at most ShmLayout::kHierarchyBufferBytes, all ranks together
  HierarchicalComparison(const Group& group, const Hierarchy& hierarchy, ShmGroup* host, std::uint64_t number,
                         const Descriptor& mine, PayloadBlocks blocks = {});
  State advance() override;
  std::vector<int> waits_for() const override;
  BufferHazard withdraw() override { return across_ ? across_->withdraw() : BufferHazard::kNone; }
  const std::byte* block(int rank) const override;

 private:
  enum class Phase { kConnect, kGather, kAcross, kAwaitAnswer };
  bool is_first() const { return hierarchy_.local == 0; }
  /// Takes the next step of the stages above, if possible.
  State step();
  void place_blocks();
  void publish();
  void begin_across();
  PayloadBlocks blocks_of_hosts();
  void publish_answer();

  const Group& group_;
  const Hierarchy& hierarchy_;
  ShmGroup* const host_;  // null if this rank is alone on its host
  const std::uint64_t number_;
  ComparedCalls compared_;
  const PayloadBlocks payload_;
  /// Location of a rank's payload.
  struct Place {
    int host = 0;
    std::size_t in_host = 0, in_answer = 0;  ///< byte offset in its host's payload, and in the payloads of all hosts
  };
  std::vector<Place> places_;               // by rank
  std::vector<std::size_t> bytes_of_host_;  // payload bytes, by host
  std::optional<HostGather> host_gather_;
  Group first_ranks_;                    // the first rank of each host; set when stage 2 begins
  std::optional<Dissemination> across_;  // stage 2; only on first ranks
  Phase phase_ = Phase::kConnect;
};

}  // namespace farandole
