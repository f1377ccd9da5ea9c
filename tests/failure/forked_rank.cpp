// SPDX-License-Identifier: Apache-2.0
// A program whose ranks fork in the middle of a job. usage: forked_rank CASE
//
// What the child does is the case; the rank meanwhile goes on with collectives and checks their results, and the child
// must end in time, with the status of its case, without a word on standard error. Every process has a deadline: who
// hangs is ended by SIGALRM, and the test fails.
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "farandole/collectives/communicator.h"
#include "farandole/core/error.h"
#include "farandole/engine.h"
#include "farandole/gradients/gradient_averager.h"
#include "farandole/internal/log.h"

namespace {

using farandole::Buffer;
using farandole::Communicator;
using farandole::DType;
using farandole::InvalidArgument;
using farandole::ReduceOp;
using farandole::Work;
using farandole::World;
using farandole::WorldOptions;

constexpr unsigned kDeadlineSeconds = 30;
constexpr int kGood = 0, kBad = 2, kReturned = 3, kExited = 4, kThrew = 5;

/// Thrown in a child, through whatever is on its stack.
struct ThrownByChild : std::runtime_error {
  ThrownByChild() : std::runtime_error("thrown by the child") {}
};

void need(bool condition, const std::string& what) {
  if (!condition) throw std::runtime_error(what);
}

/// A forked child: its standard error goes to the parent, which expects none.
struct Child {
  pid_t pid = 0;
  int standard_error = -1;

