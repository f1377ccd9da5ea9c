// SPDX-License-Identifier: Apache-2.0
#include "device/device_blocks.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

namespace farandole {
namespace {

/// A pool that counts the blocks that were returned.
class Pool {
 public:
  DeviceScratch block(std::size_t bytes) {
    return {::operator new(bytes), [this](void* memory) {
              ++returned;
              ::operator delete(memory);
            }};
  }
  int returned = 0;
};

/// Ends of calls whose words the test writes, as streams do.
struct Ends {
  std::vector<std::uint32_t> words = std::vector<std::uint32_t>(CallEnds::kCapacity);
  std::shared_ptr<CallEnds> ends = std::make_shared<CallEnds>(DeviceScratch(words.data(), [](void*) {}));
  void write(std::uint64_t number) { *ends->word(number) = static_cast<std::uint32_t>(number); }
};

TEST(DeviceBlocks, AnUnusedBlockIsReturnedWhenReleased) {
  Pool pool;
  DeviceBlocks blocks;
  void* const block = blocks.add(pool.block(1000), 1000);
  EXPECT_EQ(pool.returned, 0);
  blocks.release(block);
  EXPECT_EQ(pool.returned, 1);
  EXPECT_FALSE(blocks.collect().are_left);
}

TEST(DeviceBlocks, ABlockIsReturnedAfterItsLastDirectCall) {
  Pool pool;
  Ends calls;
  DeviceBlocks blocks;
  auto* const block = static_cast<std::byte*>(blocks.add(pool.block(1000), 1000));
  for (const std::uint64_t number : {1, 2}) blocks.note_use(block + 999, 1, calls.ends, number);
  blocks.note_use(block + 1000, 8, calls.ends, 3);  // of other memory
  calls.write(2);                                   // in another stream, before call 1 has ended
  blocks.release(block);
  EXPECT_TRUE(blocks.collect().are_left);
  EXPECT_EQ(pool.returned, 0);
  calls.write(1);
  EXPECT_FALSE(blocks.collect().are_left);
  EXPECT_EQ(pool.returned, 1);
}

TEST(DeviceBlocks, CallsThatWriteNoWordEndWhenTheLogReleasesThem) {
  Pool pool;
  Ends calls;
  DeviceBlocks blocks;
  void* const block = blocks.add(pool.block(8), 8);
  blocks.note_use(block, 8, calls.ends, 5);
  blocks.release(block);
  EXPECT_TRUE(blocks.collect().are_left);
  calls.ends->set_released(5);
  EXPECT_FALSE(blocks.collect().are_left);
}

TEST(DeviceBlocks, ABlockOfSeveralUsersIsReturnedAfterTheLast) {
  Pool pool;
  Ends first, second;
  auto operation = std::make_shared<BlockUser>();
  DeviceBlocks blocks;
  void* const block = blocks.add(pool.block(8), 8);
  blocks.note_use(block, 8, first.ends, 1);
  blocks.note_use(block, 8, second.ends, 1);
  blocks.note_use(block, 8, operation);
  blocks.release(block);
  first.write(1);
  EXPECT_TRUE(blocks.collect().are_left);
  second.ends.reset();  // its communicator has ended, and so have all its calls
  EXPECT_TRUE(blocks.collect().are_left);
  operation.reset();
  EXPECT_FALSE(blocks.collect().are_left);
  EXPECT_EQ(pool.returned, 1);
}

TEST(DeviceBlocks, ACallOverSeveralBlocksUsesThemAll) {
  Pool pool;
  auto operation = std::make_shared<BlockUser>();
  DeviceBlocks blocks;
  std::vector<std::byte> memory(30);  // adjacent blocks
  for (const std::size_t begin : {0, 10, 20}) {
    blocks.add(DeviceScratch(&memory[begin], [&](void*) { ++pool.returned; }), 10);
  }
  blocks.note_use(&memory[5], 6, operation);
  for (const std::size_t begin : {0, 10, 20}) blocks.release(&memory[begin]);
  EXPECT_EQ(pool.returned, 1);
  EXPECT_FALSE(blocks.collect().are_running);  // another rank may not have made the call
  operation->is_enqueued = true;
  EXPECT_TRUE(blocks.collect().are_running);
  operation.reset();
  EXPECT_EQ(blocks.collect().returned, 2U);
  EXPECT_EQ(pool.returned, 3);
}

/// Another thread of the parent may hold the mutex at the fork.
TEST(DeviceBlocks, AForkedChildReleasesNothing) {
  Pool pool;
  DeviceBlocks blocks;
  void* const block = blocks.add(pool.block(100), 100);
  std::atomic<bool> stop{false};
  std::thread busy([&] {
    while (!stop) blocks.collect();
  });
  for (int i = 0; i < 50; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      alarm(10);
      blocks.release(block);
      _exit(0);
    }
    int status = -1;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0) << "the child has hung";
  }
  stop = true;
  busy.join();
  blocks.release(block);
}

TEST(DeviceBlocks, OtherMemoryIsNoBlock) {
  const auto user = std::make_shared<BlockUser>();
  DeviceBlocks blocks;
  int other = 0;
  blocks.note_use(&other, sizeof other, user);
  blocks.note_use(nullptr, 0, user);
  EXPECT_FALSE(blocks.collect().are_left);
}

}  // namespace
}  // namespace farandole
