// SPDX-License-Identifier: Apache-2.0
#include "cuda/launch_shape.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <numeric>
#include <utility>
#include <vector>

#include "cuda/kernels.h"
#include "resnet50.h"

namespace farandole::cuda {
namespace {

constexpr unsigned kMultiprocessors = 132;  // of an H100

TEST(LaunchShape, TileIsOnePassOfABlock) {
  EXPECT_EQ(kTileBytes, 8192U) << "128 threads, 4 packets of 16 bytes each";
  EXPECT_EQ(tiles_of(1), 1U);
  EXPECT_EQ(tiles_of(kTileBytes), 1U);
  EXPECT_EQ(tiles_of(kTileBytes + 1), 2U);
  EXPECT_EQ(tiles_of(100 * kTileBytes), 100U);
}

TEST(LaunchShape, BlocksAreAsManyAsTilesButAllResident) {
  EXPECT_EQ(blocks_of(1, kMultiprocessors), 1U);
  EXPECT_EQ(blocks_of(100, kMultiprocessors), 100U);
  EXPECT_EQ(blocks_of(1'000'000, kMultiprocessors), 6 * kMultiprocessors);
  EXPECT_EQ(blocks_of(std::numeric_limits<std::int32_t>::max(), 1), 6U);
}

TEST(LaunchShape, EachTileIsOfOneBlockAndBlocksHaveEqualNumbers) {
  for (const unsigned tasks : {1U, 2U}) {
    for (const std::uint32_t tiles : {1U, 2U, 7U, 791U, 792U, 793U, 12'500U}) {
      for (const unsigned blocks : {1U, 2U, 5U, 792U}) {
        std::vector<int> times(tiles);
        for (unsigned block = 0; block < blocks; ++block) {
          const TileRange share = tiles_of_block(tiles, block, blocks);
          std::uint32_t count = 0;
          for (std::uint32_t tile = share.first; tile < share.end; ++tile, ++count) ++times.at(tile);
          EXPECT_LE(count, (tiles + blocks - 1) / blocks) << tiles << " tiles, block " << block << " of " << blocks;
          EXPECT_GE(count, tiles / blocks) << tiles << " tiles, block " << block << " of " << blocks;
        }
        EXPECT_EQ(std::count(times.begin(), times.end(), 1), tiles) << tasks << " " << tiles << " " << blocks;
      }
    }
  }
}

/// A kernel that records the tiles it is given, by task; a task is named by its count.
struct Recorder {
  static void run(const KernelTask& task, TileRange tiles, unsigned /*thread*/) {
    EXPECT_LT(tiles.first, tiles.end);
    for (std::uint32_t tile = tiles.first; tile < tiles.end; ++tile) {
      ++times[{task.count, tile}];
      ++of_block;
    }
  }
  static inline std::map<std::pair<std::uint64_t, std::uint32_t>, int> times;
  static inline std::uint32_t of_block = 0;
};

/// Runs all blocks of a launch, whose tasks have different counts.
void check_shares(const std::vector<std::size_t>& counts, std::size_t element_bytes, unsigned blocks) {
  LargestArguments arguments{};
  for (const std::size_t count : counts) add_task(arguments, {nullptr, nullptr, nullptr, count, 1.0}, element_bytes);
  Recorder::times.clear();
  for (unsigned block = 0; block < blocks; ++block) {
    Recorder::of_block = 0;
    run_tasks<Recorder>(arguments, block, blocks, 0);
    EXPECT_LE(Recorder::of_block, (arguments.tile_count + blocks - 1) / blocks) << "block " << block;
  }
  std::size_t tiles = 0;
  for (const std::size_t count : counts) {
    const std::uint64_t wanted = tiles_of(count * element_bytes);
    for (std::uint32_t tile = 0; tile < wanted; ++tile) {
      EXPECT_EQ((Recorder::times[{count, tile}]), 1) << "tile " << tile << " of " << count << " elements";
    }
    tiles += wanted;
  }
  EXPECT_EQ(arguments.tile_count, tiles);
  EXPECT_EQ(Recorder::times.size(), tiles) << "no tile that the tasks do not have";
}

TEST(LaunchShape, BlocksTakeEqualSharesOfUnevenTasks) {
  for (const unsigned blocks : {1U, 2U, 3U, 7U, 24U, 792U}) {
    check_shares({5}, 4, blocks);
    check_shares({1'000'000}, 4, blocks);
    check_shares({1, 2, 3, 2049, 4, 1'000'000, 2048, 5, 6, 7, 30'001}, 4, blocks);
    std::vector<std::size_t> short_tasks(682);
    std::iota(short_tasks.begin(), short_tasks.end(), std::size_t{1});
    check_shares(short_tasks, 16, blocks);
  }
}

TEST(LaunchShape, BlocksTakeEqualSharesOfResNet50) {
  std::vector<std::size_t> counts = test::resnet50_gradients();
  EXPECT_EQ(counts.size(), 161U);
  EXPECT_EQ(std::accumulate(counts.begin(), counts.end(), std::size_t{0}), 25'557'032U);
  // Different counts: a few elements more that fit in the last tile.
  std::sort(counts.begin(), counts.end());
  for (std::size_t i = 1; i < counts.size(); ++i) counts[i] = std::max(counts[i], counts[i - 1] + 1);
  check_shares(counts, 4, 792);
}

}  // namespace
}  // namespace farandole::cuda
