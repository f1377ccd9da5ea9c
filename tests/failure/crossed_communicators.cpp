// SPDX-License-Identifier: Apache-2.0
// Two ranks of a job use two communicators in opposite orders; the rest of the job waits for them.
// usage: farandole_crossed_communicators CASE REPLICAS
// crossed: every rank must raise a Mismatch that names both communicators and collectives.
// resolved: a second thread of rank 0, which uses Farandole, ends the circle later: no rank may raise anything.
#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <string>
#include <string_view>
#include <thread>

#include "farandole/collectives/communicator.h"
#include "farandole/core/error.h"

namespace {

using farandole::Communicator;
using farandole::ReduceOp;

std::atomic<int> problems{0};

void expect(bool is_right, int rank, const std::string& what) {
  if (is_right) return;
  std::fprintf(stderr, "rank %d: %s\n", rank, what.c_str());
  ++problems;
}

struct Pair {
  Communicator first, second, third;
};

/// Three communicators of ranks 0 and 1; the other ranks get none.
Pair make_pair_of(Communicator& job) {
  const int color = job.rank() < 2 ? 0 : -1;
  const auto make = [&](const char* name) {
    farandole::CommunicatorOptions options;
    options.name = name;
    return job.split(color, job.rank(), options);
  };
  Pair pair;
  pair.first = make("first");
  pair.second = make("second");
  pair.third = make("");
  return pair;
}

void add_ones(Communicator& ranks, int rank) {
  std::array<float, 5> ones{1, 1, 1, 1, 1};
  ranks.allreduce(ones, ReduceOp::kSum);
  expect(ones[4] == 2, rank, "a wrong sum");
}

void cross(Communicator& job) {
  Pair pair = make_pair_of(job);
  try {
    if (job.rank() == 0) add_ones(pair.first, 0);
    if (job.rank() == 1) pair.second.barrier();
    job.barrier();
    expect(false, job.rank(), "no exception");
  } catch (const farandole::Mismatch& error) {
    const std::string text = error.what();
    for (const std::string_view part :
         {"wait for each other in a circle", "communicator 'first' of 2 ranks", "communicator 'second' of 2 ranks",
          "allreduce of 5 f32 elements", "barrier", "rank 0 (", "rank 1 ("}) {
      expect(text.find(part) != std::string::npos, job.rank(), "nothing about " + std::string(part) + ": " + text);
    }
  }
}

void resolve(Communicator& job) {
  Pair pair = make_pair_of(job);
  if (job.rank() == 0) {
    std::atomic<bool> is_known{false};
    std::thread second([&] {
      pair.third.barrier();
      is_known = true;
      // Long enough for the circle to be found.
      std::this_thread::sleep_for(std::chrono::duration<double>(5 * job.settings().warn_after));
      add_ones(pair.second, 0);
    });
    while (!is_known) std::this_thread::yield();
    add_ones(pair.first, 0);
    second.join();
  } else if (job.rank() == 1) {
    pair.third.barrier();
    add_ones(pair.second, 1);
    add_ones(pair.first, 1);
  }
  job.barrier();
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view name = argc > 1 ? argv[1] : "crossed";
  setenv("FARANDOLE_WARN_AFTER", "0.5", /*overwrite=*/1);
  setenv("FARANDOLE_TIMEOUT", "40", /*overwrite=*/1);
  try {
    farandole::WorldOptions options;
    options.replicas = argc > 2 ? std::atoi(argv[2]) : 1;
    farandole::World world(options);
    farandole::run_replicas(world, name == "crossed" ? cross : resolve);
  } catch (const std::exception& error) {
    expect(false, -1, error.what());
  }
  if (problems == 0) std::printf("as expected\n");
  return problems == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
