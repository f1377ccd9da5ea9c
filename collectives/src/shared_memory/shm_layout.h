// SPDX-License-Identifier: Apache-2.0
// Records that the ranks of a host share, and the addresses of control blocks, slots and buffers.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "farandole/sdk/transport.h"

namespace farandole {

/// Distance in bytes between words of different writers: two cache lines, because processors also fetch the
/// neighbouring line.
inline constexpr std::size_t kLineBytes = 128;

/// A rank's arrival in an operation. The first cache line holds everything that peers read while the calls of all ranks
/// agree; the second cache line is written only when the calls differ.
///
/// Only the record's owner writes. `number` and `described` only grow. The owner stores them (release) after the words
/// that they publish, so a peer that has read the new number (acquire) sees those words.
struct ArrivalRecord {
  static constexpr std::size_t kPayloadWords = 5;
  std::atomic<std::uint64_t> number;     ///< the operation in which the rank has arrived
  std::atomic<std::uint64_t> digest;     ///< of the rank's descriptor, which ranks compare
  std::atomic<std::uint64_t> completed;  ///< the rank has completed all operations up to this number
  /// A one-shot collective's data if they fit; in a pipeline the locations of the rank's buffers.
  std::array<std::atomic<std::uint64_t>, kPayloadWords> payload;
  std::atomic<std::uint64_t> described;  ///< the operation to which `descriptor` belongs
  std::array<std::atomic<std::uint64_t>, 3> descriptor;

  /// Locations of the buffers for PeerBuffers::resolve, or PeerBuffers::kUnreachable.
  std::atomic<std::uint64_t>& input() { return payload[0]; }
  std::atomic<std::uint64_t>& output() { return payload[1]; }
  /// Address of the input in the owner's process, for PeerBuffers::copy_from, or PeerBuffers::kUnreachable.
  std::atomic<std::uint64_t>& address() { return payload[2]; }
};
static_assert(offsetof(ArrivalRecord, described) == 64);

/// Number of steps that a rank has taken in the lane's current operation. Operation and steps have a 64-bit word each:
/// a single word for both would overflow within the life of a job.
///
/// `number_` changes with the first step of an operation, after `steps_`, so that peers do not count the steps of an
/// earlier operation.
class StepCounter {
 public:
  /// Called by the owner only. @param order  memory order of the store that makes the steps visible to the peers
  void publish(std::uint64_t number, std::uint64_t steps, std::memory_order order) {
    if (number_.load(std::memory_order_relaxed) == number) {
      steps_.store(steps, order);
    } else {
      steps_.store(steps, std::memory_order_relaxed);
      number_.store(number, order);
    }
  }
  /// True once the owner has published at least `steps` steps of operation `number`. Valid for a caller that has not
  /// completed operation `number` itself: until then the owner cannot go on to a later operation of the lane.
  bool has_reached(std::uint64_t number, std::uint64_t steps) const {
    return number_.load(std::memory_order_acquire) == number && steps_.load(std::memory_order_acquire) >= steps;
  }

 private:
  // The release store to either word pairs with the acquire loads in `has_reached`.
  std::atomic<std::uint64_t> number_, steps_;
};

/// A rank's record in a HostGather: the rank's contribution and, in the root's record, the result for all ranks. Both
/// numbers only grow.
struct GatherRecord {
  static constexpr std::size_t kContributionWords = 4, kResultWords = 8;
  std::atomic<std::uint64_t> contribution_number;  ///< the gather to which `contribution` belongs
  std::array<std::atomic<std::uint64_t>, kContributionWords> contribution;
  std::atomic<std::uint64_t> result_number;  ///< the gather to which `result` belongs; used in the root's record only
  std::array<std::atomic<std::uint64_t>, kResultWords> result;
};

/// A rank's control block in a communicator. Members are kLineBytes apart, so that no cache line has two writers. A
/// zero-filled block is a valid new block. ShmLayout describes the memory behind the block.
struct ShmBlock {
  struct alignas(kLineBytes) Lane {
    ArrivalRecord arrival;
    alignas(kLineBytes) StepCounter steps;
    /// 1 while this rank reads or writes buffers of peers in place; 0 otherwise.
    std::atomic<std::uint64_t> touching;
    alignas(kLineBytes) GatherRecord gather;
  };
  struct alignas(kLineBytes) Word {
    std::atomic<std::uint64_t> value;
  };
  std::array<Lane, kLanes> lanes;
  Word completed;  ///< as ArrivalRecord::completed, but always up to date
};

/// Turns (local rank, lane, slice) into an address in a communicator's memory on one host. Use it to find records,
/// slots and buffers; it never accesses them.
///
/// Each rank has a block in the arena of the rank's process:
///
///     ShmBlock           one ShmBlock::Lane per lane, and the completed count
///     release flags      one word per rank, which that rank sets when it no longer uses the block
///     slots              per lane 2 input slots and 2 result slots of slot_bytes() each ("staging memory")
///     hierarchy buffers  per lane kHierarchyBufferBytes, in communicators of several hosts only
///
/// Sizes are const after construction. ShmGroup calls `place` once it has found a rank's block; functions that take a
/// local rank are valid from then on.
class ShmLayout {
 public:
  /// Number of input slots, and of result slots, of a lane: the owner fills one slot while peers read the other.
  static constexpr int kSlots = 2;
  /// Number of exchange slots: with two ranks, all input and result slots of a lane, used round robin. The peer
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
