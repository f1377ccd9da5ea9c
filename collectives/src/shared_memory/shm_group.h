// SPDX-License-Identifier: Apache-2.0
// The ranks of a communicator that live on this host, and the memory through which they meet.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "farandole/internal/shared_memory.h"
#include "operation/group.h"
#include "shared_memory/completion_count.h"
#include "shared_memory/recent_outputs.h"

namespace farandole {

/// Between what different ranks write: two cache lines, because processors fetch neighbours, too.
inline constexpr std::size_t kLineBytes = 128;
static_assert((kLanes & (kLanes - 1)) == 0);

/// A rank's arrival in an operation: one cache line, and behind it what is only written where calls differ. Every word
/// has one writer, and `number` only grows: a rank that reads its new value (acquire) sees the rest of that record
/// (release).
struct ArrivalRecord {
  static constexpr std::size_t kPayloadWords = 5;
  std::atomic<std::uint64_t> number;     ///< of the operation in which it arrived
  std::atomic<std::uint64_t> digest;     ///< of the descriptor
  std::atomic<std::uint64_t> completed;  ///< this rank has completed all operations up to here
  /// Of a one-shot collective the data itself, if it is that small; else where the buffers are.
  std::array<std::atomic<std::uint64_t>, kPayloadWords> payload;
  std::atomic<std::uint64_t> described;  ///< like `number`, once digests have been found to differ
  std::array<std::atomic<std::uint64_t>, 3> descriptor;

  /// Where the buffers can be reached, or kUnreachable.
  std::atomic<std::uint64_t>& input() { return payload[0]; }
  std::atomic<std::uint64_t>& output() { return payload[1]; }
  /// Of the input, for the kernel to copy it, or kUnreachable.
  std::atomic<std::uint64_t>& address() { return payload[2]; }
};
static_assert(offsetof(ArrivalRecord, described) == 64);

/// How many steps of its lane's operation a rank has taken. Two words, because one that holds both numbers is exhausted
/// within the life of a job. `number_` is written after the first step of its operation, so that no peer takes the
/// steps of an earlier one for its own.
class Progress {
 public:
  /// By the rank itself. @param order  of the store that shows it to the peers
  void publish(std::uint64_t number, std::uint64_t steps, std::memory_order order) {
    if (number_.load(std::memory_order_relaxed) == number) {
      steps_.store(steps, order);
    } else {
      steps_.store(steps, std::memory_order_relaxed);
      number_.store(number, order);
    }
  }
  /// By ranks that have not completed operation `number` yet: true once that many of its steps are published.
  bool has_reached(std::uint64_t number, std::uint64_t steps) const {
    return number_.load(std::memory_order_acquire) == number && steps_.load(std::memory_order_acquire) >= steps;
  }

 private:
  // The release of either pairs with the acquire of ranks that wait for steps.
  std::atomic<std::uint64_t> number_, steps_;
};

/// What a rank shows before a collective over several hosts, and what the first rank of the host answers, see
/// HostGather. `shown` and `answered` only grow.
struct MeetingRecord {
  static constexpr std::size_t kEntryWords = 4, kAnswerWords = 8;
  std::atomic<std::uint64_t> shown;  ///< number of the meeting
  std::array<std::atomic<std::uint64_t>, kEntryWords> entry;
  std::atomic<std::uint64_t> answered;  ///< the same
  std::array<std::atomic<std::uint64_t>, kAnswerWords> answer;
};

/// A rank's control block: one per communicator. kLineBytes apart, so that no line has two writers.
struct ShmBlock {
  struct alignas(kLineBytes) Lane {
    ArrivalRecord arrival;
    alignas(kLineBytes) Progress progress;
    /// 1 while this rank reads or writes buffers of its peers in place
    std::atomic<std::uint64_t> touching;
    alignas(kLineBytes) MeetingRecord meeting;
  };
  struct alignas(kLineBytes) Word {
    std::atomic<std::uint64_t> value;
  };
  std::array<Lane, kLanes> lanes;
  Word completed;  ///< as in the arrival record, but always the latest
  // Behind it: one word per rank, which that rank sets when it has let go of this block; then the staging memory.
};

/// One rank's view. Used by one thread at a time (the work queue's lock).
///
/// A rank may write its lines and staging memory of a lane for the next operation once all peers have completed the
/// last one of that lane. Calls that follow each other know that from the arrival records they have read anyway.
class ShmGroup {
 public:
  static constexpr std::uint64_t kUnreachable = ~0ULL;
  /// Publishes this rank's block. Never blocks.
  explicit ShmGroup(const Group& group);
  /// Lets go of the block. Its memory is used again when all peers have let go as well.
  ~ShmGroup();
  ShmGroup(const ShmGroup&) = delete;
  ShmGroup& operator=(const ShmGroup&) = delete;

  int size() const { return static_cast<int>(peers_.size()); }
  int rank() const { return rank_; }
  /// Rank in the communicator of local rank `local`.
  int member(int local) const { return peers_[static_cast<std::size_t>(local)].member; }
  /// Ranks of the job that are the peers of this one here. @param group  that this object was made of
  std::vector<int> peers_of(const Group& group) const;
  /// Bytes of staging memory that an operation has per slot, for input and for results.
  std::size_t slot_bytes() const { return slot_bytes_; }
  static constexpr int kSlots = 2;
  /// Vectors up to this size are one-shot.
  std::size_t one_shot_bytes() const { return one_shot_bytes_; }

  RecentOutputs& recent_outputs() { return recent_outputs_; }

