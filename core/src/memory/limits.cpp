// SPDX-License-Identifier: Apache-2.0
#include "farandole/internal/limits.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <functional>
#include <iterator>
#include <sstream>
#include <utility>

#include "farandole/internal/waiter.h"

namespace farandole {
namespace {

constexpr std::uint64_t kPageBytes = 4096;
constexpr std::uint64_t kMaxArenaBytes = 1ULL << 40;  // address space, not memory
// Maximum address space of all arenas of a host together, because each process maps all arenas: half of its 47 bits.
constexpr std::uint64_t kMaxArenasBytes = 1ULL << 46;
// The arenas take an eighth of a limited address space, or up to half if an eighth is too little to share anything.
constexpr std::uint64_t kShareOfAddressSpace = 8;

std::uint64_t resource_limit(int resource) {
  rlimit limit{};
  if (getrlimit(static_cast<__rlimit_resource>(resource), &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) {
    return kUnlimited;
  }
  return limit.rlim_cur;
}

std::string contents_of(const std::filesystem::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::uint64_t number_in(const std::filesystem::path& path) {
  std::uint64_t number = kUnlimited;  // "max", and the largest number in version 1, mean unlimited
  return std::ifstream(path) >> number ? number : kUnlimited;
}

/// Address space that this process has mapped.
std::uint64_t mapped_bytes() {
  const std::uint64_t pages = number_in("/proc/self/statm");
  return pages == kUnlimited ? 0 : pages * kPageBytes;
}

std::uint64_t machine_bytes() {
  const auto pages = static_cast<std::uint64_t>(std::max(sysconf(_SC_PHYS_PAGES), 1L));
  return pages * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
}

std::uint64_t round_down_to_pages(std::uint64_t bytes) {
  return bytes / kPageBytes * kPageBytes;
}

/// Calls `look` for each control group that has the controller and contains this process, and for each ancestor of such
/// a group. Passes the group's directory, its path, and whether the group belongs to cgroup version 2.
void for_each_control_group(std::string_view proc_cgroup, const std::filesystem::path& mounts,
                            const std::string& controller,
                            const std::function<void(const std::filesystem::path& directory, const std::string& path,
                                                     bool is_version_2)>& look) {
  std::istringstream lines{std::string(proc_cgroup)};
  for (std::string line; std::getline(lines, line);) {
    // "<number>:<controllers>:<path>"; version 2 has no controllers.
    const std::size_t first = line.find(':');
    const std::size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const bool is_version_2 = controllers.empty();
    if (!is_version_2 && ("," + controllers + ",").find("," + controller + ",") == std::string::npos) continue;
    const auto mount = is_version_2 ? mounts : mounts / controller;
    // In a container the mount's root may be the container's own group although the path is longer: directories that do
    // not exist are skipped.
    for (std::filesystem::path path = line.substr(second + 1);; path = path.parent_path()) {
      look(mount / path.relative_path(), path.string(), is_version_2);
      if (!path.has_relative_path()) break;
    }
  }
}

/// CPU time in microseconds per period; kUnlimited: no quota.
struct QuotaOfPeriod {
  std::uint64_t quota = kUnlimited;
  std::uint64_t period = 0;
};

QuotaOfPeriod quota_in(const std::filesystem::path& directory, bool is_version_2) {
  QuotaOfPeriod found;
  if (is_version_2) {
    std::uint64_t quota = 0, period = 0;  // reading "max", which means no quota, fails
    if (std::ifstream(directory / "cpu.max") >> quota >> period) found = {quota, period};
    return found;
  }
  std::int64_t quota = 0;  // -1: no quota
  if (std::ifstream(directory / "cpu.cfs_quota_us") >> quota && quota > 0) {
    found = {static_cast<std::uint64_t>(quota), number_in(directory / "cpu.cfs_period_us")};
  }
  return found;
}

std::uint64_t inode_of(const std::filesystem::path& directory) {
  struct stat status {};
  return stat(directory.c_str(), &status) == 0 ? status.st_ino : 0;
}

/// This process's quota, and the path of the group that sets it. Read once, because a process rarely moves between
/// groups.
const std::pair<CpuQuota, std::string>& own_quota() {
  static const auto own = [] {
    std::string owner;
    const CpuQuota quota = control_group_cores(contents_of("/proc/self/cgroup"), "/sys/fs/cgroup", owner);
    return std::pair(quota, owner);
  }();
  return own;
}

}  // namespace

std::uint64_t control_group_memory(std::string_view proc_cgroup, const std::filesystem::path& mounts,
                                   std::string& owner) {
  std::uint64_t least = kUnlimited;
  const auto look = [&](const std::filesystem::path& directory, const std::string& path, bool is_version_2) {
    const std::uint64_t bytes = number_in(directory / (is_version_2 ? "memory.max" : "memory.limit_in_bytes"));
    if (bytes >= least) return;
    least = bytes;
    owner = path;
  };
  for_each_control_group(proc_cgroup, mounts, "memory", look);
  return least;
}

CpuQuota control_group_cores(std::string_view proc_cgroup, const std::filesystem::path& mounts, std::string& owner) {
  constexpr std::uint64_t kMaxCores = CoreSet().size();
  CpuQuota least;
  const auto look = [&](const std::filesystem::path& directory, const std::string& path, bool is_version_2) {
    const auto [quota, period] = quota_in(directory, is_version_2);
    if (quota == kUnlimited || quota == 0 || period == 0 || period == kUnlimited) return;
    const std::uint64_t whole = (quota - 1) / period + 1;
    const int cores = static_cast<int>(std::min(whole, kMaxCores));
    if (least.cores > 0 && cores >= least.cores) return;
    least = {cores, inode_of(directory)};
    owner = path;
  };
  for_each_control_group(proc_cgroup, mounts, "cpu", look);
  return least;
}

CpuQuota cpu_quota() {
  return own_quota().first;
}

std::string cpu_quota_owner() {
  const auto& [quota, owner] = own_quota();
  return quota.cores > 0 ? "the quota of the control group " + owner : std::string();
}

int usable_cores() {
  QuotaSum own;
  own.add(cpu_quota());
  return own.bounded(static_cast<int>(allowed_cores().count()));
}

void QuotaSum::add(const CpuQuota& quota) {
  if (quota.cores == 0) {
    has_unlimited_ = true;
  } else {
    groups_[quota.group] = quota.cores;
  }
}

int QuotaSum::bounded(int cores) const {
  if (has_unlimited_ || groups_.empty()) return cores;
  int sum = 0;
  for (const auto& [group, of_group] : groups_) sum += of_group;
  return std::min(cores, sum);
}

ProcessLimits process_limits() {
  ProcessLimits limits;
  limits.memory_bytes = machine_bytes();
  limits.memory_owner = "memory of the machine";
  std::string group;
  const std::uint64_t of_group = control_group_memory(contents_of("/proc/self/cgroup"), "/sys/fs/cgroup", group);
  if (of_group < limits.memory_bytes) {
    limits.memory_bytes = of_group;
    limits.memory_owner = fmt::format("memory of the control group {}", group);
  }
  limits.address_space_bytes = resource_limit(RLIMIT_AS);
  if (limits.address_space_bytes != kUnlimited) {
    limits.address_space_bytes -= std::min(limits.address_space_bytes, mapped_bytes());
  }
  limits.file_bytes = resource_limit(RLIMIT_FSIZE);
  limits.commits_strictly = number_in("/proc/sys/vm/overcommit_memory") == 2;
  return limits;
}

ArenaPlan plan_arena(const ProcessLimits& limits, int processes, std::uint64_t windows_bytes) {
  const auto arenas = static_cast<std::uint64_t>(std::max(processes, 1));
  ArenaPlan plan;
  plan.is_file = processes > 1;
  plan.commits_strictly = limits.commits_strictly;
  plan.windows_bytes = windows_bytes > 0 ? windows_bytes : limits.memory_bytes;
  plan.windows_owner = windows_bytes > 0 ? "FARANDOLE_WINDOW_BYTES" : limits.memory_owner;
  // Twice the memory leaves room for fragmentation.
  plan.arena_bytes =
      std::min({kMaxArenaBytes, kMaxArenasBytes / arenas, 2 * std::min(plan.windows_bytes, kMaxArenaBytes)});
  plan.arena_bytes = std::max(plan.arena_bytes, kSmallestArena);
  const auto bound = [&plan](std::uint64_t bytes, std::string_view owner) {
    if (bytes >= plan.arena_bytes) return;
    plan.arena_bytes = bytes;
    plan.arena_owner = owner;
  };
  if (limits.address_space_bytes != kUnlimited) {
    const std::uint64_t share = limits.address_space_bytes / kShareOfAddressSpace / arenas;
    bound(std::max(share, std::min(kSmallestArena, limits.address_space_bytes / 2 / arenas)),
          "the limit of its address space (ulimit -v)");
  }
  if (plan.is_file) bound(limits.file_bytes, "the limit of its files' sizes (ulimit -f)");
  plan.arena_bytes = round_down_to_pages(plan.arena_bytes);
  return plan;
}

}  // namespace farandole
