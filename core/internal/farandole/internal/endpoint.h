// SPDX-License-Identifier: Apache-2.0
// An endpoint is one rank's slot in the job: which ranks its peers are, how to reach them, and whether all is well.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "farandole/core/error.h"
#include "farandole/core/export.h"
#include "farandole/internal/blocked_calls.h"
#include "farandole/internal/flight_recorder.h"
#include "farandole/internal/progress.h"
#include "farandole/internal/shared_memory.h"
#include "farandole/internal/waiter.h"
#include "farandole/sdk/backend.h"

namespace farandole FARANDOLE_API {

class Job;

/// Made by a World, one per rank of the process. Thread-safe. After its World it still knows its ranks; what
/// needs the job raises InvalidArgument.
class Endpoint {
 public:
  Endpoint(Job& job, int rank);
  /// Keeps it valid beyond its World.
  std::shared_ptr<Endpoint> share();

  int rank() const { return rank_; }
  const Topology& topology() const;
  const Settings& settings() const;
  /// What rank 0 has read from the file of FARANDOLE_TUNING; empty if that is not set.
  const std::string& tuning_text() const;
  /// The best transport to another rank of the job. @throws InvalidArgument  the World has ended
  Transport& route(int peer) const;
  /// The memory that this process shares with its peers on the host.
  SharedMemory& memory() const;
  /// True if all processes of that host have mapped each other's memory (and FARANDOLE_SHARED_MEMORY is on).
  bool shares_memory(int host_index) const;
  /// The vendor's collectives among these ranks, or null if some share a process or there is no vendor. Collective,
  /// blocks.
  std::unique_ptr<VendorCollectives> vendor_collectives(std::span<const int> ranks, std::uint16_t communicator) const;

  // Waiting.
  Doorbell& doorbell() { return doorbell_; }
  /// Wakes the threads that wait for this rank: its own thread and the progress thread.
  void ring();
  Waiter::Options waiting() const;
  /// From now on threads that wait for this rank look every 50 µs at least: completion of what a device does is seen in
  /// no other way.
  void set_polled() { is_polled_.store(true, std::memory_order_relaxed); }
  /// Adds work that moves on while its owner computes, until its owner lets go of it: by the progress thread, and by
  /// every call that waits (`advance_attached`). Where the vendor allows only the main thread there are only the calls.
  void attach(const std::weak_ptr<Progressable>& work);
  /// Closes all work of this rank, because the World ends.
  void close_attached();
  /// False: the vendor allows only the main thread.
  bool usable_from_any_thread() const;
  /// Tells the progress thread, if there is one, that there is something to advance.
  void wake_progress();
  /// True once the progress thread runs: it looks after all attached work that is pending, every 100 ms at least.
  bool has_running_progress() const;
  /// An asynchronous operation begins, which the progress thread may advance; and has ended, before its owner is
  /// notified of it.
  void begin_operation();
  void end_operation();
  /// With MPI_THREAD_SERIALIZED the program may call MPI while nothing is pending. An operation's owner is notified of
  /// its end only when this is true: false while nothing is pending and the progress thread is still at work.
  bool is_quiet() const;
  /// Returns soon.
  void wait_until_quiet() const;
  /// True: the vendor allows one thread at a time, and the program may be one of them.
  bool shares_vendor_with_program() const;
  /// Advances all work of this rank, where there is more than the caller's own.
  void advance_attached();

  /// True in a process that was forked from this rank's: it must not use anything of the rank, nor take it apart.
  bool is_forked_child() const;
  /// @throws InvalidArgument  in such a process
  void check_process() const;

  // Faults. The first fault of the job is what every rank raises from then on.
  /// @throws Error  the job's fault, if there is one, or as check_process. One relaxed load while there is none.
  void check_fault() const;
  /// @throws InvalidArgument  the World has ended. For what a fault does not prevent.
  void check_world() const;
  /// `check_fault` as a question; sequentially consistent with `poison`.
  bool has_fault() const;
  /// Poisons the job on all ranks. Waits for no other rank; returns when the flight records are written and the fault
  /// can be raised. The first caller wins.
  void poison(ErrorKind kind, const std::string& text);
  /// The same by a PeerLost of this rank, which takes no further part. @param how  "failed with an exception"
  void give_up(std::string_view how);
  /// Reads control messages and looks whether local peers still live; poisons the job if one does not. For slow paths.
  void poll_health();

  // Late ranks.
  /// Publishes that this rank has entered collective `sequence` of `communicator`.
  void enter(std::uint16_t communicator, std::uint64_t sequence);
  /// Asks other processes how far their ranks are, at most 16 of them: those of the ranks that collective `sequence`
  /// waits for, then those of `others`. Answers come in through `poll_health`.
  void ask(std::uint16_t communicator, std::uint64_t sequence, std::span<const int> awaited,
           std::span<const int> others);
  /// The collectives that threads of this rank wait for.
  BlockedCalls& blocked() { return blocked_; }
  /// This rank has waited for long: looks whether the ranks that it waits for wait for it. If they do, poisons the job
  /// by a Mismatch that says so, or warns where another thread may still resolve it. Answers come in as those of `ask`.
  void search_cycle();
  /// Says whether this rank has entered its last collective. Ranks that wait in vain for one that has left raise
  /// PeerLost.
  void set_left(bool left);
  /// True if `rank` left at least `ago` ago: long enough for its last messages to have arrived.
  bool has_left(int rank, Seconds ago) const;
  /// Describes the ranks of `members` that have not entered `sequence`; empty if all have.
  std::string describe_missing(std::uint16_t communicator, std::uint64_t sequence, std::span<const int> members) const;

  // Communicator ids of this rank; agreed on by the ranks that make a communicator.
  std::vector<std::uint8_t> used_ids() const;
  /// Held while a communicator is made: ids that are agreed on must be taken before more are looked for.
  std::mutex& creation_mutex() { return creation_mutex_; }
  void take_id(std::uint16_t id);
  void release_id(std::uint16_t id);

  FlightRecorder& recorder() { return recorder_; }
  const FlightRecorder& recorder() const { return recorder_; }

 private:
  friend class Job;
  /// All attached work that there still is, if it is at least so much.
  std::vector<std::shared_ptr<Progressable>> attached(std::size_t at_least);

  Job& job_;
  const int rank_;
  Doorbell& doorbell_;
  std::atomic<bool> is_polled_{false};  // orders nothing
  FlightRecorder recorder_;
  BlockedCalls blocked_;
  std::mutex attached_mutex_;
  std::vector<std::weak_ptr<Progressable>> attached_;  // guarded by attached_mutex_
  // Sequence number last entered, by communicator id; written by this rank, read by any.
  std::vector<std::atomic<std::uint64_t>> entered_;
  std::mutex creation_mutex_;
  mutable std::mutex ids_mutex_;
  std::vector<std::uint8_t> ids_;  // guarded by ids_mutex_; 1: in use
};

}  // namespace FARANDOLE_API
