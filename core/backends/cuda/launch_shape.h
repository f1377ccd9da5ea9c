// SPDX-License-Identifier: Apache-2.0
// How the elements of tasks are divided among the threads of a GPU.
//
// All kernels are bound by memory, so what counts is how many bytes are under way. A GPU of 3.35 TB/s whose memory
// answers after about 0.7 µs needs 2.3 MB of them, 18 KB on each of its 132 multiprocessors. A thread that has loaded 4
// packets of each of two inputs before it waits has 128 bytes under way, so a block of 128 threads has 16 KiB, and the
// 6 that a multiprocessor keeps have 96 KiB: loads go on while other blocks compute and store. More packets per thread
// would only take the registers of these blocks. A launch whose blocks are all kept at the same time has no last wave
// that leaves multiprocessors idle, so longer tasks get no more blocks, but more passes of each.
#pragma once

#include <algorithm>
#include <cstdint>

namespace farandole::cuda {

/// What the widest load or store takes.
inline constexpr unsigned kPacketBytes = 16;
/// Packets of each input that a thread loads before it stores.
inline constexpr unsigned kPacketsInFlight = 4;
/// Threads of a block. The kernels are compiled for no more.
inline constexpr unsigned kBlockThreads = 128;
/// Blocks that a multiprocessor keeps at the same time: the kernels are compiled so that its registers suffice for
/// them.
inline constexpr unsigned kBlocksPerMultiprocessor = 6;

/// Of a grid of (blocks_per_task, number of tasks) blocks.
struct LaunchShape {
  unsigned block_threads = kBlockThreads;
  unsigned blocks_per_task = 1;
};

/// Enough blocks for one pass over the longest task, but no more than the device keeps. All tasks get the same number,
/// and blocks that find nothing to do cost time, too (a few nanoseconds each): many tasks share 8 times what the device
/// keeps.
/// @param longest_bytes  elements of the longest task, times the size of the larger of its two types
/// @param tasks  at least 1   @param multiprocessors  at least 1
constexpr LaunchShape launch_shape(std::uint64_t longest_bytes, unsigned tasks, unsigned multiprocessors) {
  constexpr std::uint64_t kPassBytes = std::uint64_t{kBlockThreads} * kPacketsInFlight * kPacketBytes;
  constexpr std::uint64_t kMaxWaves = 8;
  const std::uint64_t wanted = longest_bytes / kPassBytes + (longest_bytes % kPassBytes == 0 ? 0 : 1);
  const std::uint64_t kept = std::uint64_t{multiprocessors} * kBlocksPerMultiprocessor;
  const std::uint64_t most = std::min(kept, kMaxWaves * kept / tasks);
  return {kBlockThreads, static_cast<unsigned>(std::clamp<std::uint64_t>(wanted, 1, std::max<std::uint64_t>(most, 1)))};
}

}  // namespace farandole::cuda
