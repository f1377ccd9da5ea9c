// SPDX-License-Identifier: Apache-2.0
// An endpoint is a rank's interface to the job. Its parts: faults, waiting and progress, late ranks, communicator ids.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "farandole/core/error.h"
#include "farandole/core/export.h"
#include "farandole/core/settings.h"
#include "farandole/internal/blocked_calls.h"
#include "farandole/internal/call_reports.h"
#include "farandole/internal/communicator_ids.h"
#include "farandole/internal/flight_recorder.h"
#include "farandole/internal/progress.h"
#include "farandole/internal/shared_memory.h"
#include "farandole/internal/waiter.h"
#include "farandole/sdk/backend.h"

namespace farandole FARANDOLE_API {

class Job;

/// Faults of a rank's job, reached as `endpoint.faults()`. The first fault poisons the job: every rank raises it from
/// then on. Thread-safe.
class EndpointFaults {
 public:
  EndpointFaults(Job& job, int rank) : job_(job), rank_(rank) {}

  /// Throws if calls must not go on; else returns. Costs one load while there is no fault.
  /// @throws Error  the job's fault   @throws InvalidArgument  the World has ended, or as check_process
  void check() const;
  /// @throws InvalidArgument  the World has ended, or as check_process. For functions that work despite a fault.
  void check_world() const;
  /// @throws InvalidArgument  this process was forked from the rank's process
  void check_process() const;
  /// True in a process that was forked from the rank's process. Such a process must neither use nor destroy anything of
  /// the rank.
  bool is_forked_child() const;
  /// True if `check` would throw. Sequentially consistent with `poison`.
  bool exist() const;

  /// Poisons the job on all ranks. The first caller's fault counts. Returns once the fault can be raised and the flight
  /// records are written, after 2 s at the latest; does not wait for other ranks.
  void poison(ErrorKind kind, const std::string& text);
  /// Poisons the job with a PeerLost of this rank, which takes no further part. @param how  "failed with an exception"
  void give_up(std::string_view how);
  /// The rank, of any process, that found the job's fault; empty without a fault. If a rank fails by itself, the fault
  /// is that failure, so this rank's exception is the cause of the other ranks' errors. @pre  not in a forked child
  std::optional<int> finder() const;
  /// Reads control messages, and checks whether local peers are alive; poisons the job if a peer has died. For slow
  /// paths. Non-blocking.
  void poll();
  /// Polls for up to 20 ms, or until there is a fault. Call it before a device error poisons the job: if a peer dies,
  /// the vendor may report a device error before the peer's death is visible. Ranks raise the first fault of the job
  /// only, and the name of the dead rank says more than the device error. Never throws.
  void find_dead_peers();

 private:
  Job& job_;
  const int rank_;
};

/// Waiting and progress of one rank, reached as `endpoint.progress()`. A thread that waits for a collective sleeps on
/// the rank's doorbell and advances the attached work; while the program computes, the progress thread advances the
/// work. Thread-safe.
class EndpointProgress {
 public:
  EndpointProgress(Job& job, Doorbell& doorbell) : job_(job), doorbell_(doorbell) {}

  // Waiting.
  Doorbell& doorbell() { return doorbell_; }
  /// Wakes the threads that wait for this rank: the rank's own threads and the progress thread.
  void ring();
  /// Options of a Waiter that waits on the doorbell.
  Waiter::Options waiting() const;
  /// Shortens the sleeps of waiting threads from now on (Waiter::Options::polled), because completion on a device is
  /// seen by polling only.
  void set_polled() { is_polled_.store(true, std::memory_order_relaxed); }

  // Attached work.
  /// Attaches work until its owner releases it. The progress thread and every call that waits advance attached work. If
  /// the vendor allows only the main thread, only calls that wait advance it.
  void attach(const std::weak_ptr<Progressable>& work);
  /// Advances all work of this rank. No-op if the caller's own work is the only work.
  void advance_attached();
  /// Advances all work of this rank. For a caller that has no attached work of its own.
  void advance_all();
  /// Work that all communicators of this rank share, attached until the World ends. The first call makes it.
  std::shared_ptr<Progressable> shared_work(const std::function<std::shared_ptr<Progressable>()>& make);
  /// The shared work; null before it is made.
  std::shared_ptr<Progressable> shared_work();
  /// Closes all work of this rank, because the World ends.
  void close_attached();

  // The progress thread.
  /// False if the vendor allows only the main thread; then there is no progress thread.
  bool usable_from_any_thread() const;
  /// Tells the progress thread, if there is one, that there is work to advance.
  void wake();
  /// True once the progress thread runs. It checks the health of all pending work every 100 ms.
  bool is_running() const;

  // The vendor's library, if one thread at a time may call it (MPI_THREAD_SERIALIZED): see ProgressGate.
  /// Call when an asynchronous operation begins that the progress thread may advance.
  void begin_operation();
  /// Call when such an operation has ended, before its owner is notified.
  void end_operation();
  /// False while nothing is pending and the progress thread is still inside the library. Notify the owner of an
  /// operation of its end only once this is true, because the program may then call MPI.
  bool is_quiet() const;
  /// Waits until `is_quiet`, which is soon.
  void wait_until_quiet() const;
  /// True if one thread at a time may call the vendor's library, and the program's threads may be among the callers.
  bool shares_vendor_with_program() const;

 private:
  /// Locks all attached work that still exists; returns nothing if fewer than `at_least` items are attached.
  std::vector<std::shared_ptr<Progressable>> attached(std::size_t at_least);

