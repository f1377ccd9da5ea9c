// SPDX-License-Identifier: Apache-2.0
// Addresses of control blocks, slots and buffers in the memory that the ranks of a host share.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "shared_memory/shm_block.h"

namespace farandole {

/// Turns (local rank, lane, slice) into an address in the memory of a communicator on one host. Use this class to find
/// records, slots and buffers; it never accesses the memory itself.
///
/// Each rank has a block in the arena of the rank's process:
///
///     ShmBlock           one ShmBlock::Lane per lane, and the completed count
///     release flags      one word per rank, which that rank sets when it no longer uses the block
///     slots              per lane 2 input slots and 2 result slots of slot_bytes() each ("staging memory")
///     hierarchy buffers  per lane kHierarchyBufferBytes, in communicators of several hosts only
///
/// Sizes are const after construction. `place` sets the address of a rank's block once, when ShmGroup has found it;
/// functions that take a local rank are valid from then on.
class ShmLayout {
 public:
  /// Number of input slots, and number of result slots, of a lane. Two of each: one is filled while peers read the
  /// other.
  static constexpr int kSlots = 2;
  /// Number of exchange slots: all input and result slots of a lane, used round-robin. With two ranks the peer
  /// overwrites the input in a slot with the result (see Pipeline).
  static constexpr int kExchangeSlots = 2 * kSlots;
  static constexpr std::size_t kHierarchyBufferBytes = std::size_t{64} << 10;

  /// @param size  ranks on this host   @param lanes  kLanes in communicators of several hosts, fewer otherwise
  ShmLayout(int size, int lanes, std::size_t slot_bytes)
      : size_(static_cast<std::size_t>(size)),
        lanes_(static_cast<std::size_t>(lanes)),
        slot_bytes_(slot_bytes),
        blocks_(size_) {}

  /// Bytes that a rank allocates: block, release flags, slots and buffers.
  std::size_t block_bytes() const {
    const std::size_t hierarchy_buffer = lanes_ == kLanes ? kHierarchyBufferBytes : 0;
    return staging_offset() + lanes_ * (kExchangeSlots * slot_bytes_ + hierarchy_buffer);
  }
  std::size_t slot_bytes() const { return slot_bytes_; }

  /// Sets the address of a rank's block, as mapped in this process.
  void place(int local, ShmBlock* block) {
    blocks_[static_cast<std::size_t>(local)] = {block, reinterpret_cast<std::byte*>(block) + staging_offset()};
  }
  ShmBlock& block(int local) const { return *blocks_[static_cast<std::size_t>(local)].control; }
  ShmBlock::Lane& lane(int local, int lane) const { return block(local).lanes[static_cast<std::size_t>(lane)]; }
  /// The release flags of a block, by local rank.
  static std::atomic<std::uint64_t>* release_flags(ShmBlock* block) {
    return reinterpret_cast<std::atomic<std::uint64_t>*>(block + 1);
  }

  /// The input slot of a slice. Slices that are kSlots apart share a slot.
  std::byte* input_slot(int local, int lane, std::uint64_t slice) const {
    return slot(local, lane, slice % kSlots * 2);
  }
  std::byte* result_slot(int local, int lane, std::uint64_t slice) const {
    return slot(local, lane, slice % kSlots * 2 + 1);
  }
  std::byte* exchange_slot(int local, int lane, std::uint64_t slice) const {
    return slot(local, lane, slice % kExchangeSlots);
  }
  /// A rank's buffer for the HostGather of a lane, kHierarchyBufferBytes long.
  std::byte* hierarchy_buffer(int local, int lane) const {
    const auto index = static_cast<std::size_t>(lane);
    return slot(local, static_cast<int>(lanes_), 0) + index * kHierarchyBufferBytes;
  }

 private:
  struct Block {
    ShmBlock* control = nullptr;
    std::byte* staging = nullptr;  // the first slot
  };
  std::size_t staging_offset() const {
    const std::size_t flags = size_ * sizeof(std::atomic<std::uint64_t>);
    return sizeof(ShmBlock) + (flags + kLineBytes - 1) / kLineBytes * kLineBytes;
  }
  std::byte* slot(int local, int lane, std::uint64_t index) const {
    index += static_cast<std::size_t>(lane) * kExchangeSlots;
    return blocks_[static_cast<std::size_t>(local)].staging + index * slot_bytes_;
  }

  const std::size_t size_, lanes_;
  const std::size_t slot_bytes_;
  std::vector<Block> blocks_;  // by local rank
};

}  // namespace farandole
