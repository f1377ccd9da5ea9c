// SPDX-License-Identifier: Apache-2.0
// Makes, drives and removes the process sets of an engine.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "farandole/collectives/communicator.h"
#include "inbox.h"
#include "local_request.h"
#include "set_engine.h"
#include "timeline.h"

namespace farandole {

/// All process sets of which this rank is a member. Used only by the thread that holds TensorEngine::drive_mutex_.
/// Other threads use the inbox's copy of the facts that they need: which sets exist, and their generations.
///
/// A change of sets (adding or removing one) is a request in the set of all ranks. So all ranks carry out the changes
/// at the same point of the agreed order, and give a set the same id. A set is removed in two steps: each member
/// announces that it leaves, and the set is destroyed when all members have left, because until then peers may wait in
/// negotiations or collectives that need this rank.
///
/// A request is first in the inbox, then in its set, then in the result of `take_due`. After a fault of the job every
/// request takes the same path, with the fault as its error.
class ProcessSets {
 public:
  /// Makes the set of all ranks. Collective over all ranks; blocks.
  /// @param communicator, inbox, timeline  must outlive this   @param first_set  id of the first set that is added
  ProcessSets(Communicator& communicator, Inbox& inbox, Timeline& timeline, int first_set);

  /// Passes the inbox's contents to the sets.
  void take_inbox(Clock::time_point now);
  /// Advances all sets. Returns true if anything advanced. Non-blocking, except for agreed changes of sets, which are
  /// collective and block.
  /// @param blocked  see Negotiator::open   @throws Error  the job is at fault
  bool advance(bool blocked, Clock::time_point now);
  /// Fails everything in the sets and in the inbox after a fault of the job.
  void fail(const RequestError& error);
  /// The error of the last `fail`.
  const std::optional<RequestError>& fault() const { return fault_; }
  /// Moves the callbacks that are due to `to`.
  void take_due(DueCallbacks& to);

  /// Summary of the sets' state. Threads decide by it whether to sleep.
  struct Status {
    bool is_active = false;  ///< a set waits for other ranks, or for data
    bool has_left = false;   ///< this rank has left the job, and all its requests are done
    /// Time at which `advance` has work even if nothing arrives.
    Clock::time_point next_wakeup = Clock::time_point::max();
  };
  Status status() const;

  /// A set, and the time since which a request or a negotiation has waited in the set.
  struct LongestWait {
    int id = 0;
    SetEngine* set = nullptr;
    Clock::time_point since{};
  };
  /// Returns the set in which a request or a negotiation has waited longest; nothing if none waits.
  std::optional<LongestWait> longest_waiting() const;
  /// True if somebody waits for a request and no data is in flight.
  bool waits_for_peers() const;
  /// Announces to the peers in all sets that this rank has become idle.
  void announce_idle();
  /// Sums of the counts of all sets, removed sets included. Fields that other classes count are 0.
  farandole_counters counters() const;

 private:
  /// An agreed removal of a set, and its request on this rank.
  struct Removal {
    int process_set = 0;
    BatchEntry entry;
  };
  /// Carries out the agreed changes of sets. Blocks. Returns true if there were any.
  bool change_sets();
  void change_set(BatchEntry entry);
  int add_set(const std::vector<int>& ranks);
  /// Completes removals of sets that all ranks have left. Returns true if there were any.
  bool end_removals();
  /// Adds the callbacks of a request that is in no set to `due_`.
  void finish(std::vector<LocalTensor>& tensors, const std::optional<RequestError>& error,
              const std::vector<std::int64_t>& shape = {});

  Communicator& communicator_;
  Inbox& inbox_;
  Timeline& timeline_;
  std::map<int, std::unique_ptr<SetEngine>> sets_;  // by id
  std::vector<Removal> removals_;                   // removals that wait until all ranks have left the set
  DueCallbacks due_;                                // callbacks of requests that are in no set
  farandole_counters removed_counters_{};           // counts of removed sets
  int next_set_;
  bool leaves_ = false;
  std::optional<RequestError> fault_;
};

}  // namespace farandole
