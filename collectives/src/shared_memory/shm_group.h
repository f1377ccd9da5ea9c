// SPDX-License-Identifier: Apache-2.0
// The ranks of a communicator on one host, and the memory that they share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "farandole/internal/shared_memory.h"
#include "operation/group.h"
#include "shared_memory/lane_ledger.h"
#include "shared_memory/peer_buffers.h"
#include "shared_memory/recent_outputs.h"
#include "shared_memory/shm_layout.h"

namespace farandole {

/// A rank's connection, in a communicator, to the other ranks of the host. Operations in shared memory use it to find
/// memory (`layout`), to get a lane (`ledger`), to reach the peers' buffers (`buffers`), and to wake sleeping peers
/// (`wake_peers`).
///
/// A rank has two numbers: its rank in the communicator ("member"), and its local rank among the members on this host,
/// in the same order. Functions here take local ranks.
///
/// Setup is non-blocking. Call `connect` until it returns true: each rank allocates a control block in its process's
/// arena, publishes the block's offset in the arena's header, and looks for the peers' blocks in the headers of their
/// arenas.
///
/// Not thread-safe: the work queue's lock guards it.
class ShmGroup {
 public:
  explicit ShmGroup(const Group& group);
  /// Unpublishes the block. The arena reuses its memory once all peers have destroyed their groups, too.
  ~ShmGroup();
  ShmGroup(const ShmGroup&) = delete;
  ShmGroup& operator=(const ShmGroup&) = delete;

  /// Number of ranks on this host, and this rank's local rank.
  int size() const { return static_cast<int>(peers_.size()); }
  int rank() const { return rank_; }
  /// Rank in the communicator of local rank `local`.
  int member(int local) const { return peers_[static_cast<std::size_t>(local)].member; }
  /// The other ranks of this host, as ranks of the job. @param group  as passed to the constructor
  std::vector<int> peers_of(const Group& group) const;

  /// Publishes this rank's block, and looks for the peers' blocks. Non-blocking; idempotent.
  /// @returns  true once all peers' blocks are found   @throws TransportError  no memory for this rank's block
  bool connect();
  bool is_connected() const { return found_ == size(); }
  /// True if a peer has arrived in operation `number` or in a later operation of the same lane, or has contributed to
  /// the HostGather that precedes the operation. False until connected.
  bool peer_has_started_next(std::uint64_t number) const;

  const ShmLayout& layout() const { return layout_; }
  LaneLedger& ledger() { return ledger_; }
  const PeerBuffers& buffers() const { return buffers_; }
  RecentOutputs& recent_outputs() { return recent_outputs_; }
  /// Temporary array of one address per rank, for the operation that is being advanced.
  std::span<const void*> pointers() { return pointers_; }
  /// Vectors up to this size are one-shot; at most a slot.
  std::size_t one_shot_bytes() const { return one_shot_bytes_; }

  /// Wakes sleeping peers. Call after a sequentially consistent store to the word that they wait for (Doorbell::nudge).
  void wake_peers() const;
  /// Blocks until no peer accesses another rank's buffers in `lane`. Call it only after a fault, when no rank begins
  /// another step; then it blocks for at most one step of a peer.
  void wait_until_buffers_unused(int lane) const;

 private:
  struct Peer {
    int member = 0, process = 0, replica = 0;
    Doorbell* doorbell = nullptr;           // of the rank
    Doorbell* progress_doorbell = nullptr;  // of the progress thread of the peer's process
  };
  static std::vector<Peer> local_peers(const Group& group);
  bool find_block(int local);

  SharedMemory& memory_;
  const std::uint16_t id_;
  std::vector<Peer> peers_;  // by local rank, this rank included
  int rank_ = 0;
  int found_ = 0;                   // blocks of lower local ranks are found
  std::uint64_t block_offset_ = 0;  // of this rank's block in its arena; 0 until `connect` allocates it
  const std::size_t one_shot_bytes_;
  ShmLayout layout_;
  LaneLedger ledger_;
  const PeerBuffers buffers_;
  RecentOutputs recent_outputs_;
  std::vector<const void*> pointers_;
};

}  // namespace farandole
