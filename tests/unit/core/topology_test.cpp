// SPDX-License-Identifier: Apache-2.0
#include "farandole/core/topology.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <vector>

#include "farandole/core/error.h"

namespace farandole {
namespace {

TEST(Topology, NumbersRanksProcessByProcessAndLocallyByHost) {
  // Hosts are interleaved, and processes have 2, 1, 3 and 1 replicas.
  const Topology topology({{0, 2, 11, "a"}, {1, 1, 12, "b"}, {0, 3, 13, "a"}, {1, 1, 14, "b"}});
  ASSERT_EQ(topology.size(), 7);
  EXPECT_EQ(topology.process_count(), 4);
  EXPECT_EQ(topology.host_count(), 2);
  const std::vector<int> processes{0, 0, 1, 2, 2, 2, 3};
  const std::vector<int> replicas{0, 1, 0, 0, 1, 2, 0};
  const std::vector<int> hosts{0, 0, 1, 0, 0, 0, 1};
  const std::vector<int> local_ranks{0, 1, 0, 2, 3, 4, 1};
  for (int rank = 0; rank < topology.size(); ++rank) {
    const auto index = static_cast<std::size_t>(rank);
    const RankInfo& info = topology.rank(rank);
    EXPECT_EQ(info.process, processes[index]) << rank;
    EXPECT_EQ(info.replica, replicas[index]) << rank;
    EXPECT_EQ(info.host_index, hosts[index]) << rank;
    EXPECT_EQ(info.local_rank, local_ranks[index]) << rank;
    EXPECT_EQ(info.local_size, hosts[index] == 0 ? 5 : 2) << rank;
  }
  EXPECT_EQ(topology.first_rank_of(0), 0);
  EXPECT_EQ(topology.first_rank_of(2), 3);
  EXPECT_EQ(topology.first_rank_of(3), 6);
  EXPECT_EQ(topology.describe(4), "rank 4 (host a, pid 13)");
  EXPECT_EQ(topology.describe(9), "rank 9 (not in this job of 7)");
}

TEST(Topology, RefusesHostsThatAreNotNumberedByTheirFirstProcess) {
  EXPECT_THROW(Topology({{1, 1, 1, "a"}}), InternalError);
  EXPECT_THROW(Topology({{0, 1, 1, "a"}, {2, 1, 2, "b"}}), InternalError);
  EXPECT_THROW(Topology({{0, 0, 1, "a"}}), InternalError);
}

TEST(HostIndices, FollowChainsToTheLowestProcess) {
  EXPECT_EQ(host_indices(std::vector<int>{0, 1, 0, 2, 1, 5, 3}), (std::vector<int>{0, 1, 0, 0, 1, 2, 0}));
  EXPECT_EQ(host_indices(std::vector<int>{}), std::vector<int>{});
  EXPECT_THROW(host_indices(std::vector<int>{0, 2, 2}), InternalError);
  EXPECT_THROW(host_indices(std::vector<int>{-1}), InternalError);
}

TEST(HostProof, HoldsWithinAProcess) {
  const HostProof first("", true);
  const HostProof second("", true);
  EXPECT_TRUE(first.shares_host_with(first.claim()));
  EXPECT_TRUE(first.shares_host_with(second.claim()));
  EXPECT_GE(first.claim().descriptor, 0);
  EXPECT_EQ(first.claim().pid, getpid());
}

TEST(HostProof, HoldsBetweenParentAndChild) {
  const HostProof parent("", true);
  int to_parent[2];
  int to_child[2];
  ASSERT_EQ(pipe(to_parent), 0);
  ASSERT_EQ(pipe(to_child), 0);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const HostProof own("", true);
    const bool told = write(to_parent[1], &own.claim(), sizeof(own.claim())) == sizeof(own.claim());
    const bool shares = own.shares_host_with(parent.claim());
    // The claim must stay readable until the parent has looked.
    char done = 0;
    const bool seen = read(to_child[0], &done, 1) == 1;
    _exit(told && shares && seen ? 0 : 1);
  }
  HostProof::Claim claim;
  ASSERT_EQ(read(to_parent[0], &claim, sizeof(claim)), static_cast<ssize_t>(sizeof(claim)));
  EXPECT_EQ(claim.pid, child);
  EXPECT_TRUE(parent.shares_host_with(claim));
  ASSERT_EQ(write(to_child[1], "x", 1), 1);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "the child must be able to read its parent's nonce";
  for (const int descriptor : {to_parent[0], to_parent[1], to_child[0], to_child[1]}) close(descriptor);
}

TEST(HostProof, FailsForAnotherHostId) {
  const HostProof first("red", true);
  const HostProof second("blue", true);
  const HostProof third("red", true);
  const HostProof unset("", true);
  EXPECT_FALSE(first.shares_host_with(second.claim()));
  EXPECT_TRUE(first.shares_host_with(third.claim()));
  EXPECT_FALSE(first.shares_host_with(unset.claim()));
  EXPECT_FALSE(unset.shares_host_with(first.claim()));
}

/// A claim that says nothing of its machine: only the nonce tells.
HostProof::Claim with_nonce_only(HostProof::Claim claim) {
  std::memset(claim.machine, 0, sizeof claim.machine);
  return claim;
}

TEST(HostProof, FailsForAClaimThatCannotBeRead) {
  const HostProof own("", true);
  const HostProof other("", true);
  EXPECT_TRUE(own.shares_host_with(with_nonce_only(other.claim())));
  HostProof::Claim wrong_nonce = with_nonce_only(other.claim());
  wrong_nonce.nonce[3] ^= 1;
  EXPECT_FALSE(own.shares_host_with(wrong_nonce));
  HostProof::Claim no_memory = with_nonce_only(other.claim());
  no_memory.descriptor = STDERR_FILENO;
  EXPECT_FALSE(own.shares_host_with(no_memory)) << "the descriptor is no memory of ours";
  no_memory.descriptor = -1;
  EXPECT_FALSE(own.shares_host_with(no_memory));
}

TEST(HostProof, WithoutMemoryFilesTheMachineTells) {
  const HostProof own("", false);
  const HostProof other("", false);
  EXPECT_EQ(own.claim().descriptor, -1);
  EXPECT_TRUE(own.shares_host_with(other.claim()));
  HostProof::Claim elsewhere = other.claim();
  elsewhere.machine[0] ^= 1;
  EXPECT_FALSE(own.shares_host_with(elsewhere));
}

}  // namespace
}  // namespace farandole
