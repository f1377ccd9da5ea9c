// SPDX-License-Identifier: Apache-2.0
// The comparison of calls by messages, where ranks share no memory.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "operation/descriptor.h"
#include "operation/group.h"
#include "operation/operation.h"

namespace farandole {

/// Compares {sequence number, descriptor} over all ranks by dissemination: ⌈log₂P⌉ rounds of 64 bytes per rank.
///
/// What travels is the descriptor of the lowest rank known, and that of the lowest rank known to differ from it. Both
/// are minima, so hearing of a rank twice does no harm, and after the last round every rank knows the same two.
class CallComparison final : public Operation {
 public:
  CallComparison(const Group& group, std::uint8_t lane, std::uint64_t sequence, const Descriptor& mine);

  /// @throws Mismatch  with both descriptions, on every rank
  State advance() override;
  std::vector<int> waits_for() const override;
  Aftermath withdraw() override;

 private:
  struct Entry {
    std::int32_t rank = -1;  // -1: none
    std::uint32_t unused = 0;
    Descriptor descriptor;
  };
  struct Message {
    Entry lowest, differing;
  };
  static_assert(sizeof(Message) == 64);
  void start_round();
  void merge(const Entry& entry);
  void judge() const;

  const Group& group_;
  const std::uint8_t lane_;
  Message known_;
  int distance_ = 1;
  bool receiving_ = false;
  Message incoming_;
  std::vector<std::unique_ptr<Message>> outgoing_;  // one per round; stay until sent
  std::vector<std::unique_ptr<Transfer>> sends_;
  std::unique_ptr<Transfer> receive_;
};

}  // namespace farandole
