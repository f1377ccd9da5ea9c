// SPDX-License-Identifier: Apache-2.0
// Functions of communicators for the engine, the tools and the tests. Programs do not need them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "farandole/collectives/communicator.h"
#include "farandole/core/export.h"

namespace farandole FARANDOLE_API {

class Device;

/// View of a communicator for code inside Farandole: layers that drive a communicator from a thread of their own, as
/// the engine does, tools that report how a collective would run, and tests. Create the view where it is used:
///
///   if (internals(ranks).peer_has_started_next()) join(ranks);
///   fmt::print("{}", internals(ranks).explain(Collective::kAllreduce, 1 << 20));
///
/// Does not own the communicator: a copy of the communicator must outlive the view. Only one thread at a time, as for
/// Communicator.
class CommunicatorAccess {
 public:
  /// @throws InvalidArgument  the communicator is default-constructed or moved from
  explicit CommunicatorAccess(const Communicator& communicator);

  /// This rank's slot in the job.
  Endpoint& endpoint() const;
  /// Settings of the job, on which its ranks have agreed.
  const Settings& settings() const;

  /// Refuses an allreduce. Use it if this rank cannot contribute to an allreduce that its peers call, so that no peer
  /// waits for this rank. Whatever the arguments of the peers' allreduce are, it fails with Mismatch before data is
  /// touched. `Work::wait` of the result throws InvalidArgument with `why`. Collective. Non-blocking.
  /// @param values, op  describe the call in the peers' error; the data are not accessed
  /// @throws InvalidArgument  with `why`, if the ranks do not compare their calls (FARANDOLE_CHECK=off) or the
  /// communicator has one rank   @throws Error  the fault of the job
  Work refuse_allreduce(BufferView values, ReduceOp op, const std::string& why) const;
  /// True if the device order is the caller's: the calling thread enqueues calls on device memory with a stream,
  /// without a comparison before. `refuse_allreduce` cannot end such a call of the peers.
  bool enqueues_directly() const;
  /// Makes the `_async` forms enqueue calls with a stream on the calling thread, as the blocking forms do, if
  /// `enqueues_directly`. Such a call returns a Work that is not valid(), because later work of the stream waits for
  /// the call. A call that needs the host between its parts still returns a valid Work. Default: off. Must be the same
  /// on all ranks.
  void start_directly(bool enabled) const;
  /// Number of times that a direct call first waited until earlier calls in the queue were enqueued.
  std::uint64_t direct_waits() const;
  /// This rank's device. Opens the device. @throws InvalidArgument  there is no device; the text says why
  Device& device() const;
  /// Allocates pinned host memory, which the rank's device can access directly. Not initialised. Blocks while the
  /// driver allocates.
  /// @throws DeviceError  not enough memory   @throws Error  the job's fault
  Buffer allocate_pinned(std::size_t bytes) const;

  /// True if another rank has begun the next collective of this communicator and this rank has not. Non-blocking.
  /// Reliable only after the communicator's first collective. With FARANDOLE_CHECK=off some algorithms send no message
  /// to some ranks; make the communicator with `CommunicatorOptions::compare` then.
  bool peer_has_started_next() const;
  /// Text that lists the ranks known to have not begun the oldest collective that is pending on this rank, as warnings
  /// do: "rank 3 (host node7, pid 4711) has entered only collective 10". Empty if no collective is pending.
  /// Non-blocking.
  std::string describe_missing() const;

  /// Name of the transport between the ranks: "inproc", "mpi", "local", "tcp", or "inproc+" and one of the last three.
  /// If there are several hosts, the transport between the hosts.
  std::string transport() const;
  /// Placement and transport of this communicator. A tuning table applies if it was measured on the same shape.
  TuningShape tuning_shape() const;
  /// Name of the algorithm that would run for a vector of `bytes`, counted as farandole-bench counts them.
  std::string choose(Collective collective, std::size_t bytes, MemoryKind memory = MemoryKind::kHost) const;
  /// Text of several lines for farandole-info --explain: the algorithm of `choose`, the reason for the choice, and all
  /// candidates.
  std::string explain(Collective collective, std::size_t bytes, MemoryKind memory = MemoryKind::kHost) const;
  /// Bytes that this process has sent in messages to other processes, by the transports to the communicator's members.
  /// Data in shared memory is not counted.
  std::uint64_t sent_bytes() const;

  /// Makes a communicator of this state. Tests use it to set the communicator's sequence number or to simulate hosts.
  static Communicator make(std::shared_ptr<Communicator::State> state) { return Communicator(std::move(state)); }
  Communicator::State& state() const { return state_; }

 private:
  Communicator::State& state_;
};

inline CommunicatorAccess internals(const Communicator& communicator) {
  return CommunicatorAccess(communicator);
}

}  // namespace FARANDOLE_API
