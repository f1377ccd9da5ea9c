// SPDX-License-Identifier: Apache-2.0
// The engine of one rank: takes requests from any thread, and moves them on.
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

#include "engine_health.h"
#include "farandole/collectives/communicator.h"
#include "farandole/internal/endpoint.h"
#include "inbox.h"
#include "local_request.h"
#include "process_sets.h"
#include "timeline.h"

namespace farandole {

/// A thread that has time moves the engine on: one that submits or waits does it itself, which costs no switch of
/// threads; when no thread does, the engine's own thread. It sleeps while nothing is pending.
///
/// Threads leave what they submit in the inbox, which has a mutex of its own. `drive_mutex_` is held by the thread that
/// moves on what is in the sets; a thread that would drive only tries it, because another one drives already. The
/// driver takes the inbox's mutex while it holds its own, never the other way round. Callbacks run with neither.
///
/// The atomics decide which threads may sleep. All are sequentially consistent; each thread writes its own, then reads
/// what belongs to its peers:
/// - `active_`, `next_wakeup_` and `has_left_` are stored by the driver, with `drive_mutex_` held. A thread that stops
///   driving rings `bell_` unless they say that all is quiet; the engine's own thread reads them after it took the
///   bell's count, so it sees them, or is woken.
/// - `drivers_` rises before a thread of a caller drives, and falls before it rings. While it is not 0 the engine's own
///   thread leaves the engine to it.
/// - `waiters_` rises before a thread asks whether what it waits for is done, and sleeps on the endpoint's doorbell; it
///   is read by the thread that has run callbacks, which then rings.
class TensorEngine {
 public:
  /// Collective over the communicator's ranks; blocks. The communicator must not be used for anything else.
  /// @param first_set  id of the first process set that is added; ids are not used again. The same on all ranks
  /// @throws Unsupported  MPI allows only the main thread
  explicit TensorEngine(Communicator communicator, int first_set = FARANDOLE_GLOBAL_SET + 1);
  /// Without `leave` before it, the job is aborted if something is pending.
  ~TensorEngine();
  TensorEngine(const TensorEngine&) = delete;
  TensorEngine& operator=(const TensorEngine&) = delete;

  /// @throws InvalidArgument, DuplicateName, or the job's fault; then no callback comes
  void submit(LocalRequest&& request);
  /// A request of kind kRefused, which no caller waits for; does nothing if it can not be submitted.
  void refuse(LocalRequest&& request);
  void join(int process_set, void* context, JoinCallback done);
  /// Moves on until `done` says so; it is asked after every callback.
  void wait_until(const std::function<bool()>& done);
  /// Clean shutdown: waits for all ranks, or for the job's fault.
  void leave();
  void abort(const std::string& text);

  /// Collective over the job; blocks. @throws InvalidArgument, Mismatch, …
  int add_process_set(std::vector<int> ranks);
  void remove_process_set(int process_set);
  /// What ranks have to agree on, this one can not do. @throws InvalidArgument
  [[noreturn]] void refuse_set_change(const std::string& why);
  std::optional<std::vector<int>> ranks_of(int process_set) const { return inbox_.ranks_of(process_set); }
  std::vector<int> process_sets() const { return inbox_.process_sets(); }
  /// The generation of steps that begin now; 0: there is no such set.
  std::uint64_t generation(int process_set) const { return inbox_.generation(process_set); }

  const Communicator& communicator() const { return communicator_; }
  Buffer allocate(std::size_t bytes) { return communicator_.allocate(bytes, DType::kU8); }
  farandole_counters counters();

  /// Does nothing but on rank 0 of the job. @throws InvalidArgument  the file can not be written
  void start_timeline(const std::string& path, bool mark_cycles);
  void stop_timeline() { timeline_.stop(); }

 private:
  void start_timeline_of_settings();
  void run(const std::stop_token& stop);
  /// Advances once, unless another thread does; then runs the callbacks that are due. True if something happened.
  bool drive();
  bool drive_locked(Due& due);
  void drive_for(std::chrono::microseconds budget, bool until_sleep);
  void fail(const RequestError& error);
  /// Runs the callbacks. True if there were any.
  bool deliver(Due& due);
  void poll_health();
  /// Collective over the job; blocks. @returns  the id
  std::int64_t run_set_request(RequestKind kind, std::vector<std::int64_t> arguments);
  /// Nothing will come until something is done.
  bool is_blocked() const { return inbox_.submitter_waits() || health_.stands_still(inbox_.happenings()); }
  bool is_quiet() const { return !active_.load() && next_wakeup_.load() == Clock::time_point::max(); }
  void wake();

  Communicator communicator_;
  Endpoint& endpoint_;
  Timeline timeline_;
  Inbox inbox_;

  std::mutex drive_mutex_;  // guards the next two, and writing the three after them
  ProcessSets sets_;
  EngineHealth health_;
  std::atomic<bool> active_{false}, has_left_{false};
  std::atomic<Clock::time_point> next_wakeup_{Clock::time_point::max()};

  Doorbell bell_;                // the engine's thread sleeps on it while others drive, or nothing is pending
  std::atomic<int> drivers_{0};  // threads of callers that drive
  std::atomic<int> waiters_{0};  // in wait_until
  std::jthread thread_;
};

}  // namespace farandole
