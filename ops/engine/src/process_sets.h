// SPDX-License-Identifier: Apache-2.0
// The process sets of an engine: drives them, makes and removes them.
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

/// All process sets of which this rank is a member. Used only by the thread that holds TensorEngine::drive_mutex_; the
/// inbox has a copy of the facts that other threads need: which sets exist, and their generations.
///
/// Changes of sets are requests in the set of all ranks, so all ranks carry them out at the same point of the agreed
/// order, and number the sets alike. A set is removed in two steps: the ranks announce that they leave; the set goes
/// when all have left, because until then peers may wait in negotiations or collectives that need this rank.
///
/// A request is first in the inbox, then in its set, then in the result of `take_due`. After a fault of the job every
/// request takes the same path, with the fault as its error.
class ProcessSets {
 public:
  /// Makes the set of all ranks. Collective over them; blocks.
  /// @param communicator, inbox, timeline  must outlive this   @param first_set  id of the first set that is added
  ProcessSets(Communicator& communicator, Inbox& inbox, Timeline& timeline, int first_set);

  /// Passes the inbox's contents to the sets.
  void take_inbox(Clock::time_point now);
  /// Advances all sets. Non-blocking, except for agreed changes of sets, which are collective and block. True if
  /// anything advanced.
  /// @param blocked  see Negotiator::open   @throws Error  the job is at fault
  bool advance(bool blocked, Clock::time_point now);
  /// Fails everything in the sets and in the inbox after a fault of the job.
  void fail(const RequestError& error);
  /// The error of the last `fail`.
  const std::optional<RequestError>& fault() const { return fault_; }
  /// Moves the callbacks that are due to `to`.
  void take_due(DueCallbacks& to);

  /// Summary of the sets' state, from which threads decide whether to sleep.
  struct Status {
    bool is_active = false;  ///< a set waits for other ranks, or for data
    bool has_left = false;   ///< this rank has left the job, and all is done
    /// Time at which `advance` has work even if nothing arrives.
    Clock::time_point next_wakeup = Clock::time_point::max();
  };
  Status status() const;

  /// A set, and since when a request or a negotiation waits there.
  struct LongestWait {
    int id = 0;
    SetEngine* set = nullptr;
    Clock::time_point since{};
  };
  /// The set in which something has waited longest; nothing if nothing waits.
  std::optional<LongestWait> longest_waiting() const;
  /// True if somebody waits for a request and no data is in flight.
  bool waits_for_peers() const;
  /// Announces to the peers in all sets that this rank has become idle.
  void announce_idle();
  /// Counts of all sets, removed sets included; fields that other classes count are 0.
  farandole_counters counters() const;

 private:
  /// An agreed removal of a set, and its request on this rank.
  struct Removal {
    int process_set = 0;
    BatchEntry entry;
  };
  /// Carries out the agreed changes of sets. Blocks. True if there were any.
  bool change_sets();
  void change_set(BatchEntry entry);
  int add_set(const std::vector<int>& ranks);
  /// Completes removals of sets that all ranks have left. True if there were any.
  bool end_removals();
  /// Makes the callbacks due of a request that is in no set.
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
