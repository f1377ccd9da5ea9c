// SPDX-License-Identifier: Apache-2.0
// Memory that all ranks of a communicator share, threads and processes alike: a file without a name, which the process
// that made the id of the communicator holds until all ranks have come. Every rank maps it for itself. So the thread
// sanitizer sees no order between ranks but what their streams make.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

#include "cuda/nccl_api.h"

namespace farandole::fake {

inline constexpr int kMaxRanks = 32;

enum class Collective : std::uint32_t { kNone, kAllReduce, kBroadcast, kReduce, kAllGather, kReduceScatter };

/// Parameters of a rank's collective, compared with its peers' parameters. All zero for point-to-point messages.
struct CollectiveCall {
  Collective kind = Collective::kNone;
  std::int32_t type = 0;
  std::int32_t op = 0;
  std::int32_t root = 0;
  std::uint64_t count = 0;
  bool operator==(const CollectiveCall&) const = default;
};
std::string text_of(const CollectiveCall& call);

struct MessageHeader {
  std::uint64_t bytes;
  CollectiveCall call;
  std::uint32_t is_alone;  ///< in no group
};

/// Messages of one rank to another, first in, first out. Each side writes what stands behind its name; numbers only
/// grow.
struct Channel {
  static constexpr std::size_t kRingBytes = std::size_t{32} << 10;
  static constexpr std::size_t kHeaders = 8;
  // The sender. Headers and the bytes of the ring are written before these (release), and read after them (acquire).
  alignas(64) std::atomic<std::uint64_t> announced;  ///< messages
  std::atomic<std::uint64_t> produced;               ///< bytes
  std::atomic<std::uint32_t> sender_connected;
  // The receiver. Slots are read before these (release), and written again after them (acquire).
  alignas(64) std::atomic<std::uint64_t> begun;  ///< messages whose receive has begun
  std::atomic<std::uint64_t> consumed;           ///< bytes
  std::atomic<std::uint32_t> receiver_connected;
  std::array<MessageHeader, kHeaders> headers;
  std::array<std::byte, kRingBytes> ring;
};

enum class RankState : std::uint32_t { kAbsent, kJoining, kHere };

struct RankSlot {
  std::atomic<RankState> state;  ///< kHere (release) after the rest
  int pid;
  std::size_t host;  ///< hash of NCCL_HOSTID, by which NCCL, too, takes processes of a machine for hosts
  int device;        ///< in the machine
};

/// Messages of collectives do not meet those of ncclSend and ncclRecv.
enum class MessageClass : std::uint8_t { kPointToPoint, kCollective };

struct Segment {
  std::uint64_t nonce;  ///< of the id
  std::atomic<std::uint32_t> size;
  std::atomic<std::uint32_t> here;    ///< ranks
  std::atomic<std::uint32_t> broken;  ///< 1: a rank writes why; 2: it has (release)
  std::array<char, 256> why;
  std::array<RankSlot, kMaxRanks> ranks;
  Channel channels[2][kMaxRanks][kMaxRanks];

  Channel& channel(MessageClass kind, int from, int to) { return channels[static_cast<int>(kind)][from][to]; }
  /// All ranks will hear of a misuse that a rank has found; the first counts.
  void break_with(const std::string& text);
  /// The text, once there is one; else empty.
  std::string why_broken() const;
};

/// Makes the file of a new communicator. False if the system makes none.
bool make_id(cuda::ncclUniqueId& id);
/// Maps it; null if the id is none, or its maker has ended.
Segment* open_segment(const cuda::ncclUniqueId& id);
/// All ranks have mapped it: its maker, if it is this process, needs its file no longer.
void forget_id(const cuda::ncclUniqueId& id);
void close_segment(Segment* segment);

/// Descriptor that becomes readable when the process ends; -1 if the system has no such descriptors.
int watch_process(int pid);
/// True if the process of such a watch has ended.
bool has_ended(int watch);

}  // namespace farandole::fake
