// SPDX-License-Identifier: Apache-2.0
// How far the other ranks of a communicator are.
#pragma once

#include <cstdint>
#include <string>

#include "communicator/work_state.h"
#include "farandole/core/settings.h"
#include "operation/group.h"

namespace farandole {

/// Messages of a rank that shut down cleanly may still be on their way for this long.
inline constexpr Seconds kGoodbye{1.0};

/// Questions of one rank about its peers: which peers have begun a collective, and which have left the job. The queue's
/// mutex guards all functions.
class PeerQueries {
 public:
  /// @param group  outlives this object
  explicit PeerQueries(const Group& group) : group_(group) {}

  /// Sends the question how far they are to the ranks whose messages `work` waits for. @param all  and to all others
  void ask(const Work::State& work, bool all) const;
  /// True if a rank whose messages `work` waits for has shut down cleanly, and its last messages have had time to
  /// arrive.
  bool waits_for_rank_that_left(const Work::State& work) const;
  /// Text with the ranks that have not begun `work`, as far as is known; empty if all ranks have.
  std::string describe_missing(const Work::State& work) const;
  /// True if a peer has begun collective `sequence`, which this rank has not begun. Non-blocking.
  bool have_started(const ShmContext& host, std::uint64_t sequence) const;

 private:
  const Group& group_;
};

}  // namespace farandole
