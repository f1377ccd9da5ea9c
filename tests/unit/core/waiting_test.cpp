// SPDX-License-Identifier: Apache-2.0
// The doorbell, the waiting ladder and the progress thread.
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <latch>
#include <memory>
#include <system_error>
#include <thread>

#include "farandole/internal/deadline.h"
#include "farandole/internal/progress.h"
#include "farandole/internal/waiter.h"
#include "sanitizers.h"

namespace farandole {
namespace {

using namespace std::chrono_literals;

TEST(Doorbell, ARingBetweenLookingAndSleepingIsNotMissed) {
  Doorbell bell;
  const std::uint32_t seen = bell.rings();
  bell.ring();
  const auto start = Clock::now();
  bell.sleep(seen, 10s);
  EXPECT_LT(Clock::now() - start, 5s);
}

TEST(Doorbell, ARingWakesASleeper) {
  Doorbell bell;
  std::atomic<bool> woken{false};
  const std::uint32_t seen = bell.rings();
  std::thread sleeper([&] {
    bell.sleep(seen, 60s);
    woken = true;
  });
  bell.ring();
  sleeper.join();
  EXPECT_TRUE(woken);
}

TEST(Doorbell, SleepEndsAtItsLimit) {
  Doorbell bell;
  const auto start = Clock::now();
  bell.sleep(bell.rings(), 2ms);
  EXPECT_GE(Clock::now() - start, 1ms);
}

TEST(Waiter, PausesAndYieldsBeforeItSleepsUntilReset) {
  Doorbell bell;
  Waiter waiter(bell, {});
  int rungs = 0;
  for (waiter.look(); !waiter.rest(); waiter.look()) ++rungs;
  EXPECT_GT(rungs, 100) << "it pauses and yields first";
  waiter.look();
  EXPECT_TRUE(waiter.rest()) << "it stays on the sleeping rung";
  waiter.reset();
  waiter.look();
  EXPECT_FALSE(waiter.rest());
}

// Both threads may use one core only, and the other one never lets go of it by itself.
TEST(Waiter, SleepsSoonWhereAnotherThreadWantsTheCore) {
  cpu_set_t before, one;
  ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
  CPU_ZERO(&one);
  CPU_SET(sched_getcpu(), &one);
  if (sched_setaffinity(0, sizeof one, &one) != 0) GTEST_SKIP() << "threads cannot be bound to a core here";
  std::atomic<bool> stop{false};
  std::thread busy([&] {
    while (!stop) continue;
  });
  Doorbell bell;
  Waiter waiter(bell, {});
  int rungs = 0;
  for (waiter.look(); !waiter.rest(); waiter.look()) ++rungs;
  stop = true;
  busy.join();
  sched_setaffinity(0, sizeof before, &before);
  EXPECT_LT(rungs, 20'000) << "it went through all its yields";
}

TEST(Waiter, OversubscribedOptionMakesItSleepSooner) {
  Doorbell bell;
  Waiter patient(bell, {});
  Waiter oversubscribed(bell, {.oversubscribed = true});
  const auto rungs = [](Waiter& waiter) {
    int count = 0;
    for (waiter.look(); !waiter.rest(); waiter.look()) ++count;
    return count;
  };
  EXPECT_LT(10 * rungs(oversubscribed), rungs(patient));
}

class Countdown final : public Progressable {
 public:
  explicit Countdown(int from) : left_(from) {}
  State advance() override {
    if (left_ == 0) return State::kIdle;
    if (--left_ == 0) done_.count_down();
    return State::kMoved;
  }
  void poll_health() override {}
  void wait() { done_.wait(); }

 private:
  std::atomic<int> left_;
  std::latch done_{1};
};

TEST(ProgressThread, AdvancesAttachedAndDropsDestroyedObjects) {
  Doorbell doorbell;
  ProgressThread progress({}, doorbell);
  const auto first = std::make_shared<Countdown>(10);
  auto second = std::make_shared<Countdown>(100);
  progress.attach(first);
  progress.attach(second);
  progress.wake();
  first->wait();
  second->wait();
  second.reset();
  const auto third = std::make_shared<Countdown>(5);
  progress.attach(third);
  progress.wake();
  third->wait();
}

TEST(ProgressThread, ChecksHealthWhileOtherWorkKeepsMoving) {
  struct Busy final : Progressable {
    State advance() override { return State::kMoved; }
    void poll_health() override {}
  };
  struct Stuck final : Progressable {
    State advance() override { return State::kWaiting; }
    void poll_health() override {
      if (++checks == 2) twice.count_down();
    }
    int checks = 0;
    std::latch twice{1};
  };
  Doorbell doorbell;
  ProgressThread progress({}, doorbell);
  const auto busy = std::make_shared<Busy>();
  const auto stuck = std::make_shared<Stuck>();
  progress.attach(busy);
  progress.attach(stuck);
  progress.wake();
  stuck->twice.wait();
}

/// In a process of a user who may have no more threads: 0 if waking the progress thread is survived.
int wake_without_threads() {
  constexpr uid_t kNobody = 65534;
  const rlimit none{0, 0};
  if ((geteuid() == 0 && setuid(kNobody) != 0) || setrlimit(RLIMIT_NPROC, &none) != 0) return 77;
  try {
    std::thread([] {}).join();
    return 77;
  } catch (const std::system_error&) {
  }
  Doorbell doorbell;
  ProgressThread progress({}, doorbell);
  progress.wake();
  progress.wake();
  return 0;
}

/// Allocator that counts its live blocks.
template <class T>
struct CountedMemory {
  using value_type = T;
  explicit CountedMemory(int& counter) : blocks(&counter) {}
  template <class U>
  explicit CountedMemory(const CountedMemory<U>& other) : blocks(other.blocks) {}
  T* allocate(std::size_t count) {
    ++*blocks;
    return std::allocator<T>().allocate(count);
  }
  void deallocate(T* memory, std::size_t count) {
    --*blocks;
    std::allocator<T>().deallocate(memory, count);
  }
  bool operator==(const CountedMemory&) const = default;
  int* blocks;
};

TEST(ProgressThread, FreesObjectsDestroyedBeforeItStarts) {
  struct Idle final : Progressable {
    State advance() override { return State::kIdle; }
    void poll_health() override {}
  };
  Doorbell bell;
  ProgressThread progress({}, bell);
  int blocks = 0;
  for (int i = 0; i < 100; ++i) progress.attach(std::allocate_shared<Idle>(CountedMemory<Idle>(blocks)));
  EXPECT_LE(blocks, 1);
}

TEST(ProgressThread, WakeSurvivesFailureToStartTheThread) {
  if (test::kThreadSanitizer) GTEST_SKIP() << "the thread sanitizer ends forked children that start threads";
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) _exit(wake_without_threads());
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 77) GTEST_SKIP() << "threads cannot be limited here";
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

TEST(ProgressThread, EndsWithoutHavingBeenUsed) {
  Doorbell doorbell;
  const ProgressThread progress({}, doorbell);
}

TEST(ProgressGate, IsClosedWhileNothingIsPending) {
  ProgressGate gate(/*guards=*/true);
  EXPECT_FALSE(static_cast<bool>(ProgressGate::Passage(gate)));
  gate.begin();
  {
    const ProgressGate::Passage passage(gate);
    EXPECT_TRUE(static_cast<bool>(passage));
    EXPECT_TRUE(gate.is_quiet()) << "something is pending";
    gate.end();
    EXPECT_FALSE(gate.is_quiet()) << "the last has ended, and a thread is inside";
  }
  EXPECT_TRUE(gate.is_quiet());
  ProgressGate open(/*guards=*/false);
  EXPECT_TRUE(static_cast<bool>(ProgressGate::Passage(open)));
}

TEST(ProgressGate, NoThreadIsInsideAfterWaitUntilQuiet) {
  ProgressGate gate(/*guards=*/true);
  std::atomic<int> inside{0};
  std::atomic<int> entered{0};
  std::jthread progress([&](const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      const ProgressGate::Passage passage(gate);
      if (!passage) continue;
      inside = 1;
      ++entered;
      std::this_thread::yield();
      inside = 0;
    }
  });
  for (int i = 0; i < 20'000; ++i) {
    gate.begin();
    if (i % 100 == 0) {
      for (const int before = entered; entered == before;) std::this_thread::yield();
    }
    gate.end();
    gate.wait_until_quiet();
    ASSERT_EQ(inside, 0);
  }
}

TEST(Deadline, NeverAndAfter) {
  EXPECT_TRUE(Deadline::never().is_never());
  EXPECT_FALSE(Deadline::never().passed());
  EXPECT_TRUE(Deadline::after(0s).passed());
  EXPECT_FALSE(Deadline::after(1000s).passed());
}

}  // namespace
}  // namespace farandole
