// SPDX-License-Identifier: Apache-2.0
// What the threads of a rank submit, until the thread that moves the engine on takes it.
#pragma once

#include <atomic>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "farandole/internal/endpoint.h"
#include "local_request.h"
#include "negotiator.h"

namespace farandole {

/// Thread-safe. `mutex_` guards everything but the atomics, and is held for moments: nothing that waits or calls back
/// is called with it.
///
/// The atomics are written with the mutex held and read without it, by threads that decide whether to drive or to
/// sleep:
/// - `has_some_` is stored after what it speaks of is in, and before the submitting thread rings (TensorEngine::wake)
///   or drives. A thread that sleeps has looked at it after it took the bell's count, so it has seen one of the two.
/// - `pending_` and `pending_waits_` rise before a request is handed over, and fall before its last callback.
/// - `requests_` and `many_submitters_` only grow. A reader may see each of them a moment late.
class Inbox {
 public:
  using Name = std::pair<int, std::string>;  ///< of a process set
  struct Join {
    int process_set = 0;
    void* context = nullptr;
    JoinCallback done = nullptr;
  };
  struct WaitedName {
    Name name;
    Waiting waiting = Waiting::kNobody;
  };
  struct Contents {
    std::vector<std::unique_ptr<LocalRequest>> requests;
    std::vector<Join> joins;
    std::vector<WaitedName> waited_names;  ///< for which one that comes after it waits
    bool leaves = false;
  };
  /// A process set as a thread that submits must know it.
  struct SetInfo {
    std::vector<int> ranks;
    bool is_member = false;
    Negotiator::Generation generation = Negotiator::kFirstGeneration;  ///< of this rank's callbacks that have run
  };

  /// @param rank  for messages   @param endpoint  outlives this
  Inbox(int rank, const Endpoint& endpoint) : endpoint_(endpoint), rank_(rank) {}

  /// @returns  true if nothing else of this rank is pending
  /// @throws InvalidArgument, DuplicateName, or the job's fault; then no callback comes
  bool submit(LocalRequest&& request);
  /// A request of kind kRefused, which no caller waits for. False: it can not be submitted.
  bool refuse(LocalRequest&& request);
  /// @throws InvalidArgument, or the job's fault
  void join(const Join& join);
  void leave();

  /// For the thread that drives.
  Contents take();
  /// Nothing more can be submitted: it throws this. The first one stays.
  void close(const RequestError& fault);

  void add_set(int process_set, SetInfo info);
  void remove_set(int process_set);
  void set_generation(int process_set, Negotiator::Generation generation);
  /// The set of these ranks, if there is one.
  std::optional<int> find_set(const std::vector<int>& ranks) const;
  std::optional<std::vector<int>> ranks_of(int process_set) const;
  std::vector<int> process_sets() const;
  /// kNoStep: there is no such set.
  Negotiator::Generation generation(int process_set) const;

  bool has_some() const { return has_some_.load(); }
  bool has_pending() const { return pending_.load() > 0; }
  std::uint64_t requests() const { return requests_.load(); }
  /// Grows with each request that is submitted, and with each that ends.
  std::uint64_t happenings() const { return 2 * requests_.load() - static_cast<std::uint64_t>(pending_.load()); }
  /// The one thread that ever submitted waits: nothing will come until something is done.
  bool submitter_waits() const { return pending_waits_.load() > 0 && !many_submitters_.load(); }

 private:
  /// A name that is in use here.
  struct NameInUse {
    RequestKind latest = RequestKind::kBarrier;     ///< of the last request of it
    std::list<std::unique_ptr<LocalRequest>> next;  ///< those that wait for the one that is under way
  };
  // All with the mutex held.
  void check(const LocalRequest& request) const;
  bool enter_name(std::unique_ptr<LocalRequest>& request);
  void hand_over(std::unique_ptr<LocalRequest> request);
  void leave_name(const Name& name);

  const Endpoint& endpoint_;
  const int rank_;
  mutable std::mutex mutex_;
  Contents contents_;
  std::map<Name, NameInUse> names_;
  std::map<int, SetInfo> sets_;
  std::optional<RequestError> fault_;
  std::optional<std::thread::id> submitter_;  // the first
  std::uint64_t next_ticket_ = 1;
  std::atomic<bool> many_submitters_{false};
  std::atomic<std::uint64_t> requests_{0};
  std::atomic<int> pending_{0}, pending_waits_{0};
  std::atomic<bool> has_some_{false};
};

}  // namespace farandole
