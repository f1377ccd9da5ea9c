// SPDX-License-Identifier: Apache-2.0
// Dissemination: after ⌈log₂P⌉ rounds of messages every rank knows the payload of every rank, and whether all ranks
// made the same call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "operation/call.h"
#include "operation/group.h"
#include "operation/operation.h"
#include "operation/scratch.h"

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

/// Payloads that travel with a comparison of calls, a block per rank. Each rank derives the lengths of all blocks from
/// its own call; ranks whose calls differ may expect different lengths, which the comparison then reports as Mismatch.
struct PayloadBlocks {
  std::vector<std::size_t> bytes;         ///< length of each rank's block; empty if no rank has a payload
  std::function<void(std::byte*)> write;  ///< writes the block of this rank

  std::size_t bytes_of(int rank) const { return bytes.empty() ? 0 : bytes[static_cast<std::size_t>(rank)]; }
};

/// Merges the calls of P ranks, and gives every rank the block of every rank, in ⌈log₂P⌉ rounds.
///
/// In round k = 0, 1, … rank r sends to rank r + 2^k and receives from rank r - 2^k (modulo P). Before round k a rank
/// knows the calls and blocks of 2^k ranks: itself and the ranks before it. Each round doubles that number. A message
/// begins with the sender's ComparedCalls (64 bytes), followed by the blocks that the sender knows and the receiver
/// lacks: 2^k blocks, or fewer in the last round if P is no power of two. In all rounds together a rank receives
/// 64·⌈log₂P⌉ bytes, and the block of each peer exactly once (the pattern of a Bruck allgather).
///
/// Peers and rounds do not depend on the calls, so ranks that disagree complete all rounds. Message lengths do depend
/// on the calls: a receive accepts any length up to a limit. A payload of unexpected length is replaced by zeros and
/// passed on; if all calls turn out to be the same, `check_lengths` throws.
///
/// Errors of the transport are thrown by `advance`.
class Dissemination final : public Operation {
 public:
  /// Maximum of the bytes that a rank receives: the blocks of all its peers together.
  static constexpr std::size_t kMaxPayloadBytes = std::size_t{128} << 10;

  /// @param ranks   outlives the operation
  /// @param mine    this rank's call, merged with the calls of the ranks that it represents
  /// @param compared_ranks  size of the communicator whose calls are compared; at least `ranks.size()`
  /// @param blocks  payloads, by rank of `ranks`
  Dissemination(const Group& ranks, std::uint8_t lane, const ComparedCalls& mine, int compared_ranks,
                PayloadBlocks blocks);

  State advance() override;
  std::vector<int> waits_for() const override;
  BufferHazard withdraw() override;

  // Results, valid once `advance` has returned kDone.
  const ComparedCalls& calls() const { return known_; }
  /// The block of a rank of the group; valid as long as this object lives.
  const std::byte* block(int rank) const { return blocks_[static_cast<std::size_t>(rank)]; }
  /// To be called if all calls were the same. @throws TransportError  a payload had an unexpected length all the same
  void check_lengths() const;

 private:
  /// The rank `distance` places before this rank, modulo P.
  int rank_before(int distance) const { return (group_.rank + group_.size() - distance) % group_.size(); }
  int blocks_sent() const;
  std::size_t bytes_of_run(int last, int count) const;
  Scratch make_message() const;
  void start_round();
  void end_round();
  void drop_completed_sends();

  const Group& group_;
  const std::uint8_t lane_;
  const int compared_ranks_;
  const PayloadBlocks payload_;
  ComparedCalls known_;
  int distance_ = 1;                      // 2^k in round k: distance of sender and receiver, and number of known ranks
  std::vector<Scratch> messages_;         // all messages sent and received; kept, because `blocks_` points into them
  std::vector<const std::byte*> blocks_;  // by rank; null if not known yet
  struct Sent {
    int to;
    std::unique_ptr<Transfer> transfer;
  };
  std::vector<Sent> sends_;            // incomplete sends, of this round and earlier rounds
  std::unique_ptr<Transfer> receive_;  // of this round; null between rounds
  bool has_length_mismatch_ = false;   // a payload of unexpected length was received
};

}  // namespace farandole
