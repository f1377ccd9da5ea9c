// SPDX-License-Identifier: Apache-2.0
// Comparison of calls among ranks that do not all share memory; it also carries short vectors (payloads).
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

/// State of a comparison of calls. `lowest` is the call of the lowest rank known so far; `differing` is the call of the
/// lowest known rank whose call differs from `lowest`.
///
/// Both are minima, so merging is idempotent and independent of order: a rank's call may arrive twice. All ranks that
/// have merged every rank's call hold the same two entries. Sent as the first 64 bytes of each message of a
/// Dissemination.
struct ComparedCalls {
  struct Entry {
    std::int32_t rank = -1;  ///< in the communicator; -1 if this entry is empty
    std::uint32_t unused = 0;
    Descriptor descriptor;
  };
  Entry lowest, differing;

  /// Returns the state that knows one rank's call only. Mixes `sequence` into the digest, so that ranks that have made
  /// different numbers of calls find a difference, too.
  static ComparedCalls of(int rank, const Descriptor& call, std::uint64_t sequence);
  /// Merges a peer's state into this one.
  /// @param size  number of ranks of the communicator   @throws TransportError  an entry names a rank outside it
  void merge(const ComparedCalls& received, int size);
  /// Call it after merging every rank's call.
  /// @throws Mismatch  two calls differ: describes both, with the same text on every rank
  /// @throws Mismatch  the calls are the same, but refused (Descriptor::kRefused): the counts of an alltoall do not fit
  void throw_if_different(const Group& group) const;

 private:
  void merge(Entry entry, int size);
};
static_assert(sizeof(ComparedCalls) == 64);

/// Payloads that travel with a comparison of calls, one block per rank. Each rank derives the lengths of all blocks
/// from its own call. Ranks whose calls differ may expect different lengths; the comparison reports such calls as
/// Mismatch.
struct PayloadBlocks {
  std::vector<std::size_t> bytes;         ///< length of each rank's block; empty if no rank has a payload
  std::function<void(std::byte*)> write;  ///< writes the block of this rank

  std::size_t bytes_of(int rank) const { return bytes.empty() ? 0 : bytes[static_cast<std::size_t>(rank)]; }
};

/// Merges the calls of P ranks, and gives every rank all ranks' blocks, in ⌈log₂P⌉ rounds.
///
/// In round k = 0, 1, … rank r sends to rank r + 2^k and receives from rank r - 2^k (modulo P). Before round k a rank
/// knows the calls and blocks of 2^k ranks: its own, and those of the 2^k - 1 ranks before it. A message begins with
/// the sender's ComparedCalls (64 bytes), followed by the blocks that the sender knows and the receiver lacks: 2^k
/// blocks, or fewer in the last round if P is no power of two. In all rounds together a rank receives 64·⌈log₂P⌉ bytes
/// plus each peer's block exactly once (the pattern of a Bruck allgather).
///
/// Peers and rounds do not depend on the calls, so ranks that disagree complete all rounds. Message lengths do depend
/// on the calls, so a receive accepts any length up to a limit. If a payload has an unexpected length, the rank passes
/// zeros on instead; if all calls then turn out to be the same, `check_lengths` throws.
///
/// `advance` throws the transport's errors.
class Dissemination final : public Operation {
 public:
  /// Maximum number of payload bytes that a rank receives: the blocks of all its peers together.
  static constexpr std::size_t kMaxPayloadBytes = std::size_t{128} << 10;

  /// @param ranks   outlives the operation
  /// @param mine    this rank's call; between hosts, merged with the calls of all ranks of this host
  /// @param compared_ranks  number of ranks of the communicator; at least `ranks.size()`
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
  /// Call it if all calls were the same. @throws TransportError  a payload had an unexpected length nevertheless
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
  int distance_ = 1;                      // 2^k in round k: from sender to receiver; number of known ranks
  std::vector<Scratch> messages_;         // all messages sent and received; `blocks_` points into them
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
/// Sender, receiver and round of each message depend only on the ranks, never on their calls; only the lengths of
/// messages depend on the calls. So even ranks that disagree about everything complete the comparison, and every rank
/// throws the same Mismatch. `advance` returns kDone if all calls are the same.
class CallComparison : public Operation {
 public:
  /// A rank's payload. Valid from the end of the comparison until this object is destroyed.
  virtual const std::byte* block(int rank) const = 0;

  // `advance` @throws Mismatch  two ranks' calls differ: describes both, on every rank

  /// Returns a comparison inside and between hosts if `hierarchy` is not null, else a comparison by messages only.
  /// @param hierarchy, host  as in MethodInputs   @param blocks  payloads, by rank of the communicator
  /// @param number  LaneLedger::first_number of the collective; plus 1 for a second comparison of the same collective
  static std::unique_ptr<CallComparison> make(const Group& group, const Hierarchy* hierarchy, ShmGroup* host,
                                              std::uint64_t number, const Descriptor& mine, PayloadBlocks blocks = {});
};

/// Comparison by messages among all ranks, even if some share memory: a single dissemination. In each of ⌈log₂P⌉ rounds
/// each rank sends a message and receives one.
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
/// 1. Inside each host every rank writes its call and its payload to shared memory. The host's first rank (local rank
/// 0) reads and merges them (HostGather).
/// 2. The first ranks of the H hosts run a dissemination among themselves: ⌈log₂H⌉ rounds of messages. No other rank
/// sends a message. The payload of a host is the concatenation of its ranks' payloads.
/// 3. The first rank of each host writes the result of the comparison, and all ranks' payloads, to shared memory. The
/// host's other ranks read both.
///
/// Every rank then has the same result, so a difference between any two ranks is a Mismatch on all. A host with a
/// single rank runs stage 2 only.
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
    std::size_t in_host = 0, in_answer = 0;  ///< byte offset in its host's payload; in all hosts' payloads
  };
  std::vector<Place> places_;               // by rank
  std::vector<std::size_t> bytes_of_host_;  // payload bytes, by host
  std::optional<HostGather> host_gather_;
  Group first_ranks_;                    // the first rank of each host; set when stage 2 begins
  std::optional<Dissemination> across_;  // stage 2; only on first ranks
  Phase phase_ = Phase::kConnect;
};

}  // namespace farandole
