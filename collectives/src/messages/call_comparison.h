// SPDX-License-Identifier: Apache-2.0
// The comparison of calls by messages, where ranks share no memory, and the short vectors that travel with it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "operation/descriptor.h"
#include "operation/group.h"
#include "operation/operation.h"
#include "operation/scratch.h"

namespace farandole {

/// What each rank shows to all ranks with its call. By this rank's own call: ranks that called something else have
/// other lengths in mind, and find that out.
struct ShownBlocks {
  std::vector<std::size_t> bytes;         ///< of each rank; empty: no rank shows anything
  std::function<void(std::byte*)> write;  ///< this rank's
};

/// Compares {sequence number, descriptor} over all ranks by dissemination: ⌈log₂P⌉ rounds, the same between all ranks
/// whatever they called, with one message per rank and round, which begins with 64 bytes.
///
/// What these 64 bytes carry is the descriptor of the lowest rank known, and that of the lowest rank known to differ
/// from it. Both are minima, so hearing of a rank twice does no harm, and after the last round every rank knows the
/// same two. Behind them each message carries the blocks that its sender knows and its receiver does not: after the
/// last round every rank has those of all. A receiver takes messages of any length, because the ranks may disagree.
class CallComparison final : public Operation {
 public:
  /// What the blocks of all ranks but one may have together.
  static constexpr std::size_t kMostShownBytes = std::size_t{256} << 10;

  CallComparison(const Group& group, std::uint8_t lane, std::uint64_t sequence, const Descriptor& mine,
                 ShownBlocks blocks = {});

  /// @throws Mismatch  with both descriptions, on every rank
  State advance() override;
  std::vector<int> waits_for() const override;
  Aftermath withdraw() override;
  /// What a rank shows; lives as long as this object. Once the comparison is done.
  const std::byte* block(int rank) const { return blocks_[static_cast<std::size_t>(rank)]; }

 private:
  struct Entry {
    std::int32_t rank = -1;  // -1: none
    std::uint32_t unused = 0;
    Descriptor descriptor;
  };
  struct Heading {
    Entry lowest, differing;
  };
  static_assert(sizeof(Heading) == 64);
  static_assert(sizeof(Heading) + kMostShownBytes <= kMostUnknownBytes);
  int before(int distance) const { return (group_.rank + group_.size() - distance) % group_.size(); }
  int blocks_sent() const;
  std::size_t bytes_of(int rank) const {
    return shown_.bytes.empty() ? 0 : shown_.bytes[static_cast<std::size_t>(rank)];
  }
  std::size_t bytes_of_run(int last, int count) const;
  Scratch make_message() const;
  void start_round();
  void end_round();
  void merge(const Entry& entry);
  void judge() const;

  const Group& group_;
  const std::uint8_t lane_;
  const ShownBlocks shown_;
  Heading known_;
  int distance_ =
      1;  // of this round's sender and receiver; so many blocks are known: those of the ranks before this one
  std::vector<Scratch> messages_;         // that came and went; stay
  std::vector<const std::byte*> blocks_;  // by rank, in `messages_`; null: not known
  std::vector<std::unique_ptr<Transfer>> sends_;
  std::unique_ptr<Transfer> receive_;
  bool has_other_lengths_ = false;
};

}  // namespace farandole
