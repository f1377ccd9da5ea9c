// SPDX-License-Identifier: Apache-2.0
// Dissemination: after ⌈log₂P⌉ rounds of messages every rank knows what each has shown.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "messages/compared_calls.h"
#include "operation/group.h"
#include "operation/operation.h"
#include "operation/scratch.h"

namespace farandole {

/// Data that each rank shows with its call. The lengths follow from this rank's own call: ranks that called something
/// else have other lengths in mind, and find that out.
struct ShownBlocks {
  std::vector<std::size_t> bytes;         ///< of each rank; empty: no rank shows anything
  std::function<void(std::byte*)> write;  ///< this rank's

  std::size_t bytes_of(int rank) const { return bytes.empty() ? 0 : bytes[static_cast<std::size_t>(rank)]; }
};

/// The rounds are the same between all ranks whatever they called: one message per rank and round, which begins with
/// the 64 bytes of ComparedCalls. Behind them each message carries the blocks that its sender knows and its receiver
/// does not. A receiver takes messages of any length, because the ranks may disagree.
class Dissemination final : public Operation {
 public:
  /// What the blocks of all ranks but one may have together.
  static constexpr std::size_t kMaxShownBytes = std::size_t{128} << 10;

  /// @param ranks   outlives the operation
  /// @param mine    what this rank knows of its own call, and of others that it speaks for
  /// @param called  ranks whose calls are compared, at least those of the group
  Dissemination(const Group& ranks, std::uint8_t lane, const ComparedCalls& mine, int called, ShownBlocks blocks);

  State advance() override;
  std::vector<int> waits_for() const override;
  BufferHazard withdraw() override;

  // Once it is done.
  const ComparedCalls& calls() const { return known_; }
  /// What a rank of the group has shown; lives as long as this object.
  const std::byte* block(int rank) const { return blocks_[static_cast<std::size_t>(rank)]; }
  /// @throws TransportError  a rank has shown data of another length. For ranks that called the same.
  void check_lengths() const;

 private:
  int before(int distance) const { return (group_.rank + group_.size() - distance) % group_.size(); }
  int blocks_sent() const;
  std::size_t bytes_of_run(int last, int count) const;
  Scratch make_message() const;
  void start_round();
  void end_round();
  void forget_sent();

  const Group& group_;
  const std::uint8_t lane_;
  const int called_;
  const ShownBlocks shown_;
  ComparedCalls known_;
  int distance_ = 1;  // from this round's sender to its receiver; as many blocks are known: of the ranks up to this one
  std::vector<Scratch> messages_;         // that came and went; stay
  std::vector<const std::byte*> blocks_;  // by rank, in `messages_`; null: not known
  struct Sent {
    int to;
    std::unique_ptr<Transfer> transfer;
  };
  std::vector<Sent> sends_;  // that are not complete
  std::unique_ptr<Transfer> receive_;
  bool has_other_lengths_ = false;
};

}  // namespace farandole
