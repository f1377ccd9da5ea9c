// SPDX-License-Identifier: Apache-2.0
// Transports move bytes between two ranks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

#include "farandole/core/buffer.h"
#include "farandole/core/dtype.h"
#include "farandole/core/export.h"

namespace farandole FARANDOLE_API {

inline constexpr int kLanes = 4;                ///< operations of one communicator that may be in flight together
inline constexpr int kMaxCommunicators = 4096;  ///< ids per rank; recycled

/// What the messages of a channel are part of.
enum class Traffic : std::uint8_t {
  kShort,  ///< comparisons of calls, and collectives on short vectors
  kLong,  ///< collectives on long vectors; where a transport has a way of its own for them, others do not wait for them
};
inline constexpr int kTraffics = 2;

/// A one-way, first-in-first-out path between two ranks of the job. Both ends begin the messages of a lane in one
/// order, whatever their traffic, so that a transport may carry both kinds one behind the other.
struct Channel {
  std::uint16_t communicator = 0;
  std::uint8_t lane = 0;
  int source = 0;  ///< rank in the job
  int target = 0;  ///< rank in the job
  Traffic traffic = Traffic::kShort;
};

/// What may still happen to the memory of a message that was withdrawn.
enum class BufferHazard : std::uint8_t {
  kNone,
  kRead,     ///< a send that the transport has handed to the network
  kWritten,  ///< a receive whose sender has stopped in the middle of the message
};

/// A message on its way. Destroying it before it is complete withdraws it, if `withdraw` has not.
class Transfer {
 public:
  virtual ~Transfer() = default;
  /// Gives it up; it is not tested any more. What is not kNone holds until the process ends, and for so long this
  /// object and the memory must stay. Blocks for a moment at most. Never throws.
  virtual BufferHazard withdraw() { return BufferHazard::kNone; }
  /// True once complete. Never blocks. @throws TransportError
  virtual bool test() = 0;
  /// Bytes that came. Of a receive by `recv_up_to` that is complete.
  virtual std::size_t received_bytes() const { return 0; }
};

/// What a message costs, for the choice of algorithms.
struct LinkCost {
  double latency_us = 1.0;    ///< per message
  double us_per_byte = 1e-4;  ///< per byte sent
};

/// Of a message that is received by `recv_up_to`; no transport cuts messages up to this length.
inline constexpr std::size_t kMaxUnknownBytes = std::size_t{1} << 20;

/// Moves bytes between pairs of ranks. Messages of one channel arrive in the order in which they were sent, and both
/// ends name the same number of bytes, but for `recv_up_to`. Thread-safe.
class Transport {
 public:
  virtual ~Transport() = default;
  virtual std::string_view name() const = 0;

  /// Starts a message. `data` stays unchanged until the transfer is complete; may wait for the receiver (unbuffered).
  virtual std::unique_ptr<Transfer> send(const Channel& channel, const void* data, std::size_t bytes) = 0;
  virtual std::unique_ptr<Transfer> recv(const Channel& channel, void* data, std::size_t bytes) = 0;
  /// The same for a message whose length its receiver can not know. A longer one is a TransportError.
  /// @param most  at most kMaxUnknownBytes
  virtual std::unique_ptr<Transfer> recv_up_to(const Channel& channel, void* data, std::size_t most) = 0;
  /// Receives and reduces in one pass: out[i] = operand[i] op incoming[i]. Only where `fuses_reduction()`.
  virtual std::unique_ptr<Transfer> recv_reduce(const Channel& channel, void* out, const void* operand,
                                                std::size_t count, DType dtype, ReduceOp op);
  virtual bool fuses_reduction() const { return false; }
  /// True if `send` and `recv` take memory of this kind as it is. For device memory, the thread that calls them, and
  /// tests what they return, has the device as its own (Device::run_bound). Constant once the job is joined.
  virtual bool can_send(MemoryKind kind) const { return kind == MemoryKind::kHost; }
  /// True if a message for `target`, a rank of this process, has arrived in a lane, of either traffic, and no receive
  /// has been posted for it. Never blocks. @throws TransportError
  virtual bool has_arrived(std::uint16_t communicator, std::uint8_t lane, int target) = 0;
  /// True if completion is only seen by polling (MPI); bounds the sleeps of threads that wait.
  virtual bool is_polled() const { return false; }
  virtual LinkCost cost() const { return {}; }
  /// Bytes that this process has handed over in `send`, since it was made.
  virtual std::uint64_t sent_bytes() const { return 0; }
};

}  // namespace FARANDOLE_API