  /// 0 in the child, as fork.
  static Child make() {
    int ends[2] = {-1, -1};
    need(pipe(ends) == 0, "pipe");
    const pid_t pid = fork();
    need(pid >= 0, "fork");
    if (pid > 0) {
      close(ends[1]);
      return {pid, ends[0]};
    }
    alarm(kDeadlineSeconds);
    dup2(ends[1], STDERR_FILENO);
    close(ends[0]);
    close(ends[1]);
    return {};
  }
  bool is_here() const { return pid == 0; }
  /// The end of the child, which must be this one. @param text  what it says; empty: nothing at all
  void expect(int wanted, const std::string& text = {}) const {
    std::string said;
    char part[256];
    for (ssize_t got = 0; (got = read(standard_error, part, sizeof part)) > 0;) said.append(part, got);
    close(standard_error);
    int status = 0;
    need(waitpid(pid, &status, 0) == pid, "waitpid");
    need(text.empty() ? said.empty() : said.find(text) != std::string::npos, "the child said: " + said);
    need(WIFEXITED(status), "the child was ended by signal " + std::to_string(WTERMSIG(status)));
    need(WEXITSTATUS(status) == wanted,
         "the child ended with " + std::to_string(WEXITSTATUS(status)) + " instead of " + std::to_string(wanted));
  }
};

void check_collectives(Communicator& ranks, int times = 20) {
  for (int i = 0; i < times; ++i) {
    for (const std::size_t count : {std::size_t{1}, std::size_t{100'000}}) {
      std::vector<float> data(count, static_cast<float>(ranks.rank() + i));
      ranks.allreduce(data, ReduceOp::kSum);
      const auto size = static_cast<float>(ranks.size());
      const float expected = size * (size - 1) / 2 + size * static_cast<float>(i);
      need(data.front() == expected && data.back() == expected, "an allreduce is wrong after the fork");
    }
    ranks.barrier();
  }
}

/// What `call` throws must be that this process is no rank.
void expect_refused(const char* name, const std::function<void()>& call) {
  const std::string own = "this process (pid " + std::to_string(getpid()) + ")";
  try {
    call();
  } catch (const InvalidArgument& error) {
    const std::string text = error.what();
    for (const std::string& part : {own, std::string("forked from rank "), std::string("host ")}) {
      need(text.find(part) != std::string::npos, std::string(name) + ": " + text);
    }
    return;
  }
  throw std::runtime_error(std::string(name) + " worked in a forked child");
}

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
      {"local_rank", [&] { (void)ranks.local_rank(); }},
      {"describe", [&] { (void)ranks.describe(0); }},
      {"peer_has_started_next", [&] { (void)ranks.peer_has_started_next(); }},
      {"describe_missing", [&] { (void)ranks.describe_missing(); }},
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

/// What a case needs of the job. Static, so that std::exit destroys it.
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
        expect_refused("in the background", [&] { (void)background.peer_has_started_next(); });
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

// ---- The engine's C interface --------------------------------------------------------------------------------------

std::string text_of(farandole_error* error) {
  std::string text = error != nullptr ? farandole_error_text(error) : "no error";
  farandole_error_free(error);
  return text;
}

void mark_done(void* flag, const farandole_result* result) {
  __atomic_store_n(static_cast<int32_t*>(flag), result->error == nullptr ? 1 : -1, __ATOMIC_RELEASE);
}

void never_joined(void* /*context*/, const farandole_error* /*error*/, int32_t /*last_rank*/) {}

int engine_allreduce(const char* name, float* value, int32_t* flag, farandole_error** error) {
  const int64_t shape[] = {1};
  farandole_tensor tensor{};
  tensor.struct_bytes = sizeof tensor;
  tensor.dtype = FARANDOLE_F32;
  tensor.dimensions = 1;
  tensor.shape = shape;
  tensor.input = value;
  tensor.output = value;
  tensor.context = flag;
  tensor.done = mark_done;
  farandole_request request{};
  request.struct_bytes = sizeof request;
  request.name = name;
  request.collective = FARANDOLE_ALLREDUCE;
  request.op = FARANDOLE_SUM;
  request.prescale = request.postscale = 1.0;
  request.tensors = &tensor;
  request.tensor_count = 1;
  return farandole_submit(&request, error);
}

void check_engine(const char* name) {
  farandole_place place{};
  place.struct_bytes = sizeof place;
  farandole_get_place(&place);
  float value = 1.0F;
  int32_t flag = 0;
  farandole_error* error = nullptr;
  if (engine_allreduce(name, &value, &flag, &error) != 0) throw std::runtime_error(text_of(error));
  farandole_wait_until(&flag);
  need(flag == 1 && value == static_cast<float>(place.size), "the engine's allreduce is wrong");
}

void expect_no_engine() {
  need(farandole_is_initialized() == 0, "a forked child is initialized");
  farandole_place place{};
  place.struct_bytes = sizeof place;
  farandole_get_place(&place);
  need(place.rank == -1 && place.size == -1, "a forked child has a place");
  const int32_t no_flag = 0;
  farandole_wait_until(&no_flag);
  farandole_abort("a child aborts");
  need(farandole_window_allocate(1 << 20) == nullptr, "a forked child gets a window");
  need(farandole_process_sets(nullptr, 0) == 0 && farandole_generation(0) == 0, "a forked child has process sets");
  farandole_text_free(farandole_describe());
  need(farandole_check_not_forked(nullptr) == 1, "a forked child is not told so");
  float value = 1.0F;
  int32_t flag = 0, set = 0;
  const std::map<const char*, std::function<int(farandole_error**)>> calls{
      {"farandole_submit", [&](farandole_error** error) { return engine_allreduce("a", &value, &flag, error); }},
      {"farandole_join", [&](farandole_error** error) { return farandole_join(0, nullptr, never_joined, error); }},
      {"farandole_add_process_set",
       [&](farandole_error** error) { return farandole_add_process_set(&set, 1, &set, error); }},
      {"farandole_remove_process_set", [&](farandole_error** error) { return farandole_remove_process_set(1, error); }},
  };
  for (const auto& [name, call] : calls) {
    expect_refused(name, [&, call = call] {
      farandole_error* error = nullptr;
      if (call(&error) == 0) return;
      const auto kind = farandole_error_get_kind(error);
      const std::string text = text_of(error);
      need(kind == FARANDOLE_INVALID_ARGUMENT, text);
      throw InvalidArgument(text);
    });
  }
  need(farandole_shutdown(nullptr) == 0, "leaving in a forked child is an error");
}

/// Threads submit while children are made, so that the engine's mutexes are held at some forks.
int engine() {
  farandole_error* error = nullptr;
  if (farandole_init(nullptr, &error) != 0) throw std::runtime_error(text_of(error));
  void* const window = farandole_window_allocate(1 << 20);
  check_engine("before");
  std::jthread submitter([] {
    for (int i = 0; i < 1000; ++i) check_engine(("background" + std::to_string(i)).c_str());
  });
  for (int i = 0; i < 20; ++i) {
    const Child child = Child::make();
    if (child.is_here()) {
      expect_no_engine();
      need(window == nullptr || farandole_window_free(window) == 1, "a window of the parent is not known");
      if (i % 2 == 0) std::exit(kExited);
      // A job of its own, without the variables for one: of this process.
      if (farandole_init(nullptr, &error) != 0) throw std::runtime_error(text_of(error));
      check_engine("in the child");
      need(farandole_shutdown(nullptr) == 0, "leaving the child's own job");
      expect_no_engine();
      std::exit(kExited);
    }
    child.expect(kExited);
  }
  submitter.join();
  check_engine("after");
  farandole_window_free(window);
  if (farandole_shutdown(&error) != 0) throw std::runtime_error(text_of(error));
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
      {"engine", engine},
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
