// SPDX-License-Identifier: Apache-2.0
// Detection of replays of captured calls, by the words that their graphs write.
#include "device/captured_calls.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <set>
#include <vector>

namespace farandole {
namespace {

Clock::time_point at(int seconds) {
  return Clock::time_point(std::chrono::hours(1) + std::chrono::seconds(seconds));
}

DeviceScratch zeros() {
  return {std::calloc(1, CapturedCalls::kSlabBytes), [](void* memory) { std::free(memory); }};
}

/// Captured calls numbered from 1. The test writes what a graph would write.
class Captured {
 public:
  explicit Captured(int calls) {
    for (int number = 1; number <= calls; ++number) {
      words_.push_back(calls_.take_word(zeros));
      calls_.add(words_.back(), static_cast<std::uint64_t>(number), Descriptor());
    }
  }
  void begin(std::size_t number) { write(number, CapturedCalls::kBegun); }
  void end(std::size_t number) { write(number, CapturedCalls::kIdle); }
  /// Number of the call whose replay has run for longest; 0 if none runs.
  std::uint64_t look(int seconds) {
    const auto replay = calls_.look(at(seconds));
    since_ = replay ? replay->since : Clock::time_point{};
    return replay ? replay->number : 0;
  }
  /// When the replay of the last `look` was first seen.
  Clock::time_point since() const { return since_; }
  CapturedCalls& calls() { return calls_; }

 private:
  void write(std::size_t number, std::uint32_t value) { std::atomic_ref(*words_[number - 1]).store(value); }
  CapturedCalls calls_;
  std::vector<std::uint32_t*> words_;
  Clock::time_point since_{};
};

TEST(CapturedCalls, AReplayRunsFromItsFirstLookToItsEnd) {
  Captured captured(1);
  EXPECT_EQ(captured.look(0), 0U);
  EXPECT_FALSE(captured.calls().has_running());
  captured.begin(1);
  for (const int seconds : {1, 2, 30}) {
    EXPECT_EQ(captured.look(seconds), 1U);
    EXPECT_EQ(captured.since(), at(1));
    EXPECT_TRUE(captured.calls().has_running());
  }
  captured.end(1);
  EXPECT_FALSE(captured.calls().has_running());
  EXPECT_EQ(captured.look(31), 0U);
  EXPECT_EQ(captured.calls().last_end(), at(31));
}

/// Each look finds the call running.
TEST(CapturedCalls, ReplaysWithoutAGapAreToldApart) {
  Captured captured(1);
  for (int seconds = 1; seconds < 100; ++seconds) {
    captured.begin(1);
    EXPECT_EQ(captured.look(seconds), 1U);
    EXPECT_EQ(captured.since(), at(seconds));
    captured.end(1);
  }
  EXPECT_EQ(captured.calls().last_end(), at(99));
}

TEST(CapturedCalls, TheOldestReplayIsReturned) {
  Captured captured(3);
  captured.begin(2);
  EXPECT_EQ(captured.look(1), 2U);
  captured.begin(1);
  captured.begin(3);
  EXPECT_EQ(captured.look(2), 2U);
  captured.end(2);
  captured.begin(2);
  EXPECT_EQ(captured.look(3), 1U);
  EXPECT_EQ(captured.since(), at(2));
}

TEST(CapturedCalls, EachCallHasAWordOfItsOwn) {
  CapturedCalls calls;
  int slabs = 0;
  std::set<std::uint32_t*> words;
  constexpr int kCalls = 2500;
  for (int i = 0; i < kCalls; ++i) {
    words.insert(calls.take_word([&] {
      ++slabs;
      return zeros();
    }));
  }
  EXPECT_EQ(words.size(), std::size_t{kCalls});
  EXPECT_EQ(slabs, 3);
  for (const std::uint32_t* const word : words) EXPECT_EQ(*word, CapturedCalls::kIdle);
}

}  // namespace
}  // namespace farandole
