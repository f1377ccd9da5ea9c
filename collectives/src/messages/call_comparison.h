// SPDX-License-Identifier: Apache-2.0
// The comparison of calls where not all ranks share memory, and the short vectors that travel with it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "messages/dissemination.h"
#include "messages/hierarchy.h"
#include "operation/descriptor.h"
#include "operation/group.h"
#include "operation/operation.h"
#include "shared_memory/host_gather.h"

namespace farandole {

/// Ends once all ranks have called the same. Which messages pass between the ranks does not depend on what they have
/// called, but for their lengths, so that ranks that disagree about everything still meet.
class CallComparison : public Operation {
 public:
  /// What a rank shows; lives as long as this object. Once the comparison is done.
  virtual const std::byte* block(int rank) const = 0;

  // `advance` @throws Mismatch  with both descriptions, on every rank

  /// @param hierarchy, host  as in MethodInputs   @param blocks  by rank of the communicator
  /// @param number  ShmGroup::first_number of the collective, and one more for its second comparison
  static std::unique_ptr<CallComparison> make(const Group& group, const Hierarchy* hierarchy, ShmGroup* host,
                                              std::uint64_t number, const Descriptor& mine, ShownBlocks blocks = {});
};

/// Among ranks of which no two share memory, or as if.
class FlatComparison final : public CallComparison {
 public:
  FlatComparison(const Group& group, std::uint64_t number, const Descriptor& mine, ShownBlocks blocks = {});
  State advance() override;
  std::vector<int> waits_for() const override { return dissemination_.waits_for(); }
  BufferHazard withdraw() override { return dissemination_.withdraw(); }
  const std::byte* block(int rank) const override { return dissemination_.block(rank); }

 private:
  const Group& group_;
  Dissemination dissemination_;
};

/// Over hosts of several ranks: these show the first of each host what they have called, the first ranks compare, and
/// each answers its own host. Only the first ranks send messages.
class TwoLevelComparison final : public CallComparison {
 public:
  /// @param blocks  of all ranks together at most ShmGroup::kHierarchyBufferBytes
  TwoLevelComparison(const Group& group, const Hierarchy& hierarchy, ShmGroup* host, std::uint64_t number,
                     const Descriptor& mine, ShownBlocks blocks = {});
  State advance() override;
  std::vector<int> waits_for() const override;
  BufferHazard withdraw() override { return across_ ? across_->withdraw() : BufferHazard::kNone; }
  const std::byte* block(int rank) const override;

 private:
  enum class Phase { kConnect, kCollect, kAcross, kAwait };
  bool is_first() const { return hierarchy_.local == 0; }
  State step();
  void place_blocks();
  void show();
  void begin_across();
  ShownBlocks blocks_of_hosts();
  void answer();

  const Group& group_;
  const Hierarchy& hierarchy_;
  ShmGroup* const host_;  // null: this rank is alone on its host
  const std::uint64_t number_;
  ComparedCalls known_;
  const ShownBlocks shown_;
  /// Where a rank's block lies.
  struct Place {
    int host = 0;
    std::size_t in_host = 0, in_answer = 0;  ///< bytes before it among its host's blocks, and among all
  };
  std::vector<Place> places_;               // by rank
  std::vector<std::size_t> bytes_of_host_;  // of all its blocks
  std::optional<HostGather> host_gather_;
  Group first_ranks_;                    // of all hosts, once they compare
  std::optional<Dissemination> across_;  // of a first rank
  Phase phase_ = Phase::kConnect;
};

}  // namespace farandole