  /// True once the blocks of all peers have been found. @throws TransportError  there is no room for the own one
  bool connect();
  bool is_connected() const { return found_ == size(); }
  ShmBlock::Lane& lane(int local, int lane) const {
    return peers_[static_cast<std::size_t>(local)].block->lanes[static_cast<std::size_t>(lane)];
  }
  std::byte* input_slot(int local, int lane, std::uint64_t slice) const {
    return slot(local, lane, slice % kSlots * 2);
  }
  std::byte* result_slot(int local, int lane, std::uint64_t slice) const {
    return slot(local, lane, slice % kSlots * 2 + 1);
  }
  /// All of them in turn, for an operation whose results take the place of the input.
  static constexpr int kExchangeSlots = 2 * kSlots;
  std::byte* exchange_slot(int local, int lane, std::uint64_t slice) const {
    return slot(local, lane, slice % kExchangeSlots);
  }

  /// Memory of a rank for a meeting in this lane; there is none unless the communicator has several hosts.
  static constexpr std::size_t kHierarchyBufferBytes = std::size_t{64} << 10;
  std::byte* hierarchy_buffer(int local, int lane) const {
    const auto index = static_cast<std::size_t>(lane);
    return slot(local, lanes(), 0) + index * kHierarchyBufferBytes;
  }

  /// True if another rank has arrived in operation `number` or a later one of its lane, or waits for this one before
  /// its collective. Never while not connected.
  bool peer_has_started_next(std::uint64_t number) const;

  /// What other ranks can reach a buffer by: an address if all are threads of this process, else its place in a window.
  std::uint64_t locate(const void* data, std::size_t bytes) const;
  std::byte* reach(int local, std::uint64_t place) const;
  /// Whether a chunk of this size is copied from another process's ordinary memory; the same on all ranks of the host.
  bool copies(std::size_t bytes) const { return bytes >= single_copy_bytes_; }
  /// As SharedMemory::copy_from.
  int copy_from(int local, std::uint64_t address, void* to, std::size_t bytes) const {
    return memory_.copy_from(peers_[static_cast<std::size_t>(local)].process, address, to, bytes);
  }

  /// Operations that may be in flight together. Two keep a rank busy where all share memory, and their staging memory
  /// stays in the caches; where collectives also wait for other hosts, as many as messages have lanes.
  int lanes() const { return static_cast<int>(last_lane_) + 1; }
  /// A collective has so many numbers, which share its lane.
  static constexpr std::uint64_t kNumbers = 16;
  static constexpr std::uint64_t first_number(std::uint64_t sequence) { return kNumbers * sequence; }
  /// The lane of operation `number`.
  int lane_of(std::uint64_t number) const { return static_cast<int>(number / kNumbers & last_lane_); }
  /// Takes up operation `number`, in the order of numbers or announced in that order, and returns what must have been
  /// completed by all before the lane may be written.
  std::uint64_t begin(int lane, std::uint64_t number) { return completion_.begin(lane, number); }
  /// Operation `number` may begin only after later ones have ended. Without this it would count as completed then, and
  /// the peers would take its lane too early.
  void announce(std::uint64_t number) { (void)begin(lane_of(number), number); }
  /// What was announced of the collective that has `number`, and has not begun, never will.
  void withdraw(std::uint64_t number);
  /// The first local rank that has not completed `number` yet, or -1.
  int first_behind(std::uint64_t number);
  void note_completed(int local, std::uint64_t completed);
  /// Everything up to here is complete on this rank.
  std::uint64_t completed() const { return completion_.completed(); }
  /// @param next  the operation that follows in this lane as a part of the same collective; 0: none
  void end(int lane, std::uint64_t next = 0);
  /// True if buffers are reached by their addresses: they are gone when their owner frees them, where windows stay.
  bool by_address() const { return by_address_; }
  /// Waits until no rank touches buffers of its peers in `lane`; after a fault, when no step begins any more. Short.
  void wait_until_buffers_unused(int lane) const;
  /// Wakes the peers, after a sequentially consistent store.
  void nudge() const;

  /// Scratch for the addresses of all ranks' inputs.
  std::span<const void*> pointers() { return pointers_; }

 private:
  struct Peer {
    int member = 0, process = 0, replica = 0;
    ShmBlock* block = nullptr;
    std::atomic<std::uint64_t>* released = nullptr;  // one per rank
    std::byte* staging = nullptr;
    Doorbell* doorbell = nullptr;
    Doorbell* progress = nullptr;
    std::uint64_t completed = 0;  // as far as this rank has read
  };
  std::byte* slot(int local, int lane, std::uint64_t index) const {
    index += static_cast<std::size_t>(lane) * kExchangeSlots;
    return peers_[static_cast<std::size_t>(local)].staging + index * slot_bytes_;
  }
  bool find(Peer& peer);
  void show_completed() const;

  Endpoint& endpoint_;
  SharedMemory& memory_;
  const std::uint16_t id_;
  std::uint64_t last_lane_ = 1;  // lanes are a power of two; all of them if there are other hosts
  const std::size_t slot_bytes_;
  const std::size_t one_shot_bytes_;
  const std::size_t single_copy_bytes_;
  std::vector<Peer> peers_;
  int rank_ = 0;
  int found_ = 0;
  bool by_address_;  // all are threads of this process
  std::uint64_t block_offset_ = 0;
  CompletionCount completion_;
  RecentOutputs recent_outputs_;
  std::vector<const void*> pointers_;
};

}  // namespace farandole
