// SPDX-License-Identifier: Apache-2.0
// The protocol by which the processes of a job agree to end.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <set>
#include <vector>

#include "farandole/sdk/backend.h"

namespace farandole {

/// Tree of the processes that agree on a clean shutdown: the first process of each host is the parent of the host's
/// other processes, and process 0 is the parent of the first processes of the other hosts.
struct ShutdownTree {
  std::optional<int> parent;
  std::vector<int> children;
  static ShutdownTree of(const Topology& topology, int process);
};

/// Clean shutdown of a job, as a state machine that control messages advance.
///
/// Two rounds, each up and down the tree: a process that wants to end sends kLeave to its parent once all its children
/// have sent kLeave; when all children of process 0 have sent kLeave, kAllLeave goes down the tree. After round 1 every
/// process knows that all want to end, but none may end before round 2 has confirmed that all know. This tells a death
/// from a clean end: until a process has reported in round 2, every other process must be alive; from then on the
/// process watches its neighbours in the tree only. Every process has a neighbour, so a death is still detected. Sends
/// 4 (P - 1) messages in all for P processes. Not thread-safe.
class CleanShutdown {
 public:
  static constexpr std::size_t kRounds = 2;
  using Post = std::function<void(int process, const ControlMessage& control)>;
  CleanShutdown(const Topology& topology, int process, Post post);

  /// Starts the shutdown: this process does not use the job any more.
  void begin() { has_begun_ = true; }
  bool has_begun() const { return has_begun_; }
  /// Handles a kLeave or kAllLeave, which may arrive before `begin`.
  void handle(const ControlMessage& control);
  /// Advances as far as possible, non-blocking. Returns true if this process may end once its posted messages have
  /// left.
  bool advance();
  /// False if the process may have shut down cleanly.
  bool must_be_alive(int process) const;
  /// True in the last round, in which the final messages of a process may arrive after its death has been seen.
  bool is_in_last_round() const { return round_ > 0; }
  /// Neighbours in the tree that this process waits for.
  std::vector<int> waits_for() const;

 private:
  struct Round {
    std::set<int> ready;        // children that have sent kLeave
    bool has_reported = false;  // this process has sent kLeave to the parent
    bool is_over = false;       // the parent has sent kAllLeave
  };
  void post(int process, ControlMessage::Kind kind) const;
  bool all_ready() const { return rounds_[round_].ready.size() == tree_.children.size(); }

  const int process_;
  const ShutdownTree tree_;
  const Post post_;
  bool has_begun_ = false;
  std::size_t round_ = 0;
  Round rounds_[kRounds + 1];  // the last element stays empty
};

}  // namespace farandole
