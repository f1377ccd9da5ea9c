// SPDX-License-Identifier: Apache-2.0
// The size of an arena, computed from the limits of the process and the machine.
#include "farandole/internal/limits.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

namespace farandole {
namespace {

using testing::HasSubstr;
namespace fs = std::filesystem;

constexpr std::uint64_t kMiB = 1 << 20, kGiB = 1 << 30, kTiB = 1024 * kGiB;
constexpr std::uint64_t kAddresses = 1ULL << 47;  // that a process has

ProcessLimits with_memory(std::uint64_t bytes) {
  ProcessLimits limits;
  limits.memory_bytes = bytes;
  limits.memory_owner = "memory of the machine";
  return limits;
}

TEST(ArenaPlan, LeavesRoomForHolesInTheMemoryOfTheMachine) {
  const ArenaPlan plan = plan_arena(with_memory(16 * kGiB), 2, 0);
  EXPECT_EQ(plan.windows_bytes, 16 * kGiB);
  EXPECT_EQ(plan.windows_owner, "memory of the machine");
  EXPECT_EQ(plan.arena_bytes, 32 * kGiB);
  EXPECT_EQ(plan.arena_owner, "");
  EXPECT_TRUE(plan.is_file);
  EXPECT_FALSE(plan_arena(with_memory(kGiB), 1, 0).is_file) << "nobody would map it";
}

TEST(ArenaPlan, ManyProcessesOfALargeMachineFitIntoTheirAddresses) {
  for (const int processes : {2, 64, 128, 192, 1000}) {
    const ArenaPlan plan = plan_arena(with_memory(6 * kTiB), processes, 0);
    EXPECT_LE(plan.arena_bytes * static_cast<std::uint64_t>(processes), kAddresses / 2) << processes;
    EXPECT_GE(plan.arena_bytes, 32 * kGiB) << processes;
  }
}

TEST(ArenaPlan, FollowsTheSetting) {
  const ArenaPlan plan = plan_arena(with_memory(16 * kGiB), 2, 100 * kMiB);
  EXPECT_EQ(plan.windows_bytes, 100 * kMiB);
  EXPECT_EQ(plan.windows_owner, "FARANDOLE_WINDOW_BYTES");
  EXPECT_EQ(plan.arena_bytes, 200 * kMiB);
}

TEST(ArenaPlan, TakesALittleOfALimitedAddressSpace) {
  ProcessLimits limits = with_memory(64 * kGiB);
  limits.address_space_bytes = 8 * kGiB;
  EXPECT_EQ(plan_arena(limits, 1, 0).arena_bytes, kGiB);
  EXPECT_EQ(plan_arena(limits, 2, 0).arena_bytes, kGiB / 2);
  EXPECT_THAT(plan_arena(limits, 2, 0).arena_owner, HasSubstr("ulimit -v"));
  EXPECT_EQ(plan_arena(limits, 64, 0).arena_bytes, kSmallestArena) << "an eighth of it would be too little";
  EXPECT_LT(plan_arena(limits, 1000, 0).arena_bytes, kSmallestArena);
}

TEST(ArenaPlan, StaysBelowTheLargestFile) {
  ProcessLimits limits = with_memory(64 * kGiB);
  limits.file_bytes = 100 * kMiB + 5;
  EXPECT_EQ(plan_arena(limits, 2, 0).arena_bytes, 100 * kMiB);
  EXPECT_THAT(plan_arena(limits, 2, 0).arena_owner, HasSubstr("ulimit -f"));
  EXPECT_EQ(plan_arena(limits, 1, 0).arena_bytes, 128 * kGiB) << "there is no file";
}

/// A directory with files, for one test.
class ControlGroups : public testing::Test {
 protected:
  ControlGroups() {
    std::string name = (fs::temp_directory_path() / "farandole-limits-XXXXXX").string();
    root_ = mkdtemp(name.data());
  }
  ~ControlGroups() override { fs::remove_all(root_); }
  void put(const fs::path& path, const std::string& text) {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text << '\n';
  }
  std::uint64_t least(const std::string& proc_cgroup) { return control_group_memory(proc_cgroup, root_, owner_); }

