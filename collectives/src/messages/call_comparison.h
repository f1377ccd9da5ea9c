// SPDX-License-Identifier: Apache-2.0
// The comparison of calls among ranks that do not all share memory, and the short vectors that travel with it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "messages/hierarchy.h"
#include "operation/call.h"
#include "operation/group.h"
#include "operation/operation.h"
#include "shared_memory/host_gather.h"

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
