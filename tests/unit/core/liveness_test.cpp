// SPDX-License-Identifier: Apache-2.0
// Detection of dead processes on this host, by each available method.
#include "faults/liveness.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <string>
#include <thread>

namespace farandole {
namespace {

/// Generous, because the machine may be busy; what counts is the interval.
constexpr std::chrono::seconds kControlMessageBound{2};

/// A child that waits to be killed.
class Child {
 public:
  Child() : pid_(fork()) {
    if (pid_ == 0) {
      for (;;) pause();
    }
  }
  ~Child() {
    kill();
    reap();
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  void kill() const { ::kill(pid_, SIGKILL); }
  void reap() {
    if (!reaped_) waitpid(pid_, nullptr, 0);
    reaped_ = true;
  }
  /// Until it has ended, although nobody has asked for its status.
  void become_zombie() const {
    kill();
    siginfo_t info{};
    waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOWAIT);
  }
  ProcessIdentity identity() const {
    ProcessIdentity identity = own_identity();
    identity.pid = pid_;
    identity.start_time = 0;
    return identity;
  }

 private:
  const pid_t pid_;
  bool reaped_ = false;
};

bool is_noticed(Liveness& liveness, int process) {
  const auto end = Clock::now() + kControlMessageBound;
  while (Clock::now() < end) {
    if (liveness.dead().count(process) != 0) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return false;
}

class EachWay : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Liveness, EachWay, testing::Values("auto", "pidfd", "proc"));

TEST_P(EachWay, DetectsOnlyTheRankThatDies) {
  Child dies, lives;
  Liveness liveness(GetParam());
  EXPECT_EQ(liveness.watch(3, dies.identity()), "");
  EXPECT_EQ(liveness.watch(5, lives.identity()), "");
  EXPECT_TRUE(liveness.dead().empty());
  dies.kill();
  dies.reap();
  EXPECT_TRUE(is_noticed(liveness, 3));
  EXPECT_EQ(liveness.dead(), std::set<int>{3});
}

TEST_P(EachWay, AZombieIsDead) {
  const Child child;
  Liveness liveness(GetParam());
  EXPECT_EQ(liveness.watch(1, child.identity()), "");
  child.become_zombie();
  EXPECT_TRUE(is_noticed(liveness, 1));
}

TEST_P(EachWay, ProcessThatEndedBeforeIsDead) {
  Child child;
  const ProcessIdentity identity = child.identity();
  child.kill();
  child.reap();
  Liveness liveness(GetParam());
  EXPECT_EQ(liveness.watch(1, identity), "");
  EXPECT_EQ(liveness.dead(), std::set<int>{1});
}

TEST_P(EachWay, AnotherProcessWithTheSameNumberIsNotTheOne) {
  const Child child;
  ProcessIdentity former = child.identity();
  former.start_time = 1;
  Liveness liveness(GetParam());
  EXPECT_EQ(liveness.watch(1, former), "");
  EXPECT_EQ(liveness.dead(), std::set<int>{1});
}

TEST_P(EachWay, WarnsOfLimitsInAnotherPidNamespace) {
  ProcessIdentity elsewhere = own_identity();
  if (elsewhere.pid_namespace == 0) GTEST_SKIP() << "/proc does not tell the PID namespace";
  ++elsewhere.pid_namespace;
  Liveness liveness(GetParam());
  EXPECT_NE(liveness.watch(1, elsewhere).find("another PID namespace"), std::string::npos);
  EXPECT_TRUE(liveness.dead().empty());
}

TEST_P(EachWay, SaysThatThereAreTooManyFiles) {
  rlimit before{};
  getrlimit(RLIMIT_NOFILE, &before);
  const rlimit none{0, before.rlim_max};
  const ProcessIdentity self = own_identity();
  Liveness liveness(GetParam());
  setrlimit(RLIMIT_NOFILE, &none);
  const std::string why = liveness.watch(1, self);
  setrlimit(RLIMIT_NOFILE, &before);
  EXPECT_NE(why.find("ulimit -n"), std::string::npos) << why;
}

TEST(Liveness, OffWatchesNobody) {
  Child child;
  Liveness liveness("off");
  EXPECT_EQ(liveness.watch(1, child.identity()), "");
  child.kill();
  child.reap();
  EXPECT_TRUE(liveness.dead().empty());
  EXPECT_EQ(liveness.used(), "nothing");
}

TEST(Liveness, UsesPidfdsWhereItMay) {
  Liveness automatic("auto"), forced("proc");
  automatic.watch(1, own_identity());
  forced.watch(1, own_identity());
  EXPECT_EQ(automatic.used(), "pidfd");
  EXPECT_EQ(forced.used(), "proc");
}

TEST(Liveness, ReadsLinesOfProc) {
  const std::string fields = " 1 7 7 0 -1 4194560 105 0 0 0 0 0 0 0 20 0 1 0 98765 2265088 227 18446744073709551615";
  const auto stat = parse_process_stat("71 (a) b) (c) S" + fields);
  ASSERT_TRUE(stat.has_value());
  EXPECT_EQ(stat->state, 'S');
  EXPECT_EQ(stat->start_time, 98765U);
  EXPECT_FALSE(stat->is_dead());
  EXPECT_TRUE(parse_process_stat("71 (a) Z" + fields)->is_dead());
  EXPECT_TRUE(parse_process_stat("71 (a) X" + fields)->is_dead());
  std::string of_two_threads = "71 (a) Z" + fields;
  of_two_threads.replace(of_two_threads.find(" 1 0 98765"), 2, " 2");
  EXPECT_FALSE(parse_process_stat(of_two_threads)->is_dead()) << "only its main thread has ended";
  for (const char* bad : {"", "71", "71 (a", "71 (a) ", "71 (a) S", "71 (a) S 1 2 3",
                          "71 (a) S 1 7 7 0 -1 4194560 105 0 0 0 0 0 0 0 20 0 1 0 98", "71 (a) S a b"}) {
    EXPECT_FALSE(parse_process_stat(bad).has_value()) << bad;
  }
}

TEST(Liveness, KnowsThisProcess) {
  const ProcessIdentity self = own_identity();
  EXPECT_EQ(self.pid, getpid());
  EXPECT_NE(self.start_time, 0U);
  EXPECT_NE(self.pid_namespace, 0U);
}

}  // namespace
}  // namespace farandole