  fs::path root_;
  std::string owner_;
};

TEST_F(ControlGroups, TheTightestOfTheGroupAndThoseAroundItCounts) {
  put("a/memory.max", "4000");
  put("a/b/memory.max", "max");
  put("a/b/c/memory.max", "7000");
  EXPECT_EQ(least("0::/a/b/c\n"), 4000U);
  EXPECT_EQ(owner_, "/a");
  put("a/b/memory.max", "3000");
  EXPECT_EQ(least("0::/a/b/c\n"), 3000U);
  EXPECT_EQ(owner_, "/a/b");
}

TEST_F(ControlGroups, VersionOneIsReadAsWell) {
  put("memory/x/y/memory.limit_in_bytes", "5000");
  put("memory/memory.limit_in_bytes", "9223372036854771712");
  EXPECT_EQ(least("5:cpu,cpuacct:/z\n4:hugetlb,memory:/x/y\n0::/\n"), 5000U);
  EXPECT_EQ(least("5:cpu,cpuacct:/x/y\n"), kUnlimited) << "another controller's path";
}

// In a container the path may be the host's, and only the group's own files are there.
TEST_F(ControlGroups, TheMountsRootCountsWhereThePathIsNotThere) {
  put("memory.max", "6000");
  EXPECT_EQ(least("0::/docker/0123\n"), 6000U);
}

TEST_F(ControlGroups, NoneIsNoLimit) {
  EXPECT_EQ(least(""), kUnlimited);
  EXPECT_EQ(least("nonsense\n0::/a\n"), kUnlimited);
}

class CpuQuotas : public ControlGroups {
 protected:
  CpuQuota tightest(const std::string& proc_cgroup) { return control_group_cores(proc_cgroup, root_, owner_); }
};

TEST_F(CpuQuotas, TheTightestOfTheGroupAndThoseAroundItCounts) {
  put("a/cpu.max", "400000 100000");
  put("a/b/cpu.max", "max 100000");
  put("a/b/c/cpu.max", "700000 100000");
  EXPECT_EQ(tightest("0::/a/b/c\n").cores, 4);
  EXPECT_EQ(owner_, "/a");
  put("a/b/cpu.max", "150000 100000");
  EXPECT_EQ(tightest("0::/a/b/c\n").cores, 2) << "a part of a core keeps one busy";
  EXPECT_EQ(owner_, "/a/b");
}

TEST_F(CpuQuotas, LessThanOneCoreIsOne) {
  put("a/cpu.max", "1000 100000");
  EXPECT_EQ(tightest("0::/a\n").cores, 1);
}

TEST_F(CpuQuotas, VersionOneIsReadAsWell) {
  put("cpu/x/y/cpu.cfs_quota_us", "250000");
  put("cpu/x/y/cpu.cfs_period_us", "50000");
  put("cpu/x/cpu.cfs_quota_us", "-1");
  put("cpu/x/cpu.cfs_period_us", "100000");
  EXPECT_EQ(tightest("5:cpu,cpuacct:/x/y\n4:memory:/z\n0::/\n").cores, 5);
  EXPECT_EQ(owner_, "/x/y");
  EXPECT_EQ(tightest("4:memory:/x/y\n").cores, 0) << "another controller's path";
}

TEST_F(CpuQuotas, NoneIsNoQuota) {
  EXPECT_EQ(tightest("").cores, 0);
  put("a/cpu.max", "max 100000");
  EXPECT_EQ(tightest("nonsense\n0::/a\n").cores, 0);
  put("a/cpu.max", "100000 0");
  EXPECT_EQ(tightest("0::/a\n").cores, 0);
}

TEST_F(CpuQuotas, ProcessesOfOneGroupShareOne) {
  put("a/cpu.max", "100000 100000");
  put("b/cpu.max", "200000 100000");
  const CpuQuota a = tightest("0::/a\n"), b = tightest("0::/b\n");
  QuotaSum sum;
  EXPECT_EQ(sum.bounded(8), 8) << "nobody has one";
  sum.add(a);
  sum.add(a);
  EXPECT_EQ(sum.bounded(8), 1);
  sum.add(b);
  EXPECT_EQ(sum.bounded(8), 3) << "another container";
  EXPECT_EQ(sum.bounded(2), 2);
  sum.add(CpuQuota{});
  EXPECT_EQ(sum.bounded(8), 8) << "a process without one";
}

TEST(ProcessLimits, AreThoseOfThisProcess) {
  const ProcessLimits limits = process_limits();
  EXPECT_GE(limits.memory_bytes, kMiB);
  EXPECT_THAT(limits.memory_owner, HasSubstr("memory of the "));
}

}  // namespace
}  // namespace farandole
