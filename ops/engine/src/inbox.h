// SPDX-License-Identifier: Apache-2.0
// Queue between the threads that submit and the thread that drives the engine.
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

/// Holds submitted requests and joins until the driver (the thread that drives the engine) takes them. Also keeps the
/// names in use, and a copy of the facts about process sets that submitting threads need. Thread-safe.
///
/// `mutex_` guards everything but the atomics, and is held briefly, never while a thread waits or runs a callback.
///
/// The atomics are written under the mutex, and read without the mutex by threads that decide whether to drive or
/// sleep:
/// - `has_items_` is set after the item is in `contents_`, and before the submitting thread rings the doorbell
///   (TensorEngine::wake) or drives. A thread that is about to sleep first reads the doorbell's count and then
///   `has_items_`, so it notices either the flag or the ring.
/// - `pending_` and `pending_waits_` are incremented before a request is handed over, and decremented before the
///   request's last callback.
/// - `requests_` and `many_submitters_` only grow. A reader may see an old value.
class Inbox {
 public:
  using Name = std::pair<int, std::string>;  ///< id of a process set, and a name in the set
  struct Join {
    int process_set = 0;
    void* context = nullptr;
    JoinCallback done = nullptr;
  };
  /// Name of a request for which somebody waits, and which is queued behind an earlier request of its name.
  struct WaitedName {
    Name name;
    Waiting waiting = Waiting::kNobody;
  };
  /// Items that were submitted since the driver last took them.
  struct Contents {
    std::vector<std::unique_ptr<LocalRequest>> requests;
    std::vector<Join> joins;
    std::vector<WaitedName> waited_names;
    bool leaves = false;
  };
  /// Facts about a process set that submitting threads need.
  struct SetInfo {
    std::vector<int> ranks;
    bool is_member = false;
    /// Incremented before the callbacks of a failed step run.
    Negotiator::Generation generation = Negotiator::kFirstGeneration;
  };

  /// @param rank  for messages   @param endpoint  must outlive this
  Inbox(int rank, const Endpoint& endpoint) : endpoint_(endpoint), rank_(rank) {}

  /// Submits a request. @returns  true if this is the only pending request of the rank
  /// @throws InvalidArgument, DuplicateName, or the job's fault; then no callback is called
  bool submit(LocalRequest&& request);
  /// Submits a request of kind kRefused, for which no caller waits. Returns false if the refusal cannot be submitted.
  bool refuse(LocalRequest&& request);
  /// Submits a join. @throws InvalidArgument  this rank is not in the set; or the job's fault
  void join(const Join& join);
  /// Asks the driver to leave the job.
  void leave();

  /// Removes and returns all items. For the driver.
  Contents take();
  /// Makes later submissions throw `fault`; the fault of the first call counts.
  void close(const RequestError& fault);

  // The driver calls the next three functions to keep the facts about process sets up to date.
  void add_set(int process_set, SetInfo info);
  void remove_set(int process_set);
  void set_generation(int process_set, Negotiator::Generation generation);
  /// The id of the set of these ranks; nothing if there is no such set.
  std::optional<int> find_set(const std::vector<int>& ranks) const;
  std::optional<std::vector<int>> ranks_of(int process_set) const;
  std::vector<int> process_sets() const;
  /// The set's generation; kNoStep if there is no such set.
  Negotiator::Generation generation(int process_set) const;

  bool has_items() const { return has_items_.load(); }
  bool has_pending() const { return pending_.load() > 0; }
  std::uint64_t requests() const { return requests_.load(); }
  /// Number of submitted requests plus number of ended requests: changes whenever the engine makes progress.
  std::uint64_t progress_count() const { return 2 * requests_.load() - static_cast<std::uint64_t>(pending_.load()); }
  /// True if one thread has submitted all requests and now waits: nothing will be submitted until a request is done.
  bool submitter_waits() const { return pending_waits_.load() > 0 && !many_submitters_.load(); }

 private:
  /// Requests of this rank with the same name: the current request, and the requests queued behind it.
  struct NameInUse {
    RequestKind latest = RequestKind::kBarrier;     ///< kind of the latest request of the name, queued ones included
    std::list<std::unique_ptr<LocalRequest>> next;  ///< requests that wait until the current request has ended
  };
  // Call the private functions with the mutex held.
  /// @throws InvalidArgument  the request's set or generation is wrong; or the job's fault
  void check(const LocalRequest& request) const;
  bool acquire_name(std::unique_ptr<LocalRequest>& request);
  /// Gives the request a ticket and puts it into `contents_`.
  void hand_over(std::unique_ptr<LocalRequest> request);
  void release_name(const Name& name);

  const Endpoint& endpoint_;
  const int rank_;
  mutable std::mutex mutex_;
  Contents contents_;
  std::map<Name, NameInUse> names_;
  std::map<int, SetInfo> sets_;
  std::optional<RequestError> fault_;
  std::optional<std::thread::id> submitter_;  // first thread that submitted
  std::uint64_t next_ticket_ = 1;
  std::atomic<bool> many_submitters_{false};
  std::atomic<std::uint64_t> requests_{0};
  std::atomic<int> pending_{0}, pending_waits_{0};
  std::atomic<bool> has_items_{false};
};

}  // namespace farandole
