// SPDX-License-Identifier: Apache-2.0
// A job as one process sees it: owned by a World, and shared by its endpoints and communicators.
#pragma once

#include <exception>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "farandole/core/world.h"
#include "farandole/internal/endpoint.h"
#include "farandole/internal/limits.h"
#include "faults/peers.h"
#include "inproc/inproc_transport.h"
#include "job/host_network.h"
#include "job/job_fault.h"
#include "job/one_world.h"

namespace farandole {

/// Ranks and cores of this machine, including other hosts that FARANDOLE_HOST_ID simulates on the machine.
struct Machine {
  int ranks = 0;
  CoreSet cores;
  QuotaSum quotas;
  /// True if the job has more threads than cores on this machine. Counts the cores of all processes, because launchers
  /// bind each process to its own cores, and bounds the sum by the CPU quotas.
  bool is_oversubscribed(int threads_per_rank) const {
    return ranks * threads_per_rank > quotas.bounded(static_cast<int>(cores.count()));
  }
};

/// A job as this process sees it, shared by all threads of the process. A World makes the job and ends it;
/// communicators that outlive the World keep the object, but no connections. Members are const after construction
/// unless a comment says otherwise.
class Job : public std::enable_shared_from_this<Job> {
 public:
  explicit Job(const WorldOptions& options);
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;
  ~Job();
  /// Completes pending collectives, leaves the job, and releases the process group and the progress thread. Afterwards
  /// `fault().check()` throws. Called once, by the thread that destroys the World.
  void end();

  const Settings& settings() const { return settings_; }
  const std::string& tuning_text() const { return tuning_text_; }
  const Topology& topology() const { return *topology_; }
  const std::string& backend_name() const { return connection_.backend; }
  const std::string& backend_description() const { return connection_.description; }
  /// Transport between hosts, and why it was chosen: "tcp (auto: …)".
  std::string network_description() const;
  /// Number of this process.
  int process() const { return connection_.process; }
  /// Number of ranks in this process.
  int replicas() const { return static_cast<int>(endpoints_.size()); }
  /// @param replica  index among the ranks of this process
  Endpoint& endpoint(int replica) { return *endpoints_[static_cast<std::size_t>(replica)]; }

  /// The best transport to a rank. @throws InvalidArgument  the World has ended
  Transport& route(int peer);
  SharedMemory& memory() { return *memory_; }
  /// True if all processes of the host have mapped each other's memory.
  bool shares_memory(int host_index) const { return shares_memory_[static_cast<std::size_t>(host_index)]; }
  /// Null if the job is this process alone, or the World has ended.
  ProcessGroup* group() const { return connection_.group.get(); }
  /// Null if the vendor allows only the main thread, or the World has ended.
  ProgressThread* progress_thread() { return progress_.get(); }
  /// Options for Waiters in the threads of ranks.
  const Waiter::Options& waiting() const { return waiting_; }
  /// Wakes all ranks of this process.
  void ring_all();

  /// State of the job's failure. In a forked child every check fails: the child has a copy of the parent's memory, but
  /// neither the parent's threads and connections nor the other ranks' memory. The child must neither use nor destroy
  /// the objects of the job.
  JobFault& fault() { return fault_; }
  /// Sets the job's fault unless there is one. Before any rank of this process can raise the fault, informs the other
  /// processes, and writes the flight records, waiting up to 2 s for the files.
  /// @param rank  the rank that found the fault   @param announce  false if another process has announced the fault
  void poison(int rank, ErrorKind kind, const std::string& text, bool announce);
  Peers& peers() { return *peers_; }

 private:
  struct PeerInfo;
  struct HostProbe;
  /// Connections of this process with its peers.
  struct Connection {
    std::string backend = "none";         // name, as World::backend_name
    std::string description;              // of the backend
    std::unique_ptr<ProcessGroup> group;  // null if this process is alone, or the World has ended; thread-safe
    int process = 0;
    std::optional<HostNetwork> between_hosts;  // empty whenever `group` is null
  };
  bool is_here(int rank) const { return topology_->rank(rank).process == process(); }
  void name_in_log(std::string_view process_name) const;
  void join(const WorldOptions& options);
  template <class Part>
  std::vector<Part> gather(const Part& mine) const;
  PeerInfo own_info(const WorldOptions& options, const HostProof& proof) const;
  /// Returns the device of each rank of this process; empty: FARANDOLE_DEVICE selects.
  std::vector<int> exchange_peer_info(const WorldOptions& options);
  HostProbe probe_host(const HostProof& proof, std::span<PeerInfo> all, bool may_share, std::vector<int>& devices);
  void divide_devices(std::span<PeerInfo> all, std::span<const int> machine, std::vector<int>& devices) const;
  static bool finds_without_proc(const HostProof::Claim& own, PeerInfo& other);
  void warn_if_alone_without_proc(const HostProof::Claim& own, std::size_t processes, int replicas) const;
  void agree();
  void share_memory(std::span<const HostProbe> all);
  void check_size(const WorldOptions& options, int launched_size) const;
  void retire();
  Waiter::Options waiting_options(bool progress_thread) const;
  void write_flight_records(const std::string& text) const;

  std::optional<OneWorld> one_world_;  // empty after `end`
  Settings settings_;
  std::string tuning_text_;
  Connection connection_;
  std::unique_ptr<SharedMemory> memory_;
  std::vector<bool> shares_memory_;  // by host
  std::optional<Topology> topology_;
  std::unique_ptr<InprocTransport> inproc_;
  std::vector<std::unique_ptr<Endpoint>> endpoints_;
  std::unique_ptr<ProgressThread> progress_;
  Machine machine_;
  Waiter::Options waiting_;
  const int exceptions_at_start_ = std::uncaught_exceptions();
  JobFault fault_;              // thread-safe
  std::optional<Peers> peers_;  // thread-safe; set once the topology is known
};

}  // namespace farandole
