// SPDX-License-Identifier: Apache-2.0
// The other processes of a job: control messages, liveness, late ranks, and the clean shutdown.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "farandole/core/error.h"
#include "farandole/internal/call_reports.h"
#include "farandole/internal/deadline.h"
#include "faults/clean_shutdown.h"
#include "faults/liveness.h"
#include "faults/straggler_queries.h"
#include "faults/wait_cycles.h"

namespace farandole {

class Job;

/// This process's view of its peers. Any waiting thread calls `poll`, which reads the control messages of all peers. A
/// fault that a peer announces poisons the job, and so does the death of a peer. Thread-safe, except for `watch` and
/// `leave`.
class Peers {
 public:
  /// @param job  has a topology and a process group, and outlives this object
  explicit Peers(Job& job);

  /// Starts to watch the other processes of the host, so that their deaths are detected, also while the job is still
  /// being joined.
  void watch(std::span<const ProcessIdentity> identities);
  /// Reads control messages and checks for processes that have died. Non-blocking.
  void poll();
  /// Sends a fault that this process has found to all peers. Logs errors of the process group instead of throwing.
  void announce_fault(int rank, ErrorKind kind, const std::string& text);
  /// Asks other processes how far their ranks are: first for the ranks `awaited`, for which collective `sequence` of
  /// `communicator` waits; then for the ranks `others`, as far as the limit of queries permits (StragglerQueries).
  /// @param rank  the rank of this process that asks
  void ask(int rank, std::uint32_t communicator, std::uint64_t sequence, std::span<const int> awaited,
           std::span<const int> others);
  /// Sends a report of calls to a rank of this process or of another one.
  void report_calls(int rank, const CommunicatorKey& communicator, const CallReport& report);
  /// Searches for a deadlock on behalf of a rank of this process that has waited for long. A certain deadlock poisons
  /// the job with a Mismatch; a possible deadlock is a warning.
  void search_cycle(int rank);
  StragglerQueries& stragglers() { return stragglers_; }
  /// Waits until all processes leave the job. Logs warnings meanwhile, and throws after a death or the deadline. Call
  /// this when nothing else uses the job any more. @throws Error  the job's fault, or Timeout
  void leave();

 private:
  // Short, because launchers kill the survivors of a crash immediately: before that, a survivor can report which
  // process died.
  static constexpr auto kLivenessInterval = std::chrono::milliseconds(1);

  ProcessGroup& group() const;
  void throw_if_a_process_has_died();
  void read_control_messages();
  void handle(const ControlMessage& control);
  void answer(const ControlMessage& query);
  /// Returns a process that has died, or whose connection has ended, before its clean shutdown; nothing if there is
  /// none.
  std::optional<int> find_lost(Clock::time_point now);
  void ask_before_leaving(Clock::time_point now);
  std::vector<int> remaining() const;
  std::string describe_remaining() const;
  void process_has_left(int process);
  WaitCycles::Environment environment();
  void receive_probe(const ControlMessage& control);
  void receive_calls(const ControlMessage& control);
  void post_to_all(const ControlMessage& control);

  Job& job_;
  const Topology& topology_;
  const int process_;
  StragglerQueries stragglers_;
  WaitCycles cycles_;
  std::mutex poll_mutex_;  // guards the members below, and the polling of control messages
  Liveness liveness_;
  Clock::time_point next_liveness_{};
  CleanShutdown shutdown_;
  std::optional<Clock::time_point> lost_since_;
  Clock::time_point next_question_{};  // next query to the processes that this process awaits while leaving
  int remaining_elsewhere_ = -1;       // rank for which an awaited process itself waits; -1: none
};

}  // namespace farandole
