// SPDX-License-Identifier: Apache-2.0
// Rank 1 stops in the middle of a collective on windows. Its peers time out and use the memory for other data. Then
// rank 1 continues and writes the rest of its data, which must not change the peers' other data. usage: stopped_writer
// DIRECTORY        the ranks report their progress to each other by files in DIRECTORY
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <exception>
#include <fstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "farandole/collectives/communicator.h"
#include "farandole/core/error.h"

namespace {

using farandole::Buffer;
using farandole::Communicator;
using farandole::DType;

constexpr std::size_t kCount = 32 << 20;  // elements; long enough to be stopped in the middle
constexpr int kStopped = 1;
constexpr std::uint32_t kPattern = 0xc0ffee00;

std::string directory;

std::string path_of(const std::string& what) {
  return std::string(directory).append("/").append(what);
}
void tell(const std::string& what) {
  std::ofstream(path_of(what)).put('\n');
}
void wait_for(const std::string& what) {
  while (access(path_of(what).c_str(), F_OK) != 0) usleep(1000);
}

/// Stops this process when `word` has been written.
void stop_when_written(std::uint32_t& word) {
  while (std::atomic_ref(word).load(std::memory_order_relaxed) == 0) {
  }
  kill(getpid(), SIGSTOP);
}

void be_stopped(Communicator& ranks, Buffer& input, Buffer& output) {
  // A rank writes its own chunk to all outputs, part by part; its own output tells how far it is.
  const std::size_t chunk = kCount / static_cast<std::size_t>(ranks.size());
  std::uint32_t& early = output.as<std::uint32_t>()[kStopped * chunk + chunk / 8];
  std::thread watcher([&] { stop_when_written(early); });
  try {
    // If the others had done their part it ends well, and the next call raises.
    ranks.allreduce(input.view(), output.view(), farandole::ReduceOp::kMax);
    ranks.barrier();
    std::printf("no exception\n");
  } catch (const farandole::Timeout&) {
    std::printf("rank %d has raised Timeout\n", ranks.rank());
  }
  watcher.join();
  tell("raised");
}

bool is_all(const Buffer& window, std::uint32_t value) {
  const auto* data = static_cast<const std::uint32_t*>(window.view().data);
  return std::all_of(data, data + kCount, [value](std::uint32_t x) { return x == value; });
}

/// The index of the last element that rank 1 writes.
std::size_t last_of_stopped(const Communicator& ranks) {
  return (kStopped + 1) * (kCount / static_cast<std::size_t>(ranks.size())) - 1000;
}

void reuse_memory(Communicator& ranks, Buffer input, Buffer output, int stopped_pid) {
  const std::string rank = std::to_string(ranks.rank());
  try {
    ranks.allreduce(input.view(), output.view(), farandole::ReduceOp::kMax);
    throw std::runtime_error("no exception");
  } catch (const farandole::Timeout& error) {
    std::printf("rank %s has raised Timeout\n", rank.c_str());
  }
  const volatile std::uint32_t& late = output.as<std::uint32_t>()[last_of_stopped(ranks)];
  if (late != 0) std::printf("not in the middle\n");
  input = Buffer();
  output = Buffer();
  std::vector<Buffer> windows;
  for (std::uint32_t i = 0; i < 3; ++i) {
    windows.push_back(ranks.allocate(kCount, DType::kI32));
    std::fill_n(windows.back().as<std::uint32_t>(), kCount, kPattern + i);
  }
  tell("ready." + rank);
  for (int other = 0; other < ranks.size(); ++other) {
    if (other != kStopped) wait_for("ready." + std::to_string(other));
  }
  if (ranks.rank() == 0) kill(stopped_pid, SIGCONT);
  wait_for("raised");
  for (std::uint32_t i = 0; i < 3; ++i) {
    if (!is_all(windows[i], kPattern + i)) throw std::runtime_error("window " + std::to_string(i) + " has changed");
  }
  // The former output is out of use, but it is still there.
  std::printf("rank %s: nothing has changed; the former output %s\n", rank.c_str(),
              late != 0 ? "was written" : "was not written");
}

void run() {
  farandole::World world;
  Communicator ranks = Communicator::of_world(world);
  std::vector<std::int32_t> pids(static_cast<std::size_t>(ranks.size()));
  ranks.allgather(std::vector<std::int32_t>{getpid()}, pids);
  Buffer input = ranks.allocate(kCount, DType::kI32), output = ranks.allocate(kCount, DType::kI32);
  std::fill_n(input.as<std::int32_t>(), kCount, 1 + ranks.rank());
  ranks.barrier();
  std::exception_ptr failure;
  try {
    if (ranks.rank() == kStopped) {
      be_stopped(ranks, input, output);
    } else {
      reuse_memory(ranks, std::move(input), std::move(output), pids[kStopped]);
    }
  } catch (...) {
    failure = std::current_exception();
  }
  std::fflush(stdout);
  // A launcher ends all ranks when the first one goes.
  tell("checked." + std::to_string(ranks.rank()));
  for (int other = 0; other < ranks.size(); ++other) wait_for("checked." + std::to_string(other));
  if (failure) std::rethrow_exception(failure);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  directory = argv[1];
  try {
    run();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "exception: %s\n", error.what());
  }
  return 1;  // the job has failed in any case
}
