// SPDX-License-Identifier: Apache-2.0
// Functions of communicators for the engine, the tools and the tests; programs need none of them.
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
/// Owns nothing: valid as long as a copy of the communicator lives. The rules of threads are Communicator's.
class CommunicatorAccess {
 public:
  /// @throws InvalidArgument  the communicator is default-constructed or moved from
  explicit CommunicatorAccess(const Communicator& communicator);

  /// This rank's slot in the job.
  Endpoint& endpoint() const;
  /// Settings of the job, as its ranks have agreed on them.
  const Settings& settings() const;

  /// Takes part in an allreduce that this rank cannot contribute to, so that no peer waits for this rank: the peers'
  /// allreduce fails with Mismatch before data is touched, whatever it is, and `Work::wait` of the result throws
  /// InvalidArgument with `why`. Collective. Non-blocking. @param values, op  for the peers' message; not accessed
  /// @throws InvalidArgument  with `why`, where the ranks do not compare their calls (FARANDOLE_CHECK=off), or this
  /// rank is the only one   @throws Error  the fault of the job
  Work refuse_allreduce(BufferView values, ReduceOp op, const std::string& why) const;
  /// True if calls on device memory with a stream are enqueued by the calling thread, without a comparison before: the
  /// device order is the caller's. Such a call cannot be refused on behalf of the peers.
  bool enqueues_directly() const;
  /// Makes the `_async` forms enqueue calls with a stream on the calling thread, as the blocking forms do, if
  /// `enqueues_directly`. Such a call returns a Work that is not valid(): later work of the stream waits for the call.
  /// A call that needs the host between its parts returns a Work as ever. Off by default; the same on all ranks.
  void start_directly(bool enabled) const;
  /// Number of calls that were enqueued directly only after the thread had waited for earlier calls to be enqueued.
  std::uint64_t direct_waits() const;
  /// This rank's device. Opens it. @throws InvalidArgument  there is none; says why
  Device& device() const;
  /// Host memory that the rank's device can access directly. Content undefined. Blocks while the driver allocates.
  /// @throws DeviceError  not enough memory   @throws Error  the job's fault
  Buffer allocate_pinned(std::size_t bytes) const;

  /// True if another rank has begun the next collective of this communicator and this rank has not. Non-blocking. Known
  /// after the first collective of the communicator. With FARANDOLE_CHECK=off some algorithms do not reach every rank;
  /// make the communicator with `CommunicatorOptions::compare` then.
  bool peer_has_started_next() const;
  /// Ranks that have not begun the oldest asynchronous collective that is pending here, as far as is known; each as in
  /// warnings: "rank 3 (host node7, pid 4711) has entered only collective 10". Empty if no collective is pending.
  /// Non-blocking.
  std::string describe_missing() const;

  /// Name of the transport between the ranks: "inproc", "mpi", "local", "tcp", or "inproc+" and one of the last three;
  /// the transport between hosts where there are several.
  std::string transport() const;
  /// Placement and transport that a tuning table must have been measured on to hold here.
  TuningShape tuning_shape() const;
  /// Name of the algorithm that would run for a vector of `bytes`, counted as farandole-bench counts them.
  std::string choose(Collective collective, std::size_t bytes, MemoryKind memory = MemoryKind::kHost) const;
  /// The same algorithm with the reason for the choice and all candidates, for farandole-info --explain. Several lines.
  std::string explain(Collective collective, std::size_t bytes, MemoryKind memory = MemoryKind::kHost) const;
  /// Bytes that this process has sent in messages to other processes. Data in shared memory is not counted.
  std::uint64_t sent_bytes() const;

  /// A communicator of this state; tests use it to give a communicator another past or other hosts.
  static Communicator make(std::shared_ptr<Communicator::State> state) { return Communicator(std::move(state)); }
  Communicator::State& state() const { return state_; }

 private:
  Communicator::State& state_;
};

inline CommunicatorAccess internals(const Communicator& communicator) {
  return CommunicatorAccess(communicator);
}

}  // namespace FARANDOLE_API
