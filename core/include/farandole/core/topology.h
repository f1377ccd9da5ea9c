// SPDX-License-Identifier: Apache-2.0
// Where the ranks of a job live.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "farandole/core/export.h"

namespace farandole FARANDOLE_API {

inline constexpr int kMaxReplicas = 64;  ///< ranks per process

/// One process of the job.
struct ProcessInfo {
  int host_index = 0;  ///< 0-based, numbered by each host's first process
  int replicas = 1;    ///< ranks that live in this process as threads
  int pid = 0;
  std::string hostname;         ///< for messages only; never proof of anything
  bool oversubscribed = false;  ///< its machine runs more ranks of the job than they have cores
};

/// One rank of the job. Ranks are numbered process by process.
struct RankInfo {
  int process = 0;
  int replica = 0;  ///< index among the ranks of its process
  int host_index = 0;
  int local_rank = 0;
  int local_size = 0;
};

/// Constant after construction.
class Topology {
 public:
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

/// Tells whether two processes live on one host. Proof is a nonce in memory that only processes of the same machine can
/// open through /proc. Where that can not be had (no memory files, process name spaces of their own), processes whose
/// kernel was started at the same moment and that have the same name and addresses count as being on one host.
class HostProof {
 public:
  /// What one process publishes to all others.
  struct Claim {
    int pid = 0;
    int descriptor = -1;
    unsigned char nonce[16] = {};
    unsigned char machine[16] = {};  ///< digest of boot, host name and addresses; zero when unknown
    unsigned char host_id[16] = {};  ///< digest of FARANDOLE_HOST_ID; zero when unset
    char hostname[64] = {};
  };
  /// @param publishes  puts the nonce into memory; without, processes are told by what they say of their machine
  HostProof(std::string_view host_id, bool publishes);
  ~HostProof();
  HostProof(const HostProof&) = delete;
  HostProof& operator=(const HostProof&) = delete;

  const Claim& claim() const { return claim_; }
  /// True if this process can read the nonce of `other`, or both say the same of their machine.
  bool shares_machine_with(const Claim& other) const;
  /// The same, and both have the same FARANDOLE_HOST_ID.
  bool shares_host_with(const Claim& other) const;

 private:
  Claim claim_;
};

/// Host index of every process from each process's lowest-numbered provable neighbour (itself if none is lower).
std::vector<int> host_indices(std::span<const int> lowest_neighbour);

}  // namespace FARANDOLE_API
