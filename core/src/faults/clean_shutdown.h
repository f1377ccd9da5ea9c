// SPDX-License-Identifier: Apache-2.0
// How the processes of a job end it together.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <set>
#include <vector>

#include "farandole/sdk/backend.h"

namespace farandole {

/// The processes between which a clean shutdown is agreed on: the first process of each host is the parent of the other
/// ones of its host, and process 0 the parent of the first ones.
struct ShutdownTree {
  std::optional<int> parent;
  std::vector<int> children;
  static ShutdownTree of(const Topology& topology, int process);
};

/// The clean shutdown of a job, as a state machine that the control messages of the job move on. A process that
/// wants to end reports that to its parent (kLeave) once all its children have; process 0 then lets all go on
/// (kAllLeave), down the tree. This is done twice. After the first round all have begun to end; no process ends before
/// all have said in the second that they know. So while a process has not said so, any other process that dies has died
/// too early; later it knows this of its neighbours in the tree, one of which every process is. Sends 4 (P - 1)
/// messages in all, P being the number of processes. Not thread-safe.
class CleanShutdown {
 public:
  static constexpr std::size_t kRounds = 2;
  using Post = std::function<void(int process, const ControlMessage& control)>;
  CleanShutdown(const Topology& topology, int process, Post post);

  /// This process has done with the job.
  void begin() { has_begun_ = true; }
  bool has_begun() const { return has_begun_; }
  /// A kLeave or kAllLeave; also before this process begins.
  void handle(const ControlMessage& control);
  /// Goes as far as it can. True: this process may end, as soon as what it has posted has left.
  bool advance();
  /// False if that process may have shut down cleanly.
  bool must_be_alive(int process) const;
  /// The last messages of a process that has ended may come after it is seen dead.
  bool is_in_last_round() const { return round_ > 0; }
  /// The neighbours in the tree that this process waits for.
  std::vector<int> waits_for() const;

 private:
  struct Round {
    std::set<int> ready;        // children that have reported
    bool has_reported = false;  // to the parent
    bool is_over = false;       // the parent has said so
  };
  void post(int process, ControlMessage::Kind kind) const;
  bool all_ready() const { return rounds_[round_].ready.size() == tree_.children.size(); }

  const int process_;
  const ShutdownTree tree_;
  const Post post_;
  bool has_begun_ = false;
  std::size_t round_ = 0;
  Round rounds_[kRounds + 1];  // the last one stays empty
};

}  // namespace farandole
