// SPDX-License-Identifier: Apache-2.0
// The process sets of an engine: they move on, and come and go by requests of the set of all ranks.
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

/// TensorEngine::drive_mutex_ guards all of it: the thread that holds it moves the sets on. What other threads must
/// know of the sets, which there are and their generations, is in the inbox.
///
/// A request is in the inbox, then in its set, then in what `take_due` returns. After a fault everything goes that way
/// with the fault as its error.
class ProcessSets {
 public:
  /// Makes the set of all ranks: collective over them; blocks.
  /// @param communicator, inbox, timeline  outlive this   @param first_set  id of the first set that is added
  ProcessSets(Communicator& communicator, Inbox& inbox, Timeline& timeline, int first_set);

  /// Hands what is in the inbox to the sets.
  void take_inbox(Clock::time_point now);
  /// Moves all sets on without blocking, but for what ranks have agreed on about sets: making one blocks. True if
  /// something happened. @param blocked  see Negotiator::open   @throws Error  the job is at fault
  bool advance(bool blocked, Clock::time_point now);
  /// The job is at fault: what is in the sets and in the inbox fails.
  void fail(const RequestError& error);
  /// The last one.
  const std::optional<RequestError>& fault() const { return fault_; }
  /// Adds the callbacks that have become due since they were last taken.
  void take_due(Due& to);

  /// What there is to do next.
  struct Outlook {
    bool is_active = false;  ///< something waits for other ranks, or for data
    bool has_left = false;   ///< this rank has left, and all is done
    Clock::time_point next_wakeup = Clock::time_point::max();
  };
  Outlook outlook() const;

  /// The set in which something has waited for the longest time, and since when.
  struct Waiting {
    int id = 0;
    SetEngine* set = nullptr;
    Clock::time_point since{};
  };
  std::optional<Waiting> longest_waiting() const;
  /// A caller waits for a request, and no data is on its way.
  bool waits_for_peers() const;
  /// This rank stands still: says so to its peers.
  void announce_idle();
  /// Of these sets and those that are gone; the rest is 0.
  farandole_counters counters() const;

 private:
  struct Removal {
    int process_set = 0;
    BatchEntry entry;
  };
  bool change_sets();
  void change_set(BatchEntry entry);
  int add_set(const std::vector<int>& ranks);
  bool end_removals();
  void finish(std::vector<LocalTensor>& tensors, const std::optional<RequestError>& error,
              const std::vector<std::int64_t>& shape = {});

  Communicator& communicator_;
  Inbox& inbox_;
  Timeline& timeline_;
  std::map<int, std::unique_ptr<SetEngine>> sets_;  // of which this rank is a member
  std::vector<Removal> removals_;                   // of sets that their ranks are leaving
  Due due_;                                         // of what is in no set any more
  farandole_counters removed_counters_{};           // of sets that are gone
  int next_set_;
  bool leaves_ = false;
  std::optional<RequestError> fault_;
};

}  // namespace farandole
