// SPDX-License-Identifier: Apache-2.0
// The engine of one rank: accepts requests from any thread and drives them to completion.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "engine_device.h"
#include "engine_health.h"
#include "farandole/collectives/communicator.h"
#include "farandole/internal/endpoint.h"
#include "inbox.h"
#include "local_request.h"
#include "process_sets.h"
#include "timeline.h"

namespace farandole {

/// Entry point of the engine for the C API. One instance per process and job.
///
/// Who drives. To *drive* is to advance negotiations and batches by one step without blocking, and then to run the
/// callbacks that are due. A thread that submits the only pending request, or waits for a request, drives the engine
/// itself, which saves a switch of threads. When no caller's thread drives, the engine's own thread does. It sleeps
/// while nothing is pending.
///
/// Locks. Submitting threads put requests into the inbox, which has its own mutex. The driver (the thread that drives)
/// holds `drive_mutex_`. Other threads that want to drive only try to lock it, because a failure means that the engine
/// has a driver already. The driver locks the inbox's mutex while it holds `drive_mutex_`, never the other way round.
/// Callbacks run while neither is locked.
///
/// Wake-ups. Threads decide by the atomics whether they may sleep. All are sequentially consistent; each thread first
/// writes the atomics that it owns, then reads the others:
/// - The driver stores `active_`, `next_wakeup_` and `has_left_` under `drive_mutex_`. A thread that stops driving
/// rings
///   `bell_` unless these values show that the engine is quiet. The engine's thread first reads the bell's count and
///   then these values, so it either sees new values or is woken by the ring.
/// - `drivers_` is incremented before a caller's thread drives, and decremented before that thread rings `bell_`. While
///   `drivers_` is not 0, the engine's thread leaves driving to the callers' threads.
/// - A thread in `wait_until` increments `waiters_` before it tests whether its wait is over and sleeps on the
/// endpoint's
///   doorbell. A thread that has run callbacks rings that doorbell unless `waiters_` is 0.
class TensorEngine {
 public:
  /// Collective over the communicator's ranks; blocks. The communicator must not be used for anything else.
  /// @param first_set  id of the first process set that is added, the same on all ranks; ids are never reused
  /// @throws Unsupported  MPI may be called by the main thread only, or the engine's thread cannot be started
  explicit TensorEngine(Communicator communicator, int first_set = FARANDOLE_GLOBAL_SET + 1);
  /// Stops the engine. Aborts the job if `leave` was not called before, except if the job is at fault already or has
  /// only one rank.
  ~TensorEngine();
  TensorEngine(const TensorEngine&) = delete;
  TensorEngine& operator=(const TensorEngine&) = delete;

  /// Makes a request ready for `submit`, see EngineDevice::prepare.
  void prepare(LocalRequest& request);
  /// Submits a request; may drive the engine, see farandole_submit.
  /// @throws InvalidArgument, DuplicateName, or the job's fault; then no callback is called
  void submit(LocalRequest&& request);
  /// Submits a request of kind kRefused, for which no caller waits. No-op if the refusal cannot be submitted.
  void refuse(LocalRequest&& request);
  /// Submits a join, see farandole_join. @throws InvalidArgument  this rank is not in the set; or the job's fault
  void join(int process_set, void* context, JoinCallback done);
  /// Drives the engine or sleeps until `done()` is true. Evaluates `done` whenever callbacks have run.
  void wait_until(const std::function<bool()>& done);
  /// Clean shutdown: blocks until all ranks have called it, or until the job has a fault.
  void leave();
  /// Poisons the job: every rank fails with PeerLost. Non-blocking.
  void abort(const std::string& text);

  /// Collective over the job; blocks. @throws InvalidArgument, Mismatch, or the job's fault
  int add_process_set(std::vector<int> ranks);
  void remove_process_set(int process_set);
  /// Submits a refusal in place of this rank's change of process sets, so that the other ranks fail instead of waiting.
  /// @throws InvalidArgument  always
  [[noreturn]] void refuse_set_change(const std::string& why);
  std::optional<std::vector<int>> ranks_of(int process_set) const { return inbox_.ranks_of(process_set); }
  std::vector<int> process_sets() const { return inbox_.process_sets(); }
  /// The generation for steps that begin now; 0: no such set.
  std::uint64_t generation(int process_set) const { return inbox_.generation(process_set); }

  const Communicator& communicator() const { return communicator_; }
  Buffer allocate(std::size_t bytes) { return communicator_.allocate(bytes, DType::kU8); }
  farandole_counters counters();

  /// No-op except on rank 0 of the job. @throws InvalidArgument  the file cannot be written
  void start_timeline(const std::string& path, bool mark_cycles);
  void stop_timeline() { timeline_.stop(); }

 private:
  /// Starts the timeline that FARANDOLE_TIMELINE asks for.
  void start_timeline_of_settings();
  /// Main function of the engine's thread.
  void run(const std::stop_token& stop);
  /// Unless another thread drives, advances once and runs the callbacks that are due. Returns true if anything
  /// advanced.
  bool drive();
  /// The part of `drive` that needs `drive_mutex_`; adds due callbacks to `due`. @throws Error  the job is at fault
  bool drive_locked(DueCallbacks& due);
  /// Drives on a submitting thread until no request is pending, until `end`, or until the thread would sleep.
  void drive_until(Clock::time_point end);
  /// Fails all pending requests and closes the inbox. Call it with `drive_mutex_` held.
  void fail(const RequestError& error);
  /// Runs the callbacks and wakes waiting threads. Returns true if there were any callbacks.
  bool deliver(DueCallbacks& due);
  /// Checks peers, stalls and idleness. Threads that are about to sleep call it.
  void poll_health();
  /// Submits a change of process sets and waits for the result. Collective over the job; blocks. @returns  the set's id
  std::int64_t run_set_request(RequestKind kind, std::vector<std::int64_t> arguments);
  /// True if this rank is blocked, that is, submits nothing before a pending request is done (see Negotiator::open).
  bool is_blocked() const { return inbox_.submitter_waits() || health_.is_idle(inbox_.progress_count()); }
  /// True if nothing waits for other ranks, for data or for a time.
  bool is_quiet() const { return !active_.load() && next_wakeup_.load() == Clock::time_point::max(); }
  /// Rings both doorbells on which the engine's thread may sleep.
  void wake();

  Communicator communicator_;
  Endpoint& endpoint_;
  EngineDevice device_;
  Timeline timeline_;
  Inbox inbox_;

  std::mutex drive_mutex_;  // guards sets_ and health_, and writes to the three atomics after them
  ProcessSets sets_;
  EngineHealth health_;
  std::atomic<bool> active_{false}, has_left_{false};
  std::atomic<Clock::time_point> next_wakeup_{Clock::time_point::max()};

  Doorbell bell_;                // wakes the engine's thread, which sleeps while other threads drive or all is quiet
  std::atomic<int> drivers_{0};  // callers' threads that drive
  std::atomic<int> waiters_{0};  // threads in wait_until
  std::jthread thread_;
};

}  // namespace farandole
