// SPDX-License-Identifier: Apache-2.0
// A job as one process sees it: what a World owns and what its endpoints share.
#pragma once

#include <atomic>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "clean_shutdown.h"
#include "farandole/core/world.h"
#include "farandole/internal/endpoint.h"
#include "inproc/inproc_transport.h"
#include "liveness.h"
#include "one_world.h"
#include "straggler_queries.h"

namespace farandole {

/// The text of a control message.
std::string text_of(const ControlMessage& control);

/// Shared by all threads of the process. Members are const after construction unless a comment says otherwise. A World
/// makes it and ends it; communicators keep what is left of it.
class Job : public std::enable_shared_from_this<Job> {
 public:
  explicit Job(const WorldOptions& options);
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;
  ~Job();
  /// Completes what is pending, leaves the job, and lets go of the process group and the progress thread. From then on
  /// `check_fault` throws. Called once, by the thread that destroys the World.
  void end();

  const Settings& settings() const { return settings_; }
  const std::string& tuning_text() const { return tuning_text_; }
  const Topology& topology() const { return *topology_; }
  const std::string& backend_description() const { return backend_description_; }
  int process() const { return process_; }
  int replicas() const { return static_cast<int>(endpoints_.size()); }
  Endpoint& endpoint(int replica) { return *endpoints_[static_cast<std::size_t>(replica)]; }
  bool is_here(int rank) const { return topology_->rank(rank).process == process_; }
  Transport& route(int peer);
  SharedMemory& memory() { return *memory_; }
  bool shares_memory(int host_index) const { return shares_memory_[static_cast<std::size_t>(host_index)]; }
  ProcessGroup* group() { return group_.get(); }
  ProgressThread* progress_thread() { return progress_.get(); }
  const Waiter::Options& waiting() const { return waiting_; }

  /// True in a process that was forked while the job was here: what it sees is a copy of the parent's memory, without
  /// the threads, the connections and the other ranks' memory. It must neither use nor take apart any of it.
  bool is_forked_child() const { return is_forked_child_; }
  /// In a forked child: every call fails from now on.
  void become_forked_child();
  /// @throws InvalidArgument  in a forked child
  void check_process() const;
  void check_fault() const;
  void check_world() const;
  bool has_fault() const { return faulted_.load(std::memory_order_seq_cst); }
  /// `rank`: the rank that found the fault. Tells the other processes unless the fault came from one of them.
  void poison(int rank, ErrorKind kind, const std::string& text, bool tell);
  void poll_health();
  /// Asks how far ranks are that collective `sequence` of `communicator` waits for, and others if there is room.
  void ask(int rank, std::uint32_t communicator, std::uint64_t sequence, std::span<const int> awaited,
           std::span<const int> others);
  StragglerQueries& stragglers() { return *stragglers_; }
  void set_left(int rank, bool left);

 private:
  // Launchers end the survivors of a crash at once; a process that looks more often than that can still say which one
  // died.
  static constexpr auto kLivenessInterval = std::chrono::milliseconds(1);

  struct PeerInfo;
  struct Surroundings;
  void name_in_log(std::string_view who) const;
  void join(const WorldOptions& options);
  void exchange_peer_info(const WorldOptions& options);
  void agree();
  void share_memory(std::span<const Surroundings> all);
  void check_size(const WorldOptions& options, int launched_size) const;
  /// So that a death of another process is noticed from here on, also while the job is still being joined.
  void watch_processes(std::span<const PeerInfo> all);
  void throw_if_a_process_has_died();
  void handle(const ControlMessage& control);
  void read_control_messages();
  void answer(const ControlMessage& query);
  /// A process that has died too early, if any.
  std::optional<int> find_lost(Clock::time_point now);
  void leave();
  void retire();
  void ask_before_leaving(Clock::time_point now);
  std::vector<int> remaining() const;
  std::string describe_remaining() const;
  void process_has_left(int process);
  void post_to_others(const ControlMessage& control);
  bool is_oversubscribed(int threads_per_rank) const;
  Waiter::Options waiting_options(bool progress_thread) const;
  void write_flight_records(const std::string& text) const;

  std::optional<OneWorld> one_world_;  // until `end`
  Settings settings_;
  std::string tuning_text_;
  std::string backend_description_;
  std::unique_ptr<ProcessGroup> group_;  // null: this process alone, or the World has ended; thread-safe
  int process_ = 0;
  std::unique_ptr<SharedMemory> memory_;
  std::vector<bool> shares_memory_;  // by host
  std::optional<Topology> topology_;
  std::unique_ptr<InprocTransport> inproc_;
  std::vector<std::unique_ptr<Endpoint>> endpoints_;
  std::unique_ptr<ProgressThread> progress_;  // null: the vendor allows only the main thread, or the World has ended
  // Ranks and cores of this machine, whatever FARANDOLE_HOST_ID says.
  int ranks_here_ = 0;
  CoreSet cores_here_;
  Waiter::Options waiting_;
  const int exceptions_at_start_ = std::uncaught_exceptions();

  bool is_forked_child_ = false;      // written at the fork, when the child has one thread
  std::atomic<bool> faulted_{false};  // its release pairs with the acquire in check_fault
  mutable std::mutex fault_mutex_;    // guards kind and text, written once before faulted_ is set, and has_ended_
  ErrorKind fault_kind_ = ErrorKind::kInternal;
  std::string fault_text_;
  bool has_ended_ = false;

  std::mutex look_mutex_;  // guards what follows, and the polling of control messages
  std::optional<Liveness> liveness_;
  Clock::time_point next_liveness_{};
  std::optional<CleanShutdown> shutdown_;
  std::optional<Clock::time_point> lost_since_;
  Clock::time_point next_question_{};  // to processes that this one waits for while it leaves
  int remaining_elsewhere_ = -1;       // a rank that such a process waits for

  std::optional<StragglerQueries> stragglers_;  // thread-safe
};

}  // namespace farandole
