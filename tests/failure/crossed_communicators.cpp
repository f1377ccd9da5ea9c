// SPDX-License-Identifier: Apache-2.0
// Two ranks of a job use two communicators in opposite orders; the rest of the job waits for them.
// usage: farandole_crossed_communicators CASE REPLICAS
// crossed: every rank must raise a Mismatch that names both communicators and collectives.
// ends: the same, with the first and the last rank; all other ranks wait for the last rank in the job's communicator.
// resolved, waited, late: rank 0 ends the cycle later; no rank may raise an error. resolved: a second thread ends it,
// which has called collectives before. waited: the main thread ends it, while a second thread waits for the collective
// that the main thread has begun. late: a second thread ends it that has not used Farandole before.
#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <thread>
#include <vector>

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

void expect_cycle(const std::exception& error, int rank, const std::vector<std::string>& parts) {
  const std::string text = error.what();
  for (const std::string& part : parts) {
    expect(text.find(part) != std::string::npos, rank, std::string("nothing about ").append(part).append(": ") + text);
  }
}

void cross(Communicator& job) {
  Pair pair = make_pair_of(job);
  try {
    if (job.rank() == 0) add_ones(pair.first, 0);
    if (job.rank() == 1) pair.second.barrier();
    job.barrier();
    expect(false, job.rank(), "no exception");
  } catch (const farandole::Mismatch& error) {
    expect_cycle(
        error, job.rank(),
        {"wait for each other in a circle", "communicator 'first' of 2 ranks", "communicator 'second' of 2 ranks",
         "allreduce of 5 f32 elements", "barrier", "rank 0 (", "rank 1 ("});
  }
}

void cross_ends(Communicator& job) {
  const int last = job.size() - 1;
  farandole::CommunicatorOptions options;
  options.name = "ends";
  Communicator ends = job.split(job.rank() == 0 || job.rank() == last ? 0 : -1, job.rank(), options);
  try {
    if (job.rank() == last) ends.barrier();
    job.barrier();
    if (job.rank() == 0) ends.barrier();
    expect(false, job.rank(), "no exception");
  } catch (const farandole::Mismatch& error) {
    expect_cycle(error, job.rank(),
                 {"wait for each other in a circle", "communicator 'ends' of 2 ranks", "rank 0 (",
                  "rank " + std::to_string(last) + " ("});
  }
}

using Wait = std::chrono::duration<double>;

void call_from_known_thread(Pair& pair, Wait warn_after) {
  std::atomic<bool> is_known{false};
  std::thread second([&] {
    pair.third.barrier();
    is_known = true;
    // Longer than until a rank of one thread would have raised the circle.
    std::this_thread::sleep_for(8 * warn_after);
    add_ones(pair.second, 0);
  });
  while (!is_known) std::this_thread::yield();
  add_ones(pair.first, 0);
  second.join();
}

void wait_in_another_thread(Pair& pair, Wait warn_after) {
  pair.third.barrier();
  std::array<float, 5> ones{1, 1, 1, 1, 1};
  farandole::Work work = pair.first.allreduce_async(ones, ReduceOp::kSum);
  std::thread second([&] { work.wait(); });
  std::this_thread::sleep_for(8 * warn_after);
  add_ones(pair.second, 0);
  second.join();
  expect(ones[4] == 2, 0, "a wrong sum");
}

void call_from_new_thread(Pair& pair, Wait warn_after) {
  pair.third.barrier();
  std::thread second([&] {
    // Longer than until the first warning.
    std::this_thread::sleep_for(2 * warn_after);
    add_ones(pair.second, 0);
  });
  add_ones(pair.first, 0);
  second.join();
}

void resolve(Communicator& job, Wait warn_after, void (*call_as_rank_0)(Pair&, Wait)) {
  Pair pair = make_pair_of(job);
  if (job.rank() == 0) {
    call_as_rank_0(pair, warn_after);
  } else if (job.rank() == 1) {
    pair.third.barrier();
    add_ones(pair.second, 1);
    add_ones(pair.first, 1);
  }
  job.barrier();
}

void run_case(const std::string& name, Communicator& job, Wait warn_after) {
  if (name == "crossed") cross(job);
  if (name == "ends") cross_ends(job);
  if (name == "resolved") resolve(job, warn_after, call_from_known_thread);
  if (name == "waited") resolve(job, warn_after, wait_in_another_thread);
  if (name == "late") resolve(job, warn_after, call_from_new_thread);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string name = argc > 1 ? argv[1] : "crossed";
  // The second thread of `late` has five times that, from its call to the Mismatch.
  setenv("FARANDOLE_WARN_AFTER", name == "late" ? "1" : "0.5", /*overwrite=*/1);
  setenv("FARANDOLE_TIMEOUT", "40", /*overwrite=*/1);
  try {
    farandole::WorldOptions options;
    options.replicas = argc > 2 ? std::atoi(argv[2]) : 1;
    farandole::World world(options);
    farandole::run_replicas(world, [&](Communicator& job) { run_case(name, job, world.settings().faults.warn_after); });
  } catch (const std::exception& error) {
    expect(false, -1, error.what());
  }
  if (problems == 0) std::printf("as expected\n");
  return problems == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
