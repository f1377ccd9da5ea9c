// SPDX-License-Identifier: Apache-2.0
// The processes and hosts on which the ranks of a job run.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "farandole/core/export.h"

namespace farandole FARANDOLE_API {

inline constexpr int kMaxReplicas = 64;  ///< maximum number of ranks in a process

/// One process of the job.
struct ProcessInfo {
  int host_index = 0;  ///< 0-based; hosts are numbered in the order of their first processes
  int replicas = 1;    ///< ranks that run in this process as threads
  int pid = 0;
  std::string hostname;         ///< for messages only; HostProof decides which processes share a host
  bool oversubscribed = false;  ///< the machine runs more ranks of the job than it has cores for them
};

/// One rank of the job. Ranks are numbered process by process.
struct RankInfo {
  int process = 0;
  int replica = 0;  ///< index among the ranks of the process
  int host_index = 0;
  int local_rank = 0;  ///< index among the ranks of the host
  int local_size = 0;  ///< number of ranks on the host
};

/// Map from ranks to processes and hosts, the same on all ranks. Obtained from `World::topology()`:
///
///   const RankInfo& self = world.topology().rank(world.rank());
///   const bool is_first_of_host = self.local_rank == 0;
///
/// Constant after construction. Arguments must be in range; they are not checked.
class Topology {
 public:
  /// @param processes  all processes of the job, in the order of their numbers
  explicit Topology(std::vector<ProcessInfo> processes);
  int size() const { return static_cast<int>(ranks_.size()); }
  int process_count() const { return static_cast<int>(processes_.size()); }
  int host_count() const { return host_count_; }
  const RankInfo& rank(int rank) const { return ranks_[static_cast<std::size_t>(rank)]; }
  const ProcessInfo& process(int process) const { return processes_[static_cast<std::size_t>(process)]; }
  int first_rank_of(int process) const { return first_rank_[static_cast<std::size_t>(process)]; }
  /// "rank 3 (host node7, pid 4711)"
  std::string describe(int rank) const;

 private:
  std::vector<ProcessInfo> processes_;
  std::vector<RankInfo> ranks_;
  std::vector<int> first_rank_;
  int host_count_ = 0;
};

/// Determines whether two processes run on the same host.
///
/// Each process puts a random nonce into a memory file and sends a Claim to all processes. A process that can read the
/// nonce through /proc/<pid>/fd runs on the same machine. Two processes also count as being on the same machine if the
/// boot id of their kernel, their host name and their network addresses are the same. This covers a process without a
/// memory file, or with a PID namespace of its own.
class HostProof {
 public:
  /// Message that each process sends to all processes of the job.
  struct Claim {
    int pid = 0;
    int descriptor = -1;  ///< the sender's memory file with the nonce; -1: the sender has no file
    unsigned char nonce[16] = {};
    unsigned char machine[16] = {};  ///< digest of kernel boot, host name and addresses; all zero if unknown
    unsigned char host_id[16] = {};  ///< digest of FARANDOLE_HOST_ID; all zero if the setting is empty
    char hostname[64] = {};
  };
  /// @param publishes  create the memory file; if false, only the digest `machine` identifies the host
  HostProof(std::string_view host_id, bool publishes);
  ~HostProof();
  HostProof(const HostProof&) = delete;
  HostProof& operator=(const HostProof&) = delete;

  const Claim& claim() const { return claim_; }
  /// True if this process can read the nonce of `other`, or both have the same `machine` digest.
  bool shares_machine_with(const Claim& other) const;
  /// True if both processes share a machine and have the same FARANDOLE_HOST_ID.
  bool shares_host_with(const Claim& other) const;

 private:
  Claim claim_;
};

/// Returns the host index of every process. @param lowest_neighbour  for each process the lowest-numbered process that
/// HostProof found on the same host; the process's own number if there is no lower process
std::vector<int> host_indices(std::span<const int> lowest_neighbour);

}  // namespace FARANDOLE_API
