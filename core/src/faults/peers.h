// SPDX-License-Identifier: Apache-2.0
// The other processes of a job: what they say, whether they live, how far they are, and how all of them end.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "farandole/core/error.h"
#include "farandole/internal/deadline.h"
#include "faults/clean_shutdown.h"
#include "faults/liveness.h"
#include "faults/straggler_queries.h"
#include "faults/wait_cycles.h"

namespace farandole {

class Job;

/// What a process knows of its peers. Any thread of the process may look, and reads their control messages then; a
/// fault that a peer reports poisons the job, and so does a peer's death. Thread-safe but for `watch` and `leave`.
class Peers {
 public:
  /// @param job  knows its topology and its process group, and outlives this
  explicit Peers(Job& job);

  /// So that a death of another process is noticed from here on, also while the job is still being joined.
  void watch(std::span<const ProcessIdentity> identities);
  /// Reads control messages and looks for processes that have died. Never blocks.
  void poll();
  /// Says that this process has found a fault. Never throws.
  void announce_fault(int rank, ErrorKind kind, const std::string& text);
  /// Asks how far ranks are that collective `sequence` of `communicator` waits for, and others if there is room.
  void ask(int rank, std::uint32_t communicator, std::uint64_t sequence, std::span<const int> awaited,
           std::span<const int> others);
  /// A rank of this process has waited for long: ends the job by a Mismatch, or warns, if ranks wait for each other.
  void search_cycle(int rank);
  StragglerQueries& stragglers() { return stragglers_; }
  /// Waits until all processes leave the job, but neither in silence nor for one that has died. When nothing else uses
  /// the job any more. @throws Error  its fault
  void leave();

 private:
  // Launchers end the survivors of a crash at once; a process that looks more often than that can still say which one
  // died.
  static constexpr auto kLivenessInterval = std::chrono::milliseconds(1);

  ProcessGroup& group() const;
  void throw_if_a_process_has_died();
  void read_control_messages();
  void handle(const ControlMessage& control);
  void answer(const ControlMessage& query);
  /// A process that has died too early, if any.
  std::optional<int> find_lost(Clock::time_point now);
  void ask_before_leaving(Clock::time_point now);
  std::vector<int> remaining() const;
  std::string describe_remaining() const;
  void process_has_left(int process);
  WaitCycles::Environment environment();
  void receive_probe(const ControlMessage& control);
  void post_to_all(const ControlMessage& control);

  Job& job_;
  const Topology& topology_;
  const int process_;
  StragglerQueries stragglers_;
  WaitCycles cycles_;
  std::mutex look_mutex_;  // guards what follows, and the polling of control messages
  Liveness liveness_;
  Clock::time_point next_liveness_{};
  CleanShutdown shutdown_;
  std::optional<Clock::time_point> lost_since_;
  Clock::time_point next_question_{};  // to processes that this one waits for while it leaves
  int remaining_elsewhere_ = -1;       // a rank that such a process waits for
};

}  // namespace farandole
