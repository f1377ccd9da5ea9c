// SPDX-License-Identifier: Apache-2.0
#include "prefetcher.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <memory>
#include <set>
#include <stdexcept>
#include <string>

#include "message_of.h"
#include "process_threads.h"
#include "sanitizers.h"

namespace farandole::trainer {
namespace {

using Numbers = Prefetcher<std::int64_t>;

void square(std::int64_t index, std::int64_t& result) {
  result = index * index;
}

TEST(Prefetcher, GivesTheResultsInOrder) {
  for (const int threads : {1, 2, 4}) {
    for (const int capacity : {1, 3, 8}) {
      Numbers squares(square, threads, capacity);
      squares.set_range(5, 200);
      for (std::int64_t index = 5; index < 200; ++index) {
        EXPECT_EQ(squares.position(), index);
        ASSERT_EQ(squares.next(), index * index) << threads << " threads, capacity " << capacity;
      }
      EXPECT_THROW(squares.next(), InternalError) << "behind the end";
    }
  }
}

TEST(Prefetcher, ProducesNoMoreThanItsCapacityAhead) {
  constexpr int kCapacity = 3;
  std::atomic<std::int64_t> begun{0}, asked{0}, farthest{0};
  Numbers numbers(
      [&](std::int64_t index, std::int64_t& result) {
        result = index;
        // The result that the consumer holds, or waits for, is beside the capacity.
        const std::int64_t ahead = index - (asked - 1);
        for (std::int64_t most = farthest; ahead > most && !farthest.compare_exchange_weak(most, ahead);) continue;
        ++begun;
        begun.notify_all();
      },
      2, kCapacity);
  numbers.set_range(0, 100);
  for (std::int64_t index = 0; index < 90; ++index) {
    ++asked;
    numbers.next();
    // The threads fill the queue while the consumer uses its result.
    for (std::int64_t seen = begun; seen < index + 1 + kCapacity; seen = begun) begun.wait(seen);
  }
  EXPECT_EQ(farthest, kCapacity);
}

TEST(Prefetcher, UsesTheMemoryOfItsResultsAgain) {
  Numbers numbers(square, 2, 3);
  numbers.set_range(0, 100);
  std::set<const std::int64_t*> places;
  for (int i = 0; i < 100; ++i) places.insert(&numbers.next());
  EXPECT_LE(places.size(), 4U);
}

TEST(Prefetcher, AnErrorSurfacesAtItsIndex) {
  std::atomic<bool> is_broken{true};
  Numbers numbers(
      [&](std::int64_t index, std::int64_t& result) {
        if (index == 7 && is_broken) throw std::runtime_error("cannot read 7");
        result = index;
      },
      3, 6);
  numbers.set_range(0, 20);
  for (std::int64_t index = 0; index < 7; ++index) EXPECT_EQ(numbers.next(), index);
  for (int attempt = 0; attempt < 2; ++attempt) {
    EXPECT_EQ(farandole::test::message_of<std::runtime_error>([&] { numbers.next(); }), "cannot read 7");
    EXPECT_EQ(numbers.position(), 7);
  }
  is_broken = false;
  numbers.stop();  // after which the failed result is produced again
  for (std::int64_t index = 7; index < 20; ++index) ASSERT_EQ(numbers.next(), index);
}

TEST(Prefetcher, FinishedResultsOutlastAStop) {
  std::array<std::atomic<int>, 60> produced{};
  Numbers numbers(
      [&](std::int64_t index, std::int64_t& result) {
        ++produced[static_cast<std::size_t>(index)];
        result = index;
      },
      2, 4);
  numbers.set_range(0, 60);
  for (std::int64_t index = 0; index < 60; ++index) {
    ASSERT_EQ(numbers.next(), index);
    if (index % 7 == 0) numbers.stop();
    numbers.set_range(index + 1, 60);
  }
  for (const auto& times : produced) EXPECT_EQ(times, 1);
}

TEST(Prefetcher, AnotherRangeDropsTheResults) {
  Numbers squares(square, 2, 4);
  squares.set_range(0, 100);
  EXPECT_EQ(squares.next(), 0);
  squares.set_range(50, 53);
  for (std::int64_t index = 50; index < 53; ++index) EXPECT_EQ(squares.next(), index * index);
  squares.set_range(53, 55);
  EXPECT_EQ(squares.next(), 53 * 53);
  squares.set_range(2, 4);
  EXPECT_EQ(squares.next(), 4);
}

TEST(Prefetcher, ThreadsLeaveSignalsToTheProgramAndEndWithTheObject) {
  const auto before = test::threads_at_rest();
  {
    Numbers squares(square, 3, 4);
    squares.set_range(0, 100);
    EXPECT_EQ(test::threads().count, before.count) << "no thread before the first result is needed";
    squares.next();
    test::await_thread_count(before.count + 3);
    EXPECT_EQ(test::threads().takers_of_sigterm, before.takers_of_sigterm);
    squares.stop();
    test::await_thread_count(before.count);
    squares.next();
  }
  test::await_thread_count(before.count);
}

TEST(Prefetcher, AForkedChildIsRefusedAndCanEnd) {
  if (farandole::test::kAddressSanitizer || farandole::test::kThreadSanitizer) {
    GTEST_SKIP() << "allocators of sanitizers do not survive the fork of a process with threads";
  }
  auto squares = std::make_unique<Numbers>(square, 2, 4);
  squares->set_range(0, 100);
  squares->next();
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);
    bool is_refused = false;
    try {
      squares->next();
    } catch (const InvalidArgument& error) {
      is_refused = std::string(error.what()).find("was forked") != std::string::npos;
    }
    squares.reset();
    _exit(is_refused ? 0 : 1);
  }
  int status = 1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(squares->next(), 1);
}

}  // namespace
}  // namespace farandole::trainer
