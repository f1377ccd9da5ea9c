// SPDX-License-Identifier: Apache-2.0
// A rank on a machine with limits: prints how it has joined and what it shares, checks collectives, and tries a window.
// usage: limited_rank [--lock] [--joins-only] [--window BYTES]
//   --lock        locks all memory, by mlockall
//   --joins-only  runs only one collective; prints how long joining took, and how much address space is mapped then
//   --window      also tries to allocate and fill a window of BYTES bytes
#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <fstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "farandole/collectives/communicator.h"
#include "farandole/core/error.h"

namespace {

using farandole::Buffer;
using farandole::BufferView;
using farandole::Communicator;
using farandole::DType;
using farandole::ReduceOp;

void check_allreduce(Communicator& ranks, BufferView data) {
  auto* elements = static_cast<float*>(data.data);
  std::fill_n(elements, data.count, static_cast<float>(ranks.rank() + 1));
  ranks.allreduce(data, ReduceOp::kSum);
  const int of_ranks = ranks.size() * (ranks.size() + 1) / 2;
  const auto sum = static_cast<float>(of_ranks);
  if (std::any_of(elements, elements + data.count, [sum](float x) { return x != sum; })) {
    throw std::runtime_error("a sum is wrong");
  }
}

void try_window(Communicator& ranks, std::size_t bytes) {
  try {
    Buffer window = ranks.allocate(bytes, DType::kU8);
    std::memset(window.view().data, 1, bytes);
    std::printf("window: filled\n");
  } catch (const farandole::InvalidArgument& error) {
    std::printf("window: %s\n", error.what());
  }
}

struct Options {
  bool locks = false;
  bool joins_only = false;
  std::size_t window_bytes = 0;
};

void run(const Options& options) {
  const auto start = std::chrono::steady_clock::now();
  farandole::World world;
  const std::chrono::duration<double, std::milli> joining = std::chrono::steady_clock::now() - start;
  Communicator ranks = Communicator::of_world(world);
  const farandole::RankInfo& info = world.topology().rank(ranks.rank());
  std::printf("rank %d of %d, local rank %d of %d, %s\n", ranks.rank(), ranks.size(), info.local_rank, info.local_size,
              ranks.shares_memory() ? "shares memory" : "exchanges messages");
  std::vector<float> small(5), large(300'000);
  if (options.joins_only) {
    check_allreduce(ranks, small);
    std::ifstream statm("/proc/self/statm");
    std::uint64_t pages = 0;
    statm >> pages;
    std::printf("joined in %.0f ms, %.1f TiB mapped\n", joining.count(), static_cast<double>(pages) / (1 << 28));
    return;
  }
  for (int call = 0; call < 20; ++call) {
    check_allreduce(ranks, small);
    check_allreduce(ranks, large);
    // Work of the progress thread.
    farandole::Work work = ranks.allreduce_async(small, ReduceOp::kSum);
    work.wait();
  }
  Buffer window = ranks.allocate(100'000, DType::kF32);
  check_allreduce(ranks, window.view());
  if (options.window_bytes > 0) try_window(ranks, options.window_bytes);
  ranks.barrier();
  std::printf("rank %d is done\n", ranks.rank());
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    options.locks = options.locks || word == "--lock";
    options.joins_only = options.joins_only || word == "--joins-only";
    if (word == "--window" && i + 1 < argc) options.window_bytes = std::strtoull(argv[++i], nullptr, 10);
  }
  if (options.locks && mlockall(MCL_CURRENT | MCL_FUTURE) != 0) return 77;
  try {
    run(options);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "exception: %s\n", error.what());
    return 1;
  }
  return 0;
}
