// SPDX-License-Identifier: Apache-2.0
// The engine of one rank: takes requests from any thread, and moves them on.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "farandole/collectives/communicator.h"
#include "farandole/internal/endpoint.h"
#include "local_request.h"
#include "set_engine.h"
#include "standstill.h"
#include "timeline.h"

namespace farandole {

/// A thread that has time moves the engine on: one that submits or waits does it itself, which costs no switch of
/// threads; when nobody does, the engine's own thread. It sleeps while nothing is pending.
///
/// `inbox_mutex_` is held for moments; `drive_mutex_` by the thread that moves the sets on. Callbacks run with neither.
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
  /// Leaves in good order: waits for all ranks, or for the job's fault.
  void leave();
  void abort(const std::string& text);

  /// Collective over the job; blocks. @throws InvalidArgument, Mismatch, …
  int add_process_set(std::vector<int> ranks);
  void remove_process_set(int process_set);
  std::optional<std::vector<int>> ranks_of(int process_set);
  /// What ranks have to agree on, this one can not do. @throws InvalidArgument
  [[noreturn]] void refuse_set_change(const std::string& why);
  std::vector<int> process_sets();
  /// The generation of steps that begin now; 0: there is no such set.
  std::uint64_t generation(int process_set);

  const Communicator& communicator() const { return communicator_; }
  Buffer allocate(std::size_t bytes) { return communicator_.allocate(bytes, DType::kU8); }
  farandole_counters counters();

  /// Does nothing but on rank 0 of the job. @throws InvalidArgument  the file can not be written
  void start_timeline(const std::string& path, bool mark_cycles);
  void stop_timeline() { timeline_.stop(); }

 private:
  struct Join {
    int process_set = 0;
    void* context = nullptr;
    JoinCallback done = nullptr;
  };
  using Name = std::pair<int, std::string>;  // of a process set
  /// A name that is in use here.
  struct NameInUse {
    RequestKind latest = RequestKind::kBarrier;     ///< of the last request of it
    std::list<std::unique_ptr<LocalRequest>> next;  ///< those that wait for the one that is under way
  };
  struct SetInfo {
    std::vector<int> ranks;
    bool is_member = false;
    std::uint64_t generation = Negotiator::kFirstGeneration;  ///< of this rank's callbacks that have run
  };

  struct WaitedName {
    Name name;
    Waiting waiting = Waiting::kNobody;
  };

  void start_timeline_of_settings();
  void run(const std::stop_token& stop);
  /// Advances once, unless another thread does; then runs the callbacks that are due. True if something happened.
  bool drive();
  bool drive_locked(Due& due);
  void drive_for(std::chrono::microseconds budget, bool until_sleep);
  void take_inbox(Clock::time_point now);
  bool advance_sets(Clock::time_point now);
  void publish_generations();
  bool change_sets();
  void change_set(BatchEntry entry);
  int make_set(const std::vector<std::int64_t>& ranks);
  bool end_removals();
  void answer(BatchEntry entry, std::int64_t process_set, const std::optional<RequestError>& error);
  void collect(Due& due);
  void fail_all(const RequestError& error);
  /// Runs the callbacks. True if there were any.
  bool deliver(Due& due);
  void poll_health();
  void check_stall(Clock::time_point now);
  void check_standstill(Clock::time_point now);
  void check_submission(const LocalRequest& request) const;
  bool enter_name(std::unique_ptr<LocalRequest>& request);
  void hand_over(std::unique_ptr<LocalRequest> request);
  void leave_name(const Name& name);
  std::int64_t run_set_request(RequestSpec&& spec);
  bool is_blocked() const;
  std::uint64_t happenings() const;
  bool is_quiet() const { return !active_.load() && next_wakeup_.load() == Clock::time_point::max(); }
  void wake();

  Communicator communicator_;
  Endpoint& endpoint_;
  Timeline timeline_;

  std::mutex inbox_mutex_;  // guards the next eight, but for the atomics
  std::vector<std::unique_ptr<LocalRequest>> inbox_;
  std::vector<Join> joins_;
  std::vector<WaitedName> waited_names_;  // for which one that comes after it waits
  bool leaving_ = false;
  std::map<Name, NameInUse> names_;
  std::map<int, SetInfo> set_infos_;
  std::optional<RequestError> fault_;
  std::optional<std::thread::id> submitter_;
  std::atomic<bool> many_submitters_{false};
  std::atomic<std::uint64_t> next_ticket_{1}, requests_{0};
  std::atomic<int> pending_{0}, pending_waits_{0};
  std::atomic<bool> has_inbox_{false};

  struct Removal {
    int process_set = 0;
    BatchEntry entry;
  };
  std::mutex drive_mutex_;  // guards the next nine
  std::map<int, std::unique_ptr<SetEngine>> sets_;
  Due due_;                                // of what is of no set
  std::vector<Removal> removals_;          // of sets that their ranks are leaving
  farandole_counters removed_counters_{};  // of sets that are gone
  int next_set_;
  bool left_ = false;
  std::optional<RequestError> job_fault_;
  Clock::time_point stalled_since_ = Clock::time_point::max();
  Seconds warning_interval_{0};
  Standstill standstill_;
  // Of the last drive; written under `drive_mutex_`, read by threads that wonder whether to sleep.
  std::atomic<bool> active_{false}, has_left_{false};
  std::atomic<Clock::time_point> next_wakeup_{Clock::time_point::max()};

  Doorbell bell_;                // the engine's thread sleeps on it while others drive, or nothing is pending
  std::atomic<int> drivers_{0};  // threads of callers that drive
  std::atomic<int> waiters_{0};  // in wait_until
  std::jthread thread_;
};

}  // namespace farandole
