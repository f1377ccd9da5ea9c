// SPDX-License-Identifier: Apache-2.0
// Groups of calls (ncclGroupStart to ncclGroupEnd): the calls that a thread has made and not enqueued yet.
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
  /// Ends the innermost group; the outermost one enqueues. Blocks until the peers of new connections do so, too.
  cuda::ncclResult_t end();
  /// Forgets all that was called.
  void discard();

  /// Adds a call; outside of groups it is a group by itself.
  cuda::ncclResult_t add(Communicator& communicator, Stream& stream, const char* name, PlannedCall call);
  /// Adds the second half of a join; outside of groups it comes immediately.
  cuda::ncclResult_t add_join(std::function<cuda::ncclResult_t()> wait_for_ranks);
  /// The group will fail as a call of it has. Returns the error.
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
