// SPDX-License-Identifier: Apache-2.0
// What the machine, its containers and the shell let this process use, and what Farandole makes of it.
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
/// The least address space that an arena is worth having with: room for the control blocks of some communicators.
inline constexpr std::uint64_t kSmallestArena = 16ULL << 20;

/// Limits of this process, in bytes; kUnlimited where there is none.
struct ProcessLimits {
  std::uint64_t memory_bytes = kUnlimited;  ///< of the machine, or of the tightest control group around the process
  std::string memory_owner;                 ///< "memory of the machine", "memory of the control group /x"
  std::uint64_t address_space_bytes = kUnlimited;  ///< RLIMIT_AS, less what is mapped already
  std::uint64_t file_bytes = kUnlimited;           ///< RLIMIT_FSIZE
  bool commits_strictly = false;  ///< vm.overcommit_memory is 2: the system promises no memory it lacks
};

/// Reads them from the kernel. Costs some 50 µs.
ProcessLimits process_limits();

/// The tightest memory limit of the control groups that `proc_cgroup`, the text of /proc/self/cgroup, names, and of
/// those around them, in a file system mounted at `mounts` (versions 1 and 2). kUnlimited if there is none; `owner` is
/// set to the group's path otherwise.
std::uint64_t control_group_memory(std::string_view proc_cgroup, const std::filesystem::path& mounts,
                                   std::string& owner);

/// Time on cores that a control group gives its processes together, in whole cores: 1.5 counts as 2.
struct CpuQuota {
  int cores = 0;            ///< 0: no quota
  std::uint64_t group = 0;  ///< tells the groups of a machine apart: the inode of its directory
};

/// The tightest quota among the control groups that `proc_cgroup`, the text of /proc/self/cgroup, names, and those
/// around them, in a file system mounted at `mounts`: cpu.max of version 2, cpu.cfs_quota_us of version 1.
/// @param owner  set to the group's path, if there is a quota
CpuQuota control_group_cores(std::string_view proc_cgroup, const std::filesystem::path& mounts, std::string& owner);
/// This process's.
CpuQuota cpu_quota();
/// "the quota of the control group /x"; empty: there is none.
std::string cpu_quota_owner();
/// Cores that this process can keep busy: those that it may run on, or its quota if that is less.
int usable_cores();

/// Quotas of several processes of a machine; those of one group share one.
class QuotaSum {
 public:
  void add(const CpuQuota& quota);
  /// `cores`, or the sum of the quotas if each process has one and the sum is less.
  int bounded(int cores) const;

 private:
  std::map<std::uint64_t, int> groups_;
  bool has_unlimited_ = false;
};

/// How much memory the windows of a host may take, and how much address space the arena of one process.
struct ArenaPlan {
  std::uint64_t windows_bytes = 0;  ///< of all ranks of the host together
  std::string windows_owner;        ///< whose limit that is
  std::uint64_t arena_bytes = 0;    ///< address space of one arena; each process of the host maps all arenas
  std::string arena_owner;          ///< what makes it smaller than the windows could be; empty if nothing does
  bool is_file = false;             ///< a memory file, which other processes can map; else ordinary memory
  bool commits_strictly = false;    ///< memory is reserved when it is allocated
};

/// Plans the arena of one of `processes` processes of a host that share memory; one by itself needs no memory file.
/// @param windows_bytes  FARANDOLE_WINDOW_BYTES; 0: not set
ArenaPlan plan_arena(const ProcessLimits& limits, int processes, std::uint64_t windows_bytes);

/// One limit, what it is here and what it costs, for people.
struct LimitReport {
  std::string name;    ///< "address space (ulimit -v)"
  std::string value;   ///< "8.0 GiB"
  std::string effect;  ///< empty if nothing is lost
};
/// The limits of this machine, with the kernel's services tried out in a child process, so that a sandbox that kills
/// for them kills nothing else. For farandole-info. Costs some milliseconds.
std::vector<LimitReport> report_limits(const Settings& settings);

}  // namespace FARANDOLE_API
