// SPDX-License-Identifier: Apache-2.0
// Interface of a transport: messages between two ranks. Implemented by backends.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

#include "farandole/core/buffer.h"
#include "farandole/core/dtype.h"
#include "farandole/core/export.h"

namespace farandole FARANDOLE_API {

inline constexpr int kLanes = 4;                ///< maximum number of collectives of one communicator in flight
inline constexpr int kMaxCommunicators = 4096;  ///< communicator ids are below this; ids are recycled

/// Class of service of a message. Transports may ignore the class.
enum class Traffic : std::uint8_t {
  kShort,  ///< comparisons of calls, and collectives on short vectors
  kLong,   ///< collectives on long vectors; on a separate path they do not delay short messages
};
inline constexpr int kTraffics = 2;

/// A one-way, first-in-first-out path between two ranks of the job. Each communicator has kLanes lanes, so that several
/// of its collectives can be in flight. Messages have no tags: the n-th send of a channel matches the n-th receive.
///
/// Both ends post the messages of a lane in the same order, whatever their traffic. So a transport may carry both
/// classes of traffic on the same path.
struct Channel {
  std::uint16_t communicator = 0;
  std::uint8_t lane = 0;
  int source = 0;  ///< sending rank, numbered in the job
  int target = 0;  ///< receiving rank, numbered in the job
  Traffic traffic = Traffic::kShort;
};

/// How a transport may still access the memory of a message that was withdrawn.
enum class BufferHazard : std::uint8_t {
  kNone,     ///< the transport is done with the memory
  kRead,     ///< the transport may read the memory: a send that was handed to the network
  kWritten,  ///< the transport may write the memory: a receive whose sender has stopped in the middle of the message
};

/// A posted send or receive, which makes progress in `test`:
///
///     std::unique_ptr<Transfer> receive = transport.recv(channel, data, bytes);
///     while (!receive->test()) do_something_else();
///
/// Destroying an incomplete transfer withdraws the message, unless `withdraw` was called before.
class Transfer {
 public:
  virtual ~Transfer() = default;
  /// Cancels the message; `test` is not called afterwards. A result other than kNone holds until the process ends: the
  /// caller must keep this object and the memory until then. May block briefly. Never throws.
  virtual BufferHazard withdraw() { return BufferHazard::kNone; }
  /// Makes progress, and returns true once the message is complete: sent data may be overwritten, received data is
  /// there. Non-blocking. @throws TransportError
  virtual bool test() = 0;
  /// Length of the received message, in bytes, after a receive by `recv_up_to` is complete.
  virtual std::size_t received_bytes() const { return 0; }
};

/// Cost of a message between two ranks, for the choice of algorithms: latency_us + bytes · us_per_byte.
struct LinkCost {
  double latency_us = 1.0;    ///< microseconds per message
  double us_per_byte = 1e-4;  ///< microseconds per byte sent
};

/// Maximum length of a message that is received by `recv_up_to`. A transport that splits long messages must not split
/// messages up to this length.
inline constexpr std::size_t kMaxUnknownBytes = std::size_t{1} << 20;

/// Moves bytes between pairs of ranks. Implement this to carry messages over a new network: `name`, `send`, `recv`,
/// `recv_up_to` and `has_arrived` are required, everything else has a default.
///
/// Rules: messages of one channel arrive in the order in which they were sent. Sender and receiver pass the same number
/// of bytes, except with `recv_up_to`. No function blocks: a transfer that waits for its peer stays incomplete.
/// Thread-safe.
class Transport {
 public:
  virtual ~Transport() = default;
  /// "tcp", for messages, tables and farandole-info.
  virtual std::string_view name() const = 0;

  /// Posts a send. `data` must stay unchanged until the transfer is complete. The transport need not buffer: the
  /// transfer may stay incomplete until the matching receive is posted.
  virtual std::unique_ptr<Transfer> send(const Channel& channel, const void* data, std::size_t bytes) = 0;
  /// Posts a receive of exactly `bytes` bytes.
  virtual std::unique_ptr<Transfer> recv(const Channel& channel, void* data, std::size_t bytes) = 0;
  /// Posts a receive of a message whose length the receiver does not know; if the message is longer than `max_bytes`,
  /// Transfer::test throws a TransportError. Transfer::received_bytes returns the length.
  /// @param max_bytes  size of `data` in bytes; at most kMaxUnknownBytes
  virtual std::unique_ptr<Transfer> recv_up_to(const Channel& channel, void* data, std::size_t max_bytes) = 0;
  /// Receives and reduces in a single pass: out[i] = operand[i] op incoming[i]. Called only if `fuses_reduction()`.
  virtual std::unique_ptr<Transfer> recv_reduce(const Channel& channel, void* out, const void* operand,
                                                std::size_t count, DType dtype, ReduceOp op);
  /// True if `recv_reduce` is implemented. Constant.
  virtual bool fuses_reduction() const { return false; }
  /// True if `send` and `recv` accept memory of this kind without a copy to the host. For device memory the caller
  /// binds the device to the thread (Device::run_bound) around `send`, `recv` and Transfer::test. Constant once the job
  /// is joined.
  virtual bool can_send(MemoryKind kind) const { return kind == MemoryKind::kHost; }
  /// True if a message for `target`, a rank of this process, has arrived in a lane, of either traffic, and no receive
  /// has been posted for the message. Non-blocking. @throws TransportError
  virtual bool has_arrived(std::uint16_t communicator, std::uint8_t lane, int target) = 0;
  /// True if only `test` notices that a message has arrived (MPI); false if the transport wakes sleeping threads.
  /// Threads that wait for messages of a polled transport sleep for short times only.
  virtual bool is_polled() const { return false; }
  /// Cost of this transport's messages. The same on all ranks, because the ranks choose algorithms by the cost.
  /// Constant once the job is joined.
  virtual LinkCost cost() const { return {}; }
  /// Bytes passed to `send` in this process since the transport was made.
  virtual std::uint64_t sent_bytes() const { return 0; }
};

}  // namespace FARANDOLE_API
