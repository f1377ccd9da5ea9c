// SPDX-License-Identifier: Apache-2.0
#include "shared_memory/shm_group.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <thread>

namespace farandole {
namespace {

/// Members on this host, ascending. A member's index is its local rank.
std::vector<int> local_members(const Group& group) {
  std::vector<int> members;
  for (int member = 0; member < group.size(); ++member) {
    if (group.host_of(member) == group.host_of(group.rank)) members.push_back(member);
  }
  return members;
}

int local_rank_of(const Group& group) {
  const std::vector<int> members = local_members(group);
  return static_cast<int>(std::find(members.begin(), members.end(), group.rank) - members.begin());
}

std::vector<int> local_processes(const Group& group) {
  std::vector<int> processes;
  for (const int member : local_members(group)) {
    processes.push_back(group.endpoint->topology().rank(group.member(member)).process);
  }
  return processes;
}

/// Two lanes keep a rank busy if all ranks live on this host, and their staging memory stays in the caches. Collectives
/// that also wait for other hosts need as many lanes as messages have.
int lanes_of(const Group& group) {
  return local_members(group).size() == group.members.size() ? 2 : kLanes;
}

/// A multiple of a line, and at least a line per rank, so that a slot holds a slice of every rank's chunk.
std::size_t slot_bytes_of(const Group& group) {
  return std::max(group.slice_bytes / kLineBytes * kLineBytes, group.members.size() * kLineBytes);
}

/// True if all ranks of this host are threads of one process, and the setting lets them use each other's memory.
bool reaches_by_address(const Group& group) {
  const std::vector<int> processes = local_processes(group);
  const bool is_one_process =
      std::adjacent_find(processes.begin(), processes.end(), std::not_equal_to<>()) == processes.end();
  return is_one_process && group.endpoint->settings().shared_memory.mode == "on";
}

std::size_t min_single_copy_bytes(const Endpoint& endpoint) {
  const auto set = static_cast<std::size_t>(endpoint.settings().shared_memory.single_copy_bytes);
  return set > 0 && endpoint.memory().can_copy() ? set : std::numeric_limits<std::size_t>::max();
}

}  // namespace

std::vector<ShmGroup::Peer> ShmGroup::local_peers(const Group& group) {
  std::vector<Peer> peers;
  for (const int member : local_members(group)) {
    const RankInfo& info = group.endpoint->topology().rank(group.member(member));
    ArenaHeader& header = group.endpoint->memory().header(info.process);
    Doorbell& doorbell = header.slots[static_cast<std::size_t>(info.replica)].doorbell;
    peers.push_back({member, info.process, info.replica, &doorbell, &header.progress});
  }
  return peers;
}

ShmGroup::ShmGroup(const Group& group)
    : memory_(group.endpoint->memory()),
      id_(group.id),
      peers_(local_peers(group)),
      rank_(local_rank_of(group)),
      one_shot_bytes_(std::min(group.one_shot_bytes, slot_bytes_of(group))),
      layout_(size(), lanes_of(group), slot_bytes_of(group)),
      ledger_(size(), rank_, lanes_of(group)),
      buffers_(memory_, local_processes(group), reaches_by_address(group), min_single_copy_bytes(*group.endpoint)),
      recent_outputs_(static_cast<std::size_t>(group.endpoint->settings().shared_memory.non_temporal_bytes)),
      pointers_(peers_.size()) {}

ShmGroup::~ShmGroup() {
  if (block_offset_ == 0) return;
  const Peer& self = peers_[static_cast<std::size_t>(rank_)];
  memory_.header().blocks[static_cast<std::size_t>(self.replica)][id_].store(0, std::memory_order_release);
  for (int local = 0; local < found_; ++local) {
    ShmLayout::release_flags(&layout_.block(local))[rank_].store(1, std::memory_order_release);
  }
  const auto* flags = ShmLayout::release_flags(&layout_.block(rank_));
  memory_.retire(block_offset_, layout_.block_bytes(), [flags, count = size()] {
    return std::all_of(flags, flags + count,
                       [](const auto& flag) { return flag.load(std::memory_order_acquire) != 0; });
  });
}

std::vector<int> ShmGroup::peers_of(const Group& group) const {
  std::vector<int> ranks;
  for (int local = 0; local < size(); ++local) {
    if (local != rank_) ranks.push_back(group.member(member(local)));
  }
  return ranks;
}

/// A rank completes no operation before all peers have found its block, so the block stays published as long as peers
/// look for it.
bool ShmGroup::connect() {
  if (is_connected()) return true;
  if (block_offset_ == 0) {
    try {
      block_offset_ = memory_.allocate(layout_.block_bytes());
    } catch (const InvalidArgument& error) {
      // A TransportError ends the job on all ranks: peers that have the memory would otherwise wait for this rank.
      throw TransportError(
          fmt::format("memory that the ranks of this host share for a communicator: {}", error.message()));
    }
    const Peer& self = peers_[static_cast<std::size_t>(rank_)];
    memory_.header().blocks[static_cast<std::size_t>(self.replica)][id_].store(block_offset_,
                                                                               std::memory_order_seq_cst);
    (void)find_block(rank_);
    wake_peers();
  }
  while (found_ < size() && find_block(found_)) ++found_;
  return is_connected();
}

bool ShmGroup::find_block(int local) {
  const Peer& peer = peers_[static_cast<std::size_t>(local)];
  const auto& published = memory_.header(peer.process).blocks[static_cast<std::size_t>(peer.replica)][id_];
  const std::uint64_t offset = published.load(std::memory_order_acquire);
  if (offset == 0) return false;
  auto* block = reinterpret_cast<ShmBlock*>(memory_.at(peer.process, offset));
  // If this rank has released the block, it belongs to an earlier communicator with the same id, and its owner has not
  // yet unpublished it.
  if (ShmLayout::release_flags(block)[rank_].load(std::memory_order_acquire) != 0) return false;
  if (published.load(std::memory_order_acquire) != offset) return false;
  layout_.place(local, block);
  ledger_.attach(local, block->completed.value);
  return true;
}

bool ShmGroup::peer_has_started_next(std::uint64_t number) const {
  if (!is_connected()) return false;
  for (int local = 0; local < size(); ++local) {
    if (local == rank_) continue;
    // Sequentially consistent, to pair with the nudge of a rank that arrives; see Doorbell::arm.
    const ShmBlock::Lane& next = layout_.lane(local, ledger_.lane_of(number));
    if (next.arrival.number.load(std::memory_order_seq_cst) >= number) return true;
    if (next.gather.contribution_number.load(std::memory_order_seq_cst) >= number) return true;
  }
  return false;
}

void ShmGroup::wait_until_buffers_unused(int lane) const {
  for (int local = 0; local < found_; ++local) {
    if (local == rank_) continue;
    while (layout_.lane(local, lane).touching.load(std::memory_order_seq_cst) != 0) std::this_thread::yield();
  }
}

void ShmGroup::wake_peers() const {
  for (int local = 0; local < size(); ++local) {
    if (local == rank_) continue;
    const Peer& peer = peers_[static_cast<std::size_t>(local)];
    peer.doorbell->nudge();
    peer.progress_doorbell->nudge();
  }
}

}  // namespace farandole
