// SPDX-License-Identifier: Apache-2.0
// The memory pool of TensorFlow's large tensors, over a fake engine.
#include "block_pool.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <map>
#include <vector>

#include "farandole/engine.h"

namespace {

/// The engine: how many ranks share the host, and the windows that it has given.
struct FakeEngine {
  bool is_running = false;
  std::int32_t local_size = 1;
  bool has_room = true;
  int asked = 0;
  std::map<void*, std::size_t> windows;
};
FakeEngine& engine() {
  static FakeEngine fake;
  return fake;
}

}  // namespace

extern "C" {
std::int32_t farandole_is_initialized(void) {
  return engine().is_running ? 1 : 0;
}
void farandole_get_place(farandole_place* place) {
  place->local_size = engine().local_size;
}
// Addresses only: nothing is read or written.
void* farandole_window_allocate(std::size_t bytes) {
  ++engine().asked;
  if (!engine().has_room) return nullptr;
  void* memory = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return nullptr;
  engine().windows[memory] = bytes;
  return memory;
}
std::int32_t farandole_window_free(void* memory) {
  const auto found = engine().windows.find(memory);
  if (found == engine().windows.end()) return 0;
  munmap(memory, found->second);
  engine().windows.erase(found);
  return 1;
}
}

namespace farandole_tensorflow {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;

class BlockPoolTest : public testing::Test {
 protected:
  BlockPoolTest() { start(1); }
  /// An engine anew, which the pool asks for its place.
  void start(std::int32_t local_size) {
    engine().is_running = false;
    pool_.release(pool_.allocate(kMiB).memory);  // it sees that there is none
    engine() = {.is_running = true, .local_size = local_size, .windows = std::move(engine().windows)};
  }
  BlockPool& pool_ = BlockPool::instance();
};

TEST_F(BlockPoolTest, BlocksAreAtMostAQuarterTooLarge) {
  for (std::size_t bytes = BlockPool::kMinBytes; bytes < 8 * kMiB; bytes += 12'345) {
    const BlockPool::Allocated block = pool_.allocate(bytes);
    ASSERT_NE(block.memory, nullptr);
    EXPECT_GE(block.bytes, bytes);
    EXPECT_LE(block.bytes, bytes + bytes / 4);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(block.memory) % 64, 0U);
    std::memset(block.memory, 1, bytes);
    EXPECT_EQ(pool_.size_of(block.memory), block.bytes);
    EXPECT_EQ(pool_.release(block.memory), block.bytes);
  }
}

TEST_F(BlockPoolTest, FreedBlocksAreReusedForTheirSize) {
  const BlockPool::Allocated first = pool_.allocate(3 * kMiB);
  (void)pool_.release(first.memory);
  const BlockPool::Allocated other = pool_.allocate(5 * kMiB);
  const BlockPool::Allocated again = pool_.allocate(3 * kMiB - 100);
  EXPECT_NE(other.memory, first.memory);
  EXPECT_EQ(again.memory, first.memory);
  (void)pool_.release(again.memory);
  (void)pool_.release(other.memory);
}

TEST_F(BlockPoolTest, DoesNotOwnForeignMemory) {
  std::vector<char> stranger(100);
  EXPECT_EQ(pool_.release(stranger.data()), 0U);
  EXPECT_EQ(pool_.size_of(stranger.data()), 0U);
}

TEST_F(BlockPoolTest, WindowsWhereRanksShareTheHost) {
  const BlockPool::Allocated alone = pool_.allocate(20 * kMiB);
  EXPECT_EQ(engine().windows.count(alone.memory), 0U);
  (void)pool_.release(alone.memory);
  start(2);
  const BlockPool::Allocated shared = pool_.allocate(20 * kMiB);
  EXPECT_EQ(engine().windows.count(shared.memory), 1U);
  EXPECT_EQ(pool_.memory().windows_in_use, static_cast<int64_t>(shared.bytes));
  (void)pool_.release(shared.memory);
  EXPECT_EQ(pool_.memory().windows_in_use, 0);
}

TEST_F(BlockPoolTest, FallsBackToHostMemoryAndRarelyRetriesWindows) {
  start(2);
  engine().has_room = false;
  for (int i = 0; i < 100; ++i) {
    const BlockPool::Allocated block = pool_.allocate(40 * kMiB);
    ASSERT_NE(block.memory, nullptr);
    EXPECT_EQ(engine().windows.count(block.memory), 0U);
    (void)pool_.release(block.memory);
  }
  EXPECT_EQ(engine().asked, 2) << "once more after what was kept had gone back, and then not for a while";
}

TEST_F(BlockPoolTest, KeptBlocksAreBoundedAndOldestIsFreedFirst) {
  start(2);
  const BlockPool::Allocated probe = pool_.allocate(kMiB);
  const auto limit = static_cast<std::size_t>(pool_.memory().limit);
  (void)pool_.release(probe.memory);
  const std::size_t each = limit / 4;
  std::vector<BlockPool::Allocated> blocks;
  for (int i = 0; i < 8; ++i) blocks.push_back(pool_.allocate(each));
  for (const BlockPool::Allocated& block : blocks) EXPECT_EQ(pool_.release(block.memory), block.bytes);
  EXPECT_LE(pool_.memory().windows_kept + pool_.memory().ordinary_kept, pool_.memory().limit);
  EXPECT_EQ(engine().windows.count(blocks.front().memory), 0U) << "it went back to the engine";
  EXPECT_EQ(engine().windows.count(blocks.back().memory), 1U);
}

TEST_F(BlockPoolTest, AfterAFaultWindowsInUseGoBackToTheEngine) {
  start(2);
  const BlockPool::Allocated kept = pool_.allocate(6 * kMiB), used = pool_.allocate(7 * kMiB);
  (void)pool_.release(kept.memory);
  pool_.quarantine_windows_in_use();
  EXPECT_EQ(pool_.release(used.memory), used.bytes);
  EXPECT_EQ(engine().windows.count(used.memory), 0U) << "a stopped rank may still write to it";
  EXPECT_EQ(pool_.allocate(6 * kMiB).memory, kept.memory) << "nobody writes to what was not in use";
}

TEST_F(BlockPoolTest, AForkedChildGetsOtherMemoryAndFreesNothing) {
  const BlockPool::Allocated block = pool_.allocate(kMiB);
  std::memset(block.memory, 7, kMiB);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const bool is_right = pool_.allocate(kMiB).memory == nullptr && static_cast<char*>(block.memory)[100] == 7 &&
                          pool_.release(block.memory) == block.bytes && static_cast<char*>(block.memory)[100] == 7;
    _exit(is_right ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  (void)pool_.release(block.memory);
}

}  // namespace
}  // namespace farandole_tensorflow
