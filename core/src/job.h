// A job as one process sees it: what a World owns and what its endpoints share.
#pragma once

#include <atomic>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "farandole/core/world.h"
#include "inproc/inproc_transport.h"
#include "one_world.h"

namespace farandole {

/// Notices when a process of the same host dies (pidfd). Not thread-safe.
class Liveness {
 public:
  Liveness() = default;
  ~Liveness();
  Liveness(const Liveness&) = delete;
  Liveness& operator=(const Liveness&) = delete;
  /// Starts to watch; processes that can not be watched are ignored.
  void watch(int process, int pid);
  void forget(int process);
  /// A watched process that has died, if any.
  std::optional<int> first_dead() const;

 private:
  std::map<int, int> descriptors_;  // by process
};

/// Shared by all threads of the process. Members are const after construction unless a comment says otherwise.
class Job {
 public:
  explicit Job(const WorldOptions& options);
  ~Job();
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  const Settings& settings() const { return settings_; }
  const std::string& tuning_text() const { return tuning_text_; }
  const Topology& topology() const { return *topology_; }
  const std::string& backend_description() const { return backend_description_; }
  int process() const { return process_; }
  int replicas() const { return static_cast<int>(endpoints_.size()); }
  Endpoint& endpoint(int replica) { return *endpoints_[static_cast<std::size_t>(replica)]; }
  bool is_here(int rank) const { return topology_->rank(rank).process == process_; }
  Transport& route(int peer) { return is_here(peer) ? *inproc_ : group_->transport(); }
  HostMemory& memory() { return *memory_; }
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
  bool has_fault() const { return faulted_.load(std::memory_order_seq_cst); }
  /// `rank`: who found the fault. Tells the other processes unless the fault came from one of them.
  void poison(int rank, ErrorKind kind, const std::string& text, bool tell);
  void look_around();
  void ask(int rank, std::uint16_t communicator);
  void set_left(int rank, bool left);
  bool has_left(int rank, Seconds ago);
  std::string describe_missing(std::uint16_t communicator, std::uint64_t sequence, std::span<const int> members);

 private:
  struct Introduction;
  struct Surroundings;
  void name_in_log(std::string_view who) const;
  void join(const WorldOptions& options);
  void introduce(const WorldOptions& options);
  void agree();
  void share_memory(std::span<const Introduction> all);
  void check_size(const WorldOptions& options, int launched_size) const;
  void handle(const Notice& notice);
  void leave();
  /// The first rank of each other process that has not left.
  std::string describe_remaining();
  void post_to_others(const Notice& notice);
  bool is_crowded(int threads_per_rank) const;
  Waiter::Options waiting_options(bool progress_thread) const;
  void write_flight_records(const std::string& text) const;

  OneWorld one_world_;
  Settings settings_;
  std::string tuning_text_;
  std::string backend_description_;
  std::unique_ptr<ProcessGroup> group_;  // null: this process alone; thread-safe
  int process_ = 0;
  std::unique_ptr<HostMemory> memory_;
  std::vector<bool> shares_memory_;  // by host
  std::optional<Topology> topology_;
  std::unique_ptr<InprocTransport> inproc_;
  std::vector<std::unique_ptr<Endpoint>> endpoints_;
  std::unique_ptr<ProgressThread> progress_;
  // Ranks and cores of this machine, whatever FARANDOLE_HOST_ID says.
  int ranks_here_ = 0;
  CoreSet cores_here_;
  Waiter::Options waiting_;
  const int exceptions_at_start_ = std::uncaught_exceptions();

  bool is_forked_child_ = false;      // written at the fork, when the child has one thread
  std::atomic<bool> faulted_{false};  // its release pairs with the acquire in check_fault
  mutable std::mutex fault_mutex_;    // guards kind and text, written once before faulted_ is set
  ErrorKind fault_kind_ = ErrorKind::kInternal;
  std::string fault_text_;

  std::mutex look_mutex_;  // guards liveness_, next_liveness_ and the polling of notices
  Liveness liveness_;
  Clock::time_point next_liveness_{};

  std::mutex answers_mutex_;                                        // guards answers_ and left_
  std::map<std::pair<int, std::uint32_t>, std::uint64_t> answers_;  // (rank, communicator) → entered
  std::vector<std::optional<Clock::time_point>> left_;              // by rank
};

}  // namespace farandole
