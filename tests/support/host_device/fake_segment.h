// SPDX-License-Identifier: Apache-2.0
// Memory that all ranks of a communicator share, whether threads or processes. It is a file without a name, which the
// process that made the communicator's id keeps open until all ranks have mapped it. Every rank has its own mapping, so
// the thread sanitizer sees no order between ranks except the order that their streams make.
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

/// Queue of messages from one rank to another, first in, first out. Sender and receiver each write only their own
/// fields, in which numbers only grow.
struct Channel {
  static constexpr std::size_t kRingBytes = std::size_t{32} << 10;
  static constexpr std::size_t kHeaders = 8;
  // Fields of the sender, which writes headers and the bytes of the ring before them (release). The receiver reads the
  // fields first (acquire).
  alignas(64) std::atomic<std::uint64_t> announced;  ///< number of messages
  std::atomic<std::uint64_t> produced;               ///< number of bytes
  std::atomic<std::uint32_t> sender_connected;
  // Fields of the receiver, which reads headers and bytes before it writes them (release). The sender reads the fields
  // (acquire) before it overwrites headers and bytes.
  alignas(64) std::atomic<std::uint64_t> begun;  ///< number of messages whose receive has begun
  std::atomic<std::uint64_t> consumed;           ///< number of bytes
  std::atomic<std::uint32_t> receiver_connected;
  std::array<MessageHeader, kHeaders> headers;
  std::array<std::byte, kRingBytes> ring;
};

enum class RankState : std::uint32_t { kAbsent, kJoining, kHere };

struct RankSlot {
  std::atomic<RankState> state;  ///< set to kHere (release) after the other fields
  int pid;
  std::size_t host;  ///< hash of NCCL_HOSTID: as in NCCL, processes with different values count as on different hosts
  int device;        ///< number among the devices of the machine
};

/// Separates the messages of collectives from those of ncclSend and ncclRecv.
enum class MessageClass : std::uint8_t { kPointToPoint, kCollective };

struct Segment {
  std::uint64_t nonce;  ///< equals that of the communicator's id
  std::atomic<std::uint32_t> size;
  std::atomic<std::uint32_t> here;    ///< number of ranks that have joined
  std::atomic<std::uint32_t> broken;  ///< 1: a rank writes `why`; 2: `why` is complete (release)
  std::array<char, 256> why;
  std::array<RankSlot, kMaxRanks> ranks;
  Channel channels[2][kMaxRanks][kMaxRanks];

  Channel& channel(MessageClass kind, int from, int to) { return channels[static_cast<int>(kind)][from][to]; }
  /// Reports a misuse, which a rank has found, to all ranks. The first call counts.
  void break_with(const std::string& text);
  /// Returns the text of the misuse; empty if none was reported.
  std::string why_broken() const;
};

/// Makes the file of a new communicator, and its id. Returns false if the system cannot make the file.
bool make_id(cuda::ncclUniqueId& id);
/// Maps the file of an id. Returns null if the id is invalid, or if the process that made it has ended.
Segment* open_segment(const cuda::ncclUniqueId& id);
/// Call once all ranks have mapped the file: closes the file if this process has made the id.
void forget_id(const cuda::ncclUniqueId& id);
void close_segment(Segment* segment);

/// Returns a descriptor that becomes readable when the process ends; -1 if the system has no such descriptors.
int watch_process(int pid);
/// True if the process has ended. @param watch  from watch_process
bool has_ended(int watch);

}  // namespace farandole::fake
