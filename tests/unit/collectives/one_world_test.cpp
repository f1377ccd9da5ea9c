// SPDX-License-Identifier: Apache-2.0
// A process has at most one World at a time.
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "farandole/collectives/communicator.h"
#include "farandole/core/error.h"
#include "farandole/engine.h"

namespace farandole {
namespace {

std::string refusal_of_a_second() {
  try {
    World second;
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "no error";
}

void expect_works(World& world) {
  Communicator ranks = Communicator::of_world(world);
  std::vector<float> values{3.0F};
  ranks.allreduce(values, ReduceOp::kSum);
  EXPECT_EQ(values[0], 3.0F);
}

TEST(OneWorld, SecondWorldIsRefusedWithTheFirstsOrigin) {
  World first;
  const std::string text = refusal_of_a_second();
  for (const std::string& part : {std::string("a second World"), std::string("is rank 0 (host "),
                                  "pid " + std::to_string(getpid()), std::string("one World at a time")}) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  }
  expect_works(first);
}

TEST(OneWorld, AnotherWorldMayFollow) {
  for (int i = 0; i < 3; ++i) {
    World world;
    expect_works(world);
  }
}

TEST(OneWorld, FailedWorldDoesNotCount) {
  WorldOptions options;
  options.expected_size = 5;
  EXPECT_THROW(World world(options), InvalidArgument);
  options.expected_size = 0;
  options.replicas = 1000;
  EXPECT_THROW(World world(options), InvalidArgument);
  World world;
  expect_works(world);
}

TEST(OneWorld, ReplicasMayRunBesideAWorld) {
  World first;
  WorldOptions options;
  options.alone = true;
  World alone(options);
  World alone_as_well(options);
  run_replicas(3, [](Communicator& ranks) { ranks.barrier(); });
  expect_works(alone);
  expect_works(first);
}

TEST(OneWorld, OneOfManyThreadsGetsTheWorld) {
  for (int round = 0; round < 20; ++round) {
    std::atomic<int> ready{0}, tried{0}, made{0};
    std::vector<std::jthread> threads;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([&] {
        ready.fetch_add(1);
        while (ready.load() < 4) std::this_thread::yield();
        std::optional<World> world;
        try {
          world.emplace();
          made.fetch_add(1);
        } catch (const InvalidArgument&) {
        }
        tried.fetch_add(1);
        // It lives until all have tried.
        while (tried.load() < 4) std::this_thread::yield();
      });
    }
    threads.clear();
    EXPECT_EQ(made.load(), 1);
  }
}

TEST(OneWorld, TheEnginesWorldCounts) {
  ASSERT_EQ(farandole_init(nullptr, nullptr), 0);
  EXPECT_NE(refusal_of_a_second().find("farandole_shutdown"), std::string::npos);
  EXPECT_EQ(farandole_init(nullptr, nullptr), 0) << "it runs already";
  ASSERT_EQ(farandole_shutdown(nullptr), 0);
  World world;
  farandole_error* error = nullptr;
  EXPECT_EQ(farandole_init(nullptr, &error), 1);
  ASSERT_NE(error, nullptr);
  EXPECT_EQ(farandole_error_get_kind(error), FARANDOLE_INVALID_ARGUMENT);
  EXPECT_NE(std::string(farandole_error_text(error)).find("a second World"), std::string::npos);
  farandole_error_free(error);
  EXPECT_EQ(farandole_is_initialized(), 0);
  EXPECT_EQ(farandole_check_not_forked(nullptr), 0);
  expect_works(world);
}

}  // namespace
}  // namespace farandole
