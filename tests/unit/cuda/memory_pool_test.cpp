// SPDX-License-Identifier: Apache-2.0
#include "cuda/memory_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <limits>
#include <map>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

#include "fake_api.h"

namespace farandole::cuda {
namespace {

constexpr std::size_t kKiB = 1 << 10;

/// Gives out addresses of nothing, for up to a number of bytes.
class Source {
 public:
  explicit Source(std::size_t bytes) : left_(bytes) {}
  MemoryPool::Source functions() {
    return {[this](std::size_t bytes) { return allocate(bytes); }, [this](void* memory) { release(memory); }};
  }
  int allocations = 0;
  int releases = 0;

 private:
  void* allocate(std::size_t bytes) {
    const std::lock_guard guard(mutex_);
    ++allocations;
    if (bytes > left_) return nullptr;
    left_ -= bytes;
    next_ += bytes;
    void* const memory = pointer_of(next_);
    blocks_[memory] = bytes;
    return memory;
  }
  void release(void* memory) {
    const std::lock_guard guard(mutex_);
    ++releases;
    left_ += blocks_.at(memory);
    blocks_.erase(memory);
  }

  std::mutex mutex_;  // guards all members while threads run
  std::size_t left_;
  std::uintptr_t next_ = 4096;
  std::map<void*, std::size_t> blocks_;
};

TEST(MemoryPool, BlocksAreAtMostAQuarterLarger) {
  EXPECT_EQ(MemoryPool::block_bytes(0), 512U);
  EXPECT_EQ(MemoryPool::block_bytes(1), 512U);
  EXPECT_EQ(MemoryPool::block_bytes(513), 1024U);
  EXPECT_EQ(MemoryPool::block_bytes(5000), 5 * kKiB);
  EXPECT_EQ(MemoryPool::block_bytes(64 * kKiB), 64 * kKiB);
  EXPECT_EQ(MemoryPool::block_bytes(64 * kKiB + 1), 80 * kKiB);
  EXPECT_EQ(MemoryPool::block_bytes(kMiB), kMiB);
  EXPECT_EQ(MemoryPool::block_bytes(kMiB + 1), 2 * kMiB);
  EXPECT_EQ(MemoryPool::block_bytes(100 * kMiB), 112 * kMiB);
  for (std::size_t bytes = 4 * kMiB; bytes < 300 * kMiB; bytes += 1234567) {
    const std::size_t block = MemoryPool::block_bytes(bytes);
    EXPECT_GE(block, bytes);
    EXPECT_LE(block - bytes, std::max(bytes / 4, 2 * kMiB)) << bytes;
    EXPECT_EQ(block % (2 * kMiB), 0U);
    EXPECT_EQ(MemoryPool::block_bytes(block), block) << "who asks for a whole block gets no larger one";
  }
}

TEST(MemoryPool, WaitsBeforeKeptBlocksGoBack) {
  Source source(4 * kMiB);
  int waits = 0;
  MemoryPool::Source functions = source.functions();
  functions.wait_for_release = [&] {
    EXPECT_EQ(source.releases, 0);
    ++waits;
  };
  MemoryPool pool(functions);
  EXPECT_EQ(pool.allocate(6 * kMiB), nullptr);
  EXPECT_EQ(waits, 0) << "nothing is kept";
  pool.release(pool.allocate(2 * kMiB));
  EXPECT_NE(pool.allocate(4 * kMiB), nullptr);
  EXPECT_EQ(waits, 1);
  EXPECT_EQ(source.releases, 1);
}

TEST(MemoryPool, KeepsReleasedMemory) {
  Source source(100 * kMiB);
  MemoryPool pool(source.functions());
  void* const first = pool.allocate(3000);
  pool.release(first);
  EXPECT_EQ(pool.allocate(2900), first) << "of the same class";
  EXPECT_NE(pool.allocate(2900), first) << "it is in use";
  EXPECT_EQ(source.allocations, 2);
  EXPECT_EQ(pool.use().in_use_bytes, 6 * kKiB);
  pool.release(first);
  pool.release(nullptr);
  EXPECT_EQ(pool.use().kept_bytes, 3 * kKiB);
  EXPECT_EQ(pool.trim(), 3 * kKiB);
  EXPECT_EQ(source.releases, 1);
  EXPECT_EQ(pool.use().kept_bytes, 0U);
  EXPECT_EQ(pool.trim(), 0U);
}

TEST(MemoryPool, FreesKeptMemoryWhenTheDeviceIsFull) {
  Source source(10 * kMiB);
  MemoryPool pool(source.functions());
  void* const small = pool.allocate(4 * kMiB);
  pool.release(pool.allocate(6 * kMiB));
  EXPECT_NE(pool.allocate(5 * kMiB + 1), nullptr) << "of 10 MiB, 4 are in use and 6 were kept for another size";
  EXPECT_EQ(source.releases, 0) << "6 MiB are the class of that";
  void* const large = pool.allocate(kMiB);
  EXPECT_EQ(large, nullptr) << "all is in use";
  pool.release(small);
  void* const halves[] = {pool.allocate(2 * kMiB), pool.allocate(2 * kMiB)};
  EXPECT_NE(halves[0], nullptr);
  EXPECT_NE(halves[1], nullptr);
  EXPECT_EQ(source.releases, 1) << "the 4 MiB have gone back";
  for (void* half : halves) pool.release(half);
}

TEST(MemoryPool, RefusesImpossibleSizes) {
  Source source(kMiB);
  MemoryPool pool(source.functions());
  EXPECT_EQ(pool.allocate(std::numeric_limits<std::size_t>::max()), nullptr);
  EXPECT_EQ(pool.allocate(std::numeric_limits<std::size_t>::max() / 2 + 2), nullptr);
  EXPECT_EQ(source.allocations, 0);
}

TEST(MemoryPool, ThreadsShareIt) {
  Source source(64 * kMiB);
  MemoryPool pool(source.functions());
  std::vector<std::thread> threads;
  std::atomic<int> shared{0};
  for (unsigned seed = 0; seed < 4; ++seed) {
    threads.emplace_back([&, seed] {
      std::mt19937 random(seed);
      for (int i = 0; i < 2000; ++i) {
        void* const memory = pool.allocate(random() % (4 * kMiB));
        if (memory == nullptr) continue;
        ++shared;
        pool.release(memory);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(shared, 0);
  EXPECT_EQ(pool.use().in_use_bytes, 0U);
  pool.trim();
  int refused = 0;
  for (std::size_t i = 0; i < 33; ++i) refused += pool.allocate(2 * kMiB) == nullptr ? 1 : 0;
  EXPECT_EQ(refused, 1) << "nothing of the 64 MiB was lost";
}

}  // namespace
}  // namespace farandole::cuda
