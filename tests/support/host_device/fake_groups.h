// SPDX-License-Identifier: Apache-2.0
// Groups of calls (ncclGroupStart to ncclGroupEnd): collect the calls of a thread until the group enqueues them.
#pragma once

#include <functional>
#include <vector>

#include "fake_collectives.h"
#include "fake_communicator.h"

namespace farandole::fake {

/// The group of one thread. Reports a group that is open when the thread ends.
class OpenGroup {
 public:
  ~OpenGroup();
  bool is_open() const { return depth_ > 0; }
  void start() { ++depth_; }
  /// Ends the innermost group. The end of the outermost group enqueues the calls; it blocks until new connections are
  /// made, for which the peers' groups must end, too.
  cuda::ncclResult_t end();
  /// Drops all calls of the group.
  void discard();

  /// Adds a call. A call outside of any group is a group by itself.
  cuda::ncclResult_t add(Communicator& communicator, Stream& stream, const char* name, PlannedCall call);
  /// Adds the blocking half of a join, which runs at the end of the group; outside of groups it runs immediately.
  cuda::ncclResult_t add_join(std::function<cuda::ncclResult_t()> wait_for_ranks);
  /// Notes that a call of the group has failed, so that the group fails, too. Returns the error.
  cuda::ncclResult_t note_failure(cuda::ncclResult_t error);

 private:
  struct Call {
    Communicator* communicator;
    Stream* stream;
    const char* name;
    PlannedCall plan;
  };
  cuda::ncclResult_t run();
  cuda::ncclResult_t enqueue();
  cuda::ncclResult_t collect(Communicator& communicator, bool is_alone, Communicator::Group& group);

  int depth_ = 0;
  cuda::ncclResult_t failure_ = cuda::ncclSuccess;
  std::vector<std::function<cuda::ncclResult_t()>> joins_;
  std::vector<Call> calls_;
};
OpenGroup& open_group();

}  // namespace farandole::fake
