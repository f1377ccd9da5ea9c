// SPDX-License-Identifier: Apache-2.0
// A program whose ranks fork in the middle of a job. usage: forked_rank CASE
//
// The case selects the child's actions. Meanwhile the rank runs collectives and checks their results. The child must
// end in time, with the exit status of its case and an empty standard error. Every process has a deadline: if a process
// hangs, SIGALRM ends it, and the test fails.
#include <poll.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "farandole/collectives/communicator.h"
#include "farandole/core/error.h"
#include "farandole/gradients/gradient_averager.h"
#include "farandole/internal/communicator_access.h"
#include "farandole/internal/log.h"
#include "forked_child.h"

namespace {

using namespace farandole::test;
using farandole::Communicator;
using farandole::DType;
using farandole::InvalidArgument;
using farandole::ReduceOp;
using farandole::Work;
using farandole::World;
using farandole::WorldOptions;

/// Every call to a communicator and what hangs on it. In the child.
void expect_all_refused(World& world, Communicator& ranks) {
  std::vector<float> one(1), many(200'000), all(200'000 * 8);
  const std::map<const char*, std::function<void()>> calls{
      {"World::rank", [&] { (void)world.rank(); }},
      {"World::size", [&] { (void)world.size(); }},
      {"World::replicas", [&] { (void)world.replicas(); }},
      {"World::endpoint", [&] { (void)world.endpoint(); }},
      {"World::topology", [&] { (void)world.topology(); }},
      {"of_world", [&] { (void)Communicator::of_world(world); }},
      {"run_replicas", [&] { farandole::run_replicas(world, [](Communicator&) {}); }},
      {"rank", [&] { (void)ranks.rank(); }},
      {"size", [&] { (void)ranks.size(); }},
      {"placement", [&] { (void)ranks.placement(); }},
      {"describe", [&] { (void)ranks.describe(0); }},
      {"peer_has_started_next", [&] { (void)internals(ranks).peer_has_started_next(); }},
      {"describe_missing", [&] { (void)internals(ranks).describe_missing(); }},
      {"abort", [&] { ranks.abort("a child aborts"); }},
      {"allocate", [&] { (void)ranks.allocate(100, DType::kF32); }},
      {"split", [&] { (void)ranks.split(0, 0); }},
      {"duplicate", [&] { (void)ranks.duplicate(); }},
      {"barrier", [&] { ranks.barrier(); }},
      {"barrier_async", [&] { ranks.barrier_async().wait(); }},
      {"short allreduce", [&] { ranks.allreduce(one, ReduceOp::kSum); }},
      {"long allreduce", [&] { ranks.allreduce(many, ReduceOp::kSum); }},
      {"allreduce by ring", [&] { ranks.allreduce(many, ReduceOp::kSum, {.algorithm = "ring"}); }},
      {"allreduce_async", [&] { ranks.allreduce_async(many, ReduceOp::kSum).wait(); }},
      {"broadcast", [&] { ranks.broadcast(one, 0); }},
      {"reduce", [&] { ranks.reduce(one, one, ReduceOp::kSum, 0); }},
      {"allgather", [&] { ranks.allgather(one, all); }},
      {"reduce_scatter", [&] { ranks.reduce_scatter(all, one, ReduceOp::kSum); }},
      {"gather", [&] { ranks.gather(one, all, 0); }},
      {"scatter", [&] { ranks.scatter(all, one, 0); }},
      {"alltoall", [&] { ranks.alltoall(all, all); }},
      {"a GradientAverager",
       [&] {
         farandole::GradientAverager averager(ranks, {{one, "a"}});
       }},
  };
  for (const auto& [name, call] : calls) expect_refused(name, call);
}

/// The job's objects that cases use. The object is static, so that std::exit destroys it.
struct Ranks {
  explicit Ranks(const WorldOptions& options = {}) : world(options) {}
  World world;
  Communicator all = Communicator::of_world(world);
};
std::optional<Ranks> ranks_at_exit;

// ---- Cases: each returns the status of its process, in the child also. ---------------------------------------------

int child_returns() {
  Ranks ranks;
  check_collectives(ranks.all);
  const Child child = Child::make();
  if (child.is_here()) return kReturned;
  check_collectives(ranks.all);
  child.expect(kReturned);
  check_collectives(ranks.all);
  return kGood;
}

int child_throws() {
  Ranks ranks;
  check_collectives(ranks.all);
  const Child child = Child::make();
  if (child.is_here()) throw ThrownByChild();
  check_collectives(ranks.all);
  child.expect(kThrew);
  check_collectives(ranks.all);
  return kGood;
}

int child_exits() {
  ranks_at_exit.emplace();
  check_collectives(ranks_at_exit->all);
  const Child child = Child::make();
  if (child.is_here()) std::exit(kExited);
  check_collectives(ranks_at_exit->all);
  child.expect(kExited);
  check_collectives(ranks_at_exit->all);
  ranks_at_exit.reset();
  return kGood;
}

int child_calls() {
  Ranks ranks;
  check_collectives(ranks.all);
  const Child child = Child::make();
  if (child.is_here()) {
    expect_all_refused(ranks.world, ranks.all);
    return kReturned;
  }
  check_collectives(ranks.all);
  child.expect(kReturned);
  check_collectives(ranks.all);
  return kGood;
}

int grandchild_calls() {
  Ranks ranks;
  check_collectives(ranks.all);
  const Child child = Child::make();
  if (child.is_here()) {
    const Child grandchild = Child::make();
    expect_all_refused(ranks.world, ranks.all);
    if (!grandchild.is_here()) grandchild.expect(kReturned);
    return kReturned;
  }
  child.expect(kReturned);
  check_collectives(ranks.all);
  return kGood;
}

int child_of_a_thread() {
  ranks_at_exit.emplace();
  check_collectives(ranks_at_exit->all);
  std::optional<Child> child;
  std::thread([&] {
    child = Child::make();
    if (!child->is_here()) return;
    expect_all_refused(ranks_at_exit->world, ranks_at_exit->all);
    std::exit(kExited);
  }).join();
  check_collectives(ranks_at_exit->all);
  child->expect(kExited);
  check_collectives(ranks_at_exit->all);
  ranks_at_exit.reset();
  return kGood;
}

/// Rank 0 holds the collective back until the other ranks' children have ended.
int pending() {
  Ranks ranks;
  Communicator held_back = ranks.all.duplicate();
  check_collectives(ranks.all);
  const bool forks = ranks.all.rank() > 0 || ranks.all.size() == 1;
  for (int round = 0; round < 10; ++round) {
    std::vector<float> values(100'000, 1.0F);
    std::optional<Child> child;
    if (forks) {
      Work work = held_back.allreduce_async(values, ReduceOp::kSum);
      child = Child::make();
      if (child->is_here()) {
        expect_refused("test", [&] { (void)work.test(); });
        expect_refused("wait", [&] { work.wait(); });
        expect_all_refused(ranks.world, held_back);
        if (round % 2 == 0) throw ThrownByChild();
        return kReturned;
      }
      child->expect(round % 2 == 0 ? kThrew : kReturned);
      ranks.all.barrier();
      work.wait();
    } else {
      ranks.all.barrier();
      held_back.allreduce(values, ReduceOp::kSum);
    }
    need(values.back() == static_cast<float>(ranks.all.size()), "an allreduce that was pending at the fork is wrong");
  }
  check_collectives(ranks.all);
  return kGood;
}

int averaging() {
  Ranks ranks;
  std::vector<float> first(50'000, 1.0F), second(50'000, 1.0F);
  farandole::GradientAverager averager(ranks.all, {{first, "first"}, {second, "second"}}, {.bucket_bytes = 200'000});
  averager.ready(1);
  const Child child = Child::make();
  if (child.is_here()) {
    expect_refused("ready", [&] { averager.ready(0); });
    expect_refused("wait", [&] { averager.wait(); });
    throw ThrownByChild();
  }
  child.expect(kThrew);
  averager.ready(0);
  averager.wait();
  need(first.back() == 1.0F && second.front() == 1.0F, "averaged gradients are wrong after the fork");
  check_collectives(ranks.all);
  return kGood;
}

/// Ends a child without unwinding its stack, on which objects hold threads that the child does not have.
[[noreturn]] void end_child_after(const std::function<void()>& checks) {
  try {
    checks();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "forked_rank, pid %d: %s\n", getpid(), error.what());
    std::_Exit(kBad);
  }
  std::exit(kExited);
}

/// Threads of the rank use everything that has a mutex while others fork: a child finds some of them locked for ever.
int churn() {
  ranks_at_exit.emplace();
  Communicator& all = ranks_at_exit->all;
  Communicator background = all.duplicate();
  farandole::configure_log(farandole::LogLevel::kOff, "churn");
  std::jthread logger([](const std::stop_token& stop) {
    while (!stop.stop_requested()) farandole::log(farandole::LogLevel::kError, "not to be seen");
  });
  std::jthread caller([&] {
    const int times = 2000;
    std::vector<float> values(3000, 1.0F);
    for (int i = 0; i < times; ++i) background.allreduce_async(values, ReduceOp::kMax).wait();
  });
  std::jthread replicas([] {
    farandole::run_replicas(2, [](Communicator& threads) {
      std::vector<float> values(1000, 1.0F);
      // Each makes a schedule of its own, which takes longer than it runs.
      for (int i = 0; i < 600; ++i) {
        threads.allreduce(values, ReduceOp::kMax, {.algorithm = "ring", .segments = 1 + i % 300});
      }
    });
  });
  for (int i = 0; i < 40; ++i) {
    const Child child = Child::make();
    if (child.is_here())
      end_child_after([&] {
        expect_all_refused(ranks_at_exit->world, all);
        expect_refused("in the background", [&] { (void)internals(background).peer_has_started_next(); });
        farandole::log(farandole::LogLevel::kError, "not to be seen");
        farandole::run_replicas(2, [](Communicator& threads) {
          std::vector<float> values(1000, 1.0F);
          threads.allreduce(values, ReduceOp::kSum, {.algorithm = "ring"});
          need(values.back() == 2.0F, "an allreduce of the child's own is wrong");
        });
      });
    child.expect(kExited);
  }
  logger.request_stop();
  logger.join();
  caller.join();
  replicas.join();
  check_collectives(all);
  background = {};
  ranks_at_exit.reset();
  return kGood;
}

/// Ranks as threads of one process (and of several).
int replicas_fork(int forking_replica, bool throws) {
  WorldOptions options;
  options.replicas = 2;
  const pid_t parent = getpid();
  World world(options);
  farandole::run_replicas(world, [&](Communicator& ranks) {
    check_collectives(ranks);
    if (ranks.rank() % 2 != forking_replica) {
      for (int i = 0; i < 2; ++i) check_collectives(ranks);
      return;
    }
    const Child child = Child::make();
    if (child.is_here()) {
      expect_all_refused(world, ranks);
      if (throws) throw ThrownByChild();
      return;
    }
    check_collectives(ranks);
    // The thread of replica 1 is all that there is of its child: where it ends the process ends, and nobody can catch.
    if (forking_replica == 0) {
      child.expect(throws ? kThrew : kReturned);
    } else if (throws) {
      child.expect(EXIT_FAILURE, "ends with an exception: thrown by the child");
    } else {
      child.expect(kGood);
    }
    check_collectives(ranks);
  });
  return getpid() == parent ? kGood : kReturned;
}

/// Child and grandchild make a job of their own, while the rank is in its.
int child_joins() {
  Ranks ranks;
  check_collectives(ranks.all);
  const std::string job = "children-of-" + std::to_string(getpid());
  const Child child = Child::make();
  if (child.is_here()) {
    setenv("FARANDOLE_JOB", job.c_str(), 1);
    setenv("FARANDOLE_SIZE", "2", 1);
    setenv("FARANDOLE_RANK", "0", 1);
    const Child grandchild = Child::make();
    if (grandchild.is_here()) setenv("FARANDOLE_RANK", "1", 1);
    {
      Ranks own;
      need(own.all.size() == 2, "the children did not find each other");
      check_collectives(own.all);
      expect_refused("the parent's communicator", [&] { ranks.all.barrier(); });
    }
    if (!grandchild.is_here()) grandchild.expect(kReturned);
    return kReturned;
  }
  check_collectives(ranks.all);
  child.expect(kReturned);
  check_collectives(ranks.all);
  return kGood;
}

/// Without variables of its own a child may have a job of itself, and threads as ranks.
int child_alone() {
  Ranks ranks;
  check_collectives(ranks.all);
  const Child child = Child::make();
  if (child.is_here()) {
    {
      Ranks own;
      need(own.all.size() == 1 && own.world.backend_description().starts_with("none ("),
           "a child that joins nothing is not alone: " + own.world.backend_description());
      check_collectives(own.all);
    }
    farandole::run_replicas(3, [](Communicator& threads) { check_collectives(threads); });
    return kReturned;
  }
  check_collectives(ranks.all);
  child.expect(kReturned);
  check_collectives(ranks.all);
  return kGood;
}

int run(const std::string& name) {
  const std::map<std::string, std::function<int()>> cases{
      {"returns", child_returns},
      {"throws", child_throws},
      {"exits", child_exits},
      {"calls", child_calls},
      {"grandchild", grandchild_calls},
      {"thread", child_of_a_thread},
      {"pending", pending},
      {"averaging", averaging},
      {"churn", churn},
      {"replica", [] { return replicas_fork(0, false); }},
      {"replica_throws", [] { return replicas_fork(0, true); }},
      {"replica_thread", [] { return replicas_fork(1, false); }},
      {"replica_thread_throws", [] { return replicas_fork(1, true); }},
      {"joins", child_joins},
      {"alone", child_alone},
      {"engine", fork_with_engine},
  };
  return cases.at(name)();
}

}  // namespace

int main(int argc, char** argv) {
  alarm(kDeadlineSeconds);
  try {
    return run(argc > 1 ? argv[1] : "returns");
  } catch (const ThrownByChild&) {
    return kThrew;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "forked_rank, pid %d: %s\n", getpid(), error.what());
    return kBad;
  }
}
