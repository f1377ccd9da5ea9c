// SPDX-License-Identifier: Apache-2.0
#include "shared_memory/shm_group.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <thread>

namespace farandole {
namespace {

std::size_t staging_offset(int size) {
  const std::size_t words = static_cast<std::size_t>(size) * sizeof(std::atomic<std::uint64_t>);
  return sizeof(ShmBlock) + (words + kLineBytes - 1) / kLineBytes * kLineBytes;
}

/// Communicators of several hosts have all lanes, and a room in each.
std::size_t block_bytes(int size, int lanes, std::size_t slot_bytes) {
  const bool has_hierarchy_buffers = lanes == kLanes;
  const std::size_t lane_bytes =
      ShmGroup::kExchangeSlots * slot_bytes + (has_hierarchy_buffers ? ShmGroup::kHierarchyBufferBytes : 0);
  return staging_offset(size) + static_cast<std::size_t>(lanes) * lane_bytes;
}

std::size_t least_single_copy(const Endpoint& endpoint) {
  const auto set = static_cast<std::size_t>(endpoint.settings().shared_memory.single_copy_bytes);
  return set > 0 && endpoint.memory().can_copy() ? set : std::numeric_limits<std::size_t>::max();
}

}  // namespace

ShmGroup::ShmGroup(const Group& group)
    : endpoint_(*group.endpoint),
      memory_(group.endpoint->memory()),
      id_(group.id),
      slot_bytes_(std::max(group.slice_bytes / kLineBytes * kLineBytes, group.members.size() * kLineBytes)),
      one_shot_bytes_(std::min(group.one_shot_bytes, slot_bytes_)),
      single_copy_bytes_(least_single_copy(endpoint_)),
      by_address_(endpoint_.settings().shared_memory.mode == "on"),
      recent_outputs_(static_cast<std::size_t>(endpoint_.settings().shared_memory.non_temporal_bytes)) {
  const Topology& topology = endpoint_.topology();
  const RankInfo& self = topology.rank(endpoint_.rank());
  for (int member = 0; member < group.size(); ++member) {
    if (group.host_of(member) != group.host_of(group.rank)) {
      last_lane_ = kLanes - 1;
      continue;
    }
    const RankInfo& info = topology.rank(group.member(member));
    if (member == group.rank) rank_ = size();
    by_address_ = by_address_ && info.process == self.process;
    ArenaHeader& header = memory_.header(info.process);
    Peer peer;
    peer.member = member;
    peer.process = info.process;
    peer.replica = info.replica;
    peer.doorbell = &header.slots[static_cast<std::size_t>(info.replica)].doorbell;
    peer.progress = &header.progress;
    peers_.push_back(peer);
  }
  pointers_.resize(peers_.size());
}

ShmGroup::~ShmGroup() {
  if (block_offset_ == 0) return;
  const Peer& self = peers_[static_cast<std::size_t>(rank_)];
  memory_.header().blocks[static_cast<std::size_t>(self.replica)][id_].store(0, std::memory_order_release);
  for (int peer = 0; peer < found_; ++peer) {
    peers_[static_cast<std::size_t>(peer)].released[rank_].store(1, std::memory_order_release);
  }
  const auto* released = self.released;
  memory_.retire(block_offset_, block_bytes(size(), lanes(), slot_bytes_), [released, count = size()] {
    return std::all_of(released, released + count,
                       [](const auto& word) { return word.load(std::memory_order_acquire) != 0; });
  });
}

std::vector<int> ShmGroup::peers_of(const Group& group) const {
  std::vector<int> ranks;
  for (int local = 0; local < size(); ++local) {
    if (local != rank_) ranks.push_back(group.member(member(local)));
  }
  return ranks;
}

/// Publishes the own block, then looks for the peers'. A rank completes no operation before all peers have found its
/// block, so it stays published for as long as a peer may look for it.
bool ShmGroup::connect() {
  if (found_ == size()) return true;
  if (block_offset_ == 0) {
    try {
      block_offset_ = memory_.allocate(block_bytes(size(), lanes(), slot_bytes_));
    } catch (const InvalidArgument& error) {
      // The peers may have room, and would wait for this rank: it must not fail alone.
      throw TransportError(
          fmt::format("memory that the ranks of this host share for a communicator: {}", error.what()));
    }
    Peer& self = peers_[static_cast<std::size_t>(rank_)];
    memory_.header().blocks[static_cast<std::size_t>(self.replica)][id_].store(block_offset_,
                                                                               std::memory_order_seq_cst);
    (void)find(self);
    nudge();
  }
  while (found_ < size() && find(peers_[static_cast<std::size_t>(found_)])) ++found_;
  return found_ == size();
}

bool ShmGroup::find(Peer& peer) {
  const auto& entry = memory_.header(peer.process).blocks[static_cast<std::size_t>(peer.replica)][id_];
  const std::uint64_t offset = entry.load(std::memory_order_acquire);
  if (offset == 0) return false;
  // A block of zero bytes is a new block.
  auto* released = reinterpret_cast<std::atomic<std::uint64_t>*>(memory_.at(peer.process, offset + sizeof(ShmBlock)));
  // The block of an earlier communicator, which its owner is about to take back?
  if (released[rank_].load(std::memory_order_acquire) != 0) return false;
  if (entry.load(std::memory_order_acquire) != offset) return false;
  peer.released = released;
  peer.block = reinterpret_cast<ShmBlock*>(memory_.at(peer.process, offset));
  peer.staging = memory_.at(peer.process, offset + staging_offset(size()));
  return true;
}

bool ShmGroup::peer_has_started_next(std::uint64_t number) const {
  if (found_ < size()) return false;
  for (int local = 0; local < size(); ++local) {
    if (local == rank_) continue;
    // Sequentially consistent: pairs with the nudge of a rank that arrives, see Doorbell::arm.
    const ShmBlock::Lane& next = lane(local, lane_of(number));
    if (next.arrival.number.load(std::memory_order_seq_cst) >= number) return true;
    if (next.meeting.shown.load(std::memory_order_seq_cst) >= number) return true;
  }
  return false;
}

std::uint64_t ShmGroup::locate(const void* data, std::size_t bytes) const {
  if (by_address_) return reinterpret_cast<std::uintptr_t>(data);
  return memory_.offset_of(data, bytes).value_or(kUnreachable);
}

std::byte* ShmGroup::reach(int local, std::uint64_t place) const {
  if (by_address_) return reinterpret_cast<std::byte*>(place);  // NOLINT(performance-no-int-to-ptr)
  return memory_.at(peers_[static_cast<std::size_t>(local)].process, place);
}

int ShmGroup::first_behind(std::uint64_t number) {
  for (int local = 0; local < size(); ++local) {
    Peer& peer = peers_[static_cast<std::size_t>(local)];
    if (local == rank_ || peer.completed >= number) continue;
    peer.completed = peer.block->completed.value.load(std::memory_order_acquire);
    if (peer.completed < number) return local;
  }
  return -1;
}

void ShmGroup::note_completed(int local, std::uint64_t completed) {
  std::uint64_t& known = peers_[static_cast<std::size_t>(local)].completed;
  known = std::max(known, completed);
}

void ShmGroup::end(int lane, std::uint64_t next) {
  completion_.end(lane, next);
  show_completed();
}

void ShmGroup::withdraw(std::uint64_t number) {
  const int lane = lane_of(number);
  if (completion_.in_flight(lane) / kNumbers != number / kNumbers) return;
  completion_.withdraw(lane);
  show_completed();
}

void ShmGroup::show_completed() const {
  // A rank that has met no peer has no block yet.
  if (block_offset_ == 0) return;
  peers_[static_cast<std::size_t>(rank_)].block->completed.value.store(completed(), std::memory_order_release);
}

void ShmGroup::wait_until_buffers_unused(int lane) const {
  for (int local = 0; local < found_; ++local) {
    if (local == rank_) continue;
    while (this->lane(local, lane).touching.load(std::memory_order_seq_cst) != 0) std::this_thread::yield();
  }
}

void ShmGroup::nudge() const {
  for (int local = 0; local < size(); ++local) {
    if (local == rank_) continue;
    peers_[static_cast<std::size_t>(local)].doorbell->nudge();
    peers_[static_cast<std::size_t>(local)].progress->nudge();
  }
}

}  // namespace farandole
