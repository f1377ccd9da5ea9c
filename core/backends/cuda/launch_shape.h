// SPDX-License-Identifier: Apache-2.0
// Shape of a kernel launch: how the elements of tasks are divided among the threads of a GPU.
//
// All kernels are limited by memory bandwidth, so the number of bytes in flight decides. A GPU with 3.35 TB/s and a
// memory latency of about 0.7 µs needs 2.3 MB in flight: 18 KB on each of 132 multiprocessors. A thread that loads 4
// packets of 16 bytes from each of two inputs before it waits has 128 bytes in flight; a block of 128 threads has 16
// KiB; the 6 blocks that are resident on a multiprocessor have 96 KiB. So loads continue while other blocks compute and
// store. More packets per thread would cost registers, and so resident blocks.
//
// If all blocks of a launch are resident at the same time, there is no last wave that leaves multiprocessors idle. So a
// longer task does not get more blocks; each block makes more passes.
#pragma once

#include <algorithm>
#include <cstdint>

namespace farandole::cuda {

/// Size of the widest load or store instruction.
inline constexpr unsigned kPacketBytes = 16;
/// Packets of each input that a thread loads before the first store.
inline constexpr unsigned kPacketsInFlight = 4;
/// Threads per block; the kernels are compiled for this number (__launch_bounds__).
inline constexpr unsigned kBlockThreads = 128;
/// Resident blocks per multiprocessor; the kernels are compiled to use few enough registers (__launch_bounds__).
inline constexpr unsigned kBlocksPerMultiprocessor = 6;

/// The grid has (blocks_per_task, number of tasks) blocks.
struct LaunchShape {
  unsigned block_threads = kBlockThreads;
  unsigned blocks_per_task = 1;
};

/// Chooses enough blocks for a single pass over the longest task, but at most as many as can be resident on the device.
/// All tasks get the same number of blocks, and a block without work still costs a few nanoseconds; so with many tasks
/// the whole launch is limited to 8 times the number of resident blocks.
/// @param longest_bytes  of the longest task: its count times the size of the larger of its two types
/// @param tasks  at least 1   @param multiprocessors  at least 1
constexpr LaunchShape launch_shape(std::uint64_t longest_bytes, unsigned tasks, unsigned multiprocessors) {
  constexpr std::uint64_t kPassBytes = std::uint64_t{kBlockThreads} * kPacketsInFlight * kPacketBytes;
  constexpr std::uint64_t kMaxWaves = 8;
  const std::uint64_t wanted = longest_bytes / kPassBytes + (longest_bytes % kPassBytes == 0 ? 0 : 1);
  const std::uint64_t resident = std::uint64_t{multiprocessors} * kBlocksPerMultiprocessor;
  const std::uint64_t max_blocks = std::min(resident, kMaxWaves * resident / tasks);
  return {kBlockThreads,
          static_cast<unsigned>(std::clamp<std::uint64_t>(wanted, 1, std::max<std::uint64_t>(max_blocks, 1)))};
}

}  // namespace farandole::cuda
