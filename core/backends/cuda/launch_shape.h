// SPDX-License-Identifier: Apache-2.0
// Shape of a kernel launch: how the bytes of tasks are divided among the blocks of a GPU.
//
// A task is one element-wise operation on contiguous vectors (KernelTask). All kernels are limited by memory bandwidth,
// so enough loads must be in flight. An H100, with 3.35 TB/s and a memory latency of about 0.7 µs, needs 2.3 MB in
// flight: 18 KB on each of 132 multiprocessors. A thread that loads 4 packets of 16 bytes from each of two inputs
// before it waits has 128 bytes in flight; a block of 128 threads has 16 KiB; the 6 blocks that are resident on a
// multiprocessor have 96 KiB. That is five times the need, so loads continue while some of the blocks compute and
// store. More packets per thread would need more registers, which leaves fewer resident blocks.
//
// Tasks are cut into tiles of kTileBytes; a block processes a tile in one pass. The tiles of all tasks of a launch are
// numbered consecutively, and all blocks get the same number of tiles, give or take one. All blocks are resident at the
// same time, so there is no last wave that leaves multiprocessors idle: a larger launch does not get more blocks; each
// block makes more passes. A block that has finished a short task continues with the next task, so short and long tasks
// can share a launch.
#pragma once

#include <algorithm>
#include <cstdint>

namespace farandole::cuda {

/// Size of the widest load or store instruction.
inline constexpr unsigned kPacketBytes = 16;
/// Packets of each input that a thread loads before it stores the first result.
inline constexpr unsigned kPacketsInFlight = 4;
/// Threads per block; the kernels are compiled for this number (__launch_bounds__).
inline constexpr unsigned kBlockThreads = 128;
/// Resident blocks per multiprocessor; __launch_bounds__ makes the compiler use few enough registers for them.
inline constexpr unsigned kBlocksPerMultiprocessor = 6;
/// Size of a tile: bytes of the input or of the output, whichever has the larger elements.
inline constexpr unsigned kTileBytes = kBlockThreads * kPacketsInFlight * kPacketBytes;

/// Number of tiles of a task; the last may be shorter than kTileBytes.
/// @param bytes  at least 1: the count of the task times the size of the larger of its two types
constexpr std::uint64_t tiles_of(std::uint64_t bytes) {
  return bytes / kTileBytes + (bytes % kTileBytes == 0 ? 0 : 1);
}

/// Number of blocks of a launch: one per tile, but at most as many as can be resident on the device.
/// @param tiles  of all tasks, at least 1   @param multiprocessors  at least 1
constexpr unsigned blocks_of(std::uint32_t tiles, unsigned multiprocessors) {
  return std::min(tiles, multiprocessors * kBlocksPerMultiprocessor);
}

/// The tiles from `first` to `end - 1`.
struct TileRange {
  std::uint32_t first;
  std::uint32_t end;
};

/// Returns the tiles that a block processes: tiles / blocks of them, rounded up or down. The tiles of a block are
/// adjacent, so that it meets as few tasks as possible: the addresses of a task must be loaded before its elements.
/// (With tile i given to block i % blocks instead, an H200 took equally long for one task of 256 MiB.)
/// @param tiles  of all tasks   @param block  0 … blocks - 1
constexpr TileRange tiles_of_block(std::uint32_t tiles, unsigned block, unsigned blocks) {
  const std::uint32_t each = tiles / blocks;
  const std::uint32_t with_one_more = tiles % blocks;
  const std::uint32_t first = block * each + std::min(block, with_one_more);
  return {first, first + each + (block < with_one_more ? 1 : 0)};
}

}  // namespace farandole::cuda