  Job& job_;
  Doorbell& doorbell_;
  std::atomic<bool> is_polled_{false};  // relaxed: guards no other memory
  std::mutex attached_mutex_;
  std::vector<std::weak_ptr<Progressable>> attached_;  // guarded by attached_mutex_
  std::mutex shared_mutex_;
  std::shared_ptr<Progressable> shared_;  // guarded by shared_mutex_
};

/// Progress of ranks in collectives, reached as `endpoint.late_ranks()`. A rank publishes each collective that it
/// enters; a rank that has waited for long asks its peers, and describes the missing ranks in a warning or an error.
/// Thread-safe.
class LateRanks {
 public:
  LateRanks(Job& job, int rank);

  /// Publishes that this rank has entered collective `sequence` of `communicator`.
  void enter(std::uint16_t communicator, std::uint64_t sequence) {
    entered_[communicator].store(sequence, std::memory_order_relaxed);
  }
  /// Sequence number of the collective of `communicator` that this rank has entered last; 0 for an invalid id.
  std::uint64_t entered(std::uint32_t communicator) const;
  /// Asks at most 16 other processes how far their ranks are: first the processes of `awaited`, the ranks that
  /// collective `sequence` waits for; then the processes of ranks that earlier answers name; then the processes of
  /// `others`. Answers arrive through `EndpointFaults::poll`.
  void ask(std::uint16_t communicator, std::uint64_t sequence, std::span<const int> awaited,
           std::span<const int> others);
  /// Describes the ranks of `members` that have not entered `sequence`; empty if all ranks have entered it.
  std::string describe_missing(std::uint16_t communicator, std::uint64_t sequence, std::span<const int> members) const;

  /// The collectives in which threads of this rank are blocked.
  BlockedCalls& blocked() { return blocked_; }
  /// Call when this rank has waited for long: finds out whether the awaited ranks wait for this rank. If so, poisons
  /// the job with a Mismatch that describes the cycle, or warns if the cycle may still resolve. Answers arrive through
  /// `EndpointFaults::poll`.
  void search_cycle();

  /// Publishes whether this rank has entered its last collective. Ranks that wait in vain for a rank that has left
  /// raise PeerLost.
  void set_has_left(bool left);
  /// Messages of a rank that has left may still be on their way for this long.
  static constexpr Seconds kGoodbye{1.0};
  /// True if `rank` left more than kGoodbye ago: its last messages have arrived.
  bool has_left(int rank) const;

 private:
  Job& job_;
  const int rank_;
  BlockedCalls blocked_;
  std::vector<std::atomic<std::uint64_t>> entered_;  // by communicator id; written by this rank, read by any thread
};

/// A rank's interface to the job: who the rank is and how to reach its peers, and parts for everything else. The World
/// makes an endpoint for each rank of the process:
///
///   Endpoint& endpoint = world.endpoint();
///   endpoint.faults().check();
///   Transport& transport = endpoint.route(peer);
///
/// An endpoint that outlives its World (`share`) still knows its rank, topology and settings; functions that need the
/// job raise InvalidArgument. Thread-safe.
class Endpoint {
 public:
  /// @param chosen_device  see `chosen_device`
  Endpoint(Job& job, int rank, std::optional<int> chosen_device);
  /// Shared ownership, which keeps the endpoint valid beyond its World.
  std::shared_ptr<Endpoint> share();

  // Identity.
  int rank() const { return rank_; }
  const Topology& topology() const;
  const Settings& settings() const;
  /// Number of the device that the program has chosen for this rank (WorldOptions::devices).
  std::optional<int> chosen_device() const { return chosen_device_; }
  /// Text of the file of FARANDOLE_TUNING, read by rank 0; empty if the setting is empty.
  const std::string& tuning_text() const;

  // Routes.
  /// The best transport to another rank of the job. @throws InvalidArgument  the World has ended
  Transport& route(int peer) const;
  /// Memory that this process shares with its peers on the host.
  SharedMemory& memory() const;
  /// True if all processes of the host have mapped each other's memory, and FARANDOLE_SHARED_MEMORY is not off.
  bool shares_memory(int host_index) const;
  /// Makes the vendor's collectives among `ranks`; null if several of `ranks` share a process, or if the backend has no
  /// vendor. Collective over `ranks`, blocks.
  std::unique_ptr<VendorCollectives> vendor_collectives(std::span<const int> ranks, std::uint16_t communicator) const;

  // Parts.
  EndpointProgress& progress() { return progress_; }
  const EndpointProgress& progress() const { return progress_; }
  EndpointFaults& faults() { return faults_; }
  const EndpointFaults& faults() const { return faults_; }
  LateRanks& late_ranks() { return late_ranks_; }
  CommunicatorIds& communicator_ids() { return communicator_ids_; }
  /// Reports that peers have sent to this rank. Reports of other processes arrive through `EndpointFaults::poll`.
  CallReports& call_reports() { return call_reports_; }
  /// Sends a report to a rank of the job. Non-blocking. @throws TransportError
  void report_calls(int peer, const CommunicatorKey& communicator, const CallReport& report);
  FlightRecorder& recorder() { return recorder_; }
  const FlightRecorder& recorder() const { return recorder_; }

 private:
  Job& job_;
  const int rank_;
  const std::optional<int> chosen_device_;
  EndpointProgress progress_;
  EndpointFaults faults_;
  LateRanks late_ranks_;
  CommunicatorIds communicator_ids_;
  CallReports call_reports_;
  FlightRecorder recorder_;
};

}  // namespace FARANDOLE_API
