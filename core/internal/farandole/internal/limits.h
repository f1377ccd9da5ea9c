// SPDX-License-Identifier: Apache-2.0
// Resource limits of this process, set by the machine, containers and the shell, and the memory plan derived from them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "farandole/core/export.h"
#include "farandole/core/settings.h"

namespace farandole FARANDOLE_API {

inline constexpr std::uint64_t kUnlimited = ~std::uint64_t{0};
/// Minimum size of an arena's address space: enough for the control blocks of some communicators.
inline constexpr std::uint64_t kSmallestArena = 16ULL << 20;

/// Limits of this process, in bytes; kUnlimited if there is no limit.
struct ProcessLimits {
  std::uint64_t memory_bytes = kUnlimited;  ///< of the machine, or of the tightest control group around the process
  std::string memory_owner;                 ///< "memory of the machine", "memory of the control group /x"
  std::uint64_t address_space_bytes = kUnlimited;  ///< RLIMIT_AS minus the address space that is mapped already
  std::uint64_t file_bytes = kUnlimited;           ///< RLIMIT_FSIZE
  bool commits_strictly = false;                   ///< vm.overcommit_memory is 2: the kernel does not overcommit memory
};

/// Reads the limits from the kernel. Costs about 50 µs.
ProcessLimits process_limits();

/// Returns the tightest memory limit of this process's control groups and their ancestors (cgroup versions 1 and 2);
/// kUnlimited if there is no limit.
/// @param proc_cgroup  text of /proc/self/cgroup, which names the groups
/// @param mounts  directory at which the cgroup file systems are mounted
/// @param owner  set to the path of the group with the tightest limit, if there is a limit
std::uint64_t control_group_memory(std::string_view proc_cgroup, const std::filesystem::path& mounts,
                                   std::string& owner);

/// CPU quota of a control group, shared by the group's processes, rounded up to cores: 1.5 counts as 2.
struct CpuQuota {
  int cores = 0;            ///< 0: no quota
  std::uint64_t group = 0;  ///< identifies the group on its machine: the inode of the group's directory
};

/// Returns the tightest CPU quota of this process's control groups and their ancestors: cpu.max of cgroup version 2,
/// cpu.cfs_quota_us of version 1. Parameters as for control_group_memory.
CpuQuota control_group_cores(std::string_view proc_cgroup, const std::filesystem::path& mounts, std::string& owner);
/// CPU quota of this process.
CpuQuota cpu_quota();
/// "the quota of the control group /x"; empty if there is no quota.
std::string cpu_quota_owner();
/// Number of cores that this process can keep busy: the cores of its affinity mask, at most its quota.
int usable_cores();

/// Sum of the quotas of several processes of a machine; processes of the same group share a quota.
class QuotaSum {
 public:
  void add(const CpuQuota& quota);
  /// Returns the sum of the quotas if every process has a quota and the sum is less than `cores`, else `cores`.
  int bounded(int cores) const;

 private:
  std::map<std::uint64_t, int> groups_;
  bool has_unlimited_ = false;
};

/// Sizes of shared memory: of all windows of a host, and of one process's arena. The arena is the memory that a process
/// shares with the other processes of its host; windows are the buffers that programs allocate in arenas (shm/arena.h).
struct ArenaPlan {
  std::uint64_t windows_bytes = 0;  ///< maximum for the windows of all ranks of the host together
  std::string windows_owner;        ///< name of the limit that sets `windows_bytes`
  std::uint64_t arena_bytes = 0;    ///< address space of one arena; each process of the host maps all arenas
  std::string arena_owner;          ///< name of the limit that made `arena_bytes` smaller than planned; else empty
  bool is_file = false;             ///< the arena is a memory file, which other processes can map; else private memory
  bool commits_strictly = false;    ///< memory is reserved when it is allocated
};

/// Plans the arena of a process on a host where `processes` processes share memory. A single process needs no memory
/// file.
/// @param windows_bytes  value of FARANDOLE_WINDOW_BYTES; 0: not set
ArenaPlan plan_arena(const ProcessLimits& limits, int processes, std::uint64_t windows_bytes);

/// A limit of this machine and its consequence, for display.
struct LimitReport {
  std::string name;    ///< "address space (ulimit -v)"
  std::string value;   ///< "8.0 GiB"
  std::string effect;  ///< empty if nothing is lost
};
/// Reports the limits of this machine, for farandole-info. Tries the kernel's services in a child process, because a
/// sandbox may kill a process that uses a forbidden service. Costs some milliseconds.
std::vector<LimitReport> report_limits(const Settings& settings);

}  // namespace FARANDOLE_API
