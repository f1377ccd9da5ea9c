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

#include "farandole/core/world.h"
#include "farandole/internal/endpoint.h"
#include "farandole/internal/limits.h"
#include "host_network.h"
#include "inproc/inproc_transport.h"
#include "job_fault.h"
#include "one_world.h"
#include "peers.h"

namespace farandole {

/// Ranks and cores of this machine, whatever FARANDOLE_HOST_ID says.
struct Machine {
  int ranks = 0;
  CoreSet cores;
  QuotaSum quotas;
  /// Launchers bind each process to cores of its own, so the cores of all of them count, as far as quotas allow them.
  bool is_oversubscribed(int threads_per_rank) const {
    return ranks * threads_per_rank > quotas.bounded(static_cast<int>(cores.count()));
  }
};

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
  const std::string& backend_description() const { return connection_.description; }
  int process() const { return connection_.process; }
  int replicas() const { return static_cast<int>(endpoints_.size()); }
  Endpoint& endpoint(int replica) { return *endpoints_[static_cast<std::size_t>(replica)]; }
  bool is_here(int rank) const { return topology_->rank(rank).process == process(); }
  Transport& route(int peer);
  /// "tcp (auto: …)": what carries messages between hosts, and why.
  std::string network_description() const;
  SharedMemory& memory() { return *memory_; }
  bool shares_memory(int host_index) const { return shares_memory_[static_cast<std::size_t>(host_index)]; }
  ProcessGroup* group() const { return connection_.group.get(); }
  ProgressThread* progress_thread() { return progress_.get(); }
  const Waiter::Options& waiting() const { return waiting_; }

  /// True in a process that was forked while the job was here: what it sees is a copy of the parent's memory, without
  /// the threads, the connections and the other ranks' memory. It must neither use nor take apart any of it.
  bool is_forked_child() const { return fault_.is_forked_child(); }
  /// In a forked child: every call fails from now on.
  void become_forked_child() { fault_.set_forked_child(); }
  /// @throws InvalidArgument  in a forked child
  void check_process() const;
  /// @param doing  before the text of the fault
  void check_fault(const std::string& doing = {}) const;
  void check_world() const;
  bool has_fault() const { return fault_.exists(); }
  /// `rank`: the rank that found the fault. Tells the other processes unless the fault came from one of them, and
  /// writes the flight records, which it waits 2 s for, before any rank of this process can raise the fault.
  void poison(int rank, ErrorKind kind, const std::string& text, bool tell);
  Peers& peers() { return *peers_; }
  void set_left(int rank, bool left);
  /// How far a rank of this process is in a communicator.
  std::uint64_t entered(int rank, std::uint32_t communicator) const;
  /// Wakes all ranks of this process.
  void ring_all();

 private:
  struct PeerInfo;
  struct HostProbe;
  /// What joins this process with its peers.
  struct Connection {
    std::string description;              // of the backend
    std::unique_ptr<ProcessGroup> group;  // null: this process alone, or the World has ended; thread-safe
    int process = 0;
    std::optional<HostNetwork> between_hosts;  // as the group
  };
  void name_in_log(std::string_view process_name) const;
  void join(const WorldOptions& options);
  template <class Part>
  std::vector<Part> gather(const Part& mine) const;
  void exchange_peer_info(const WorldOptions& options);
  HostProbe probe_host(const HostProof& proof, std::span<PeerInfo> all, bool may_share);
  static bool finds_without_proc(const HostProof::Claim& own, PeerInfo& other);
  void warn_if_alone_without_proc(const HostProof::Claim& own, std::size_t processes, int replicas) const;
  void agree();
  void share_memory(std::span<const HostProbe> all);
  void check_size(const WorldOptions& options, int launched_size) const;
  void retire();
  Waiter::Options waiting_options(bool progress_thread) const;
  void write_flight_records(const std::string& text) const;

  std::optional<OneWorld> one_world_;  // until `end`
  Settings settings_;
  std::string tuning_text_;
  Connection connection_;
  std::unique_ptr<SharedMemory> memory_;
  std::vector<bool> shares_memory_;  // by host
  std::optional<Topology> topology_;
  std::unique_ptr<InprocTransport> inproc_;
  std::vector<std::unique_ptr<Endpoint>> endpoints_;
  std::unique_ptr<ProgressThread> progress_;  // null: the vendor allows only the main thread, or the World has ended
  Machine machine_;
  Waiter::Options waiting_;
  const int exceptions_at_start_ = std::uncaught_exceptions();
  JobFault fault_;              // thread-safe
  std::optional<Peers> peers_;  // thread-safe; since the topology is known
};

}  // namespace farandole
