// SPDX-License-Identifier: Apache-2.0
// A rank that prints although its standard descriptors are closed. It appends to FILE whether all its results were
// right. usage: closed_rank FILE [late]
//   late  the rank itself closes the descriptors, once it has joined the job
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <fstream>
#include <iostream>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

#include "farandole/collectives/communicator.h"
#include "farandole/core/error.h"

namespace {

using farandole::Communicator;
using farandole::ReduceOp;

void print(int call) {
  std::printf("call %d: text that does harm where it is read as the head of a message\n", call);
  std::fflush(stdout);
  std::cerr << "call " << call << ": text on standard error" << std::endl;
}

void check(bool is_right, const char* what) {
  if (!is_right) throw std::runtime_error(std::string("wrong values of ") + what);
}

void call_collectives(Communicator& ranks) {
  const int sum = ranks.size() * (ranks.size() + 1) / 2;
  std::vector<int> sent(static_cast<std::size_t>(ranks.size())), came(sent.size());
  std::iota(sent.begin(), sent.end(), 100 * ranks.rank());
  for (int call = 0; call < 20; ++call) {
    std::vector<int> values(call % 2 == 0 ? 7 : 100'000, ranks.rank() + 1);
    print(call);
    ranks.allreduce(values, ReduceOp::kSum);
    check(std::all_of(values.begin(), values.end(), [sum](int value) { return value == sum; }), "allreduce");
    print(call);
    ranks.alltoall(sent, came);  // every two processes of different hosts have a connection now
    for (int from = 0; from < ranks.size(); ++from) {
      check(came[static_cast<std::size_t>(from)] == 100 * from + ranks.rank(), "alltoall");
    }
    if (call % 10 == 0) ranks.split(0).barrier();
  }
}

std::string run(bool closes_late) {
  print(-1);
  farandole::World world;
  Communicator ranks = Communicator::of_world(world);
  for (int number = 0; closes_late && number <= STDERR_FILENO; ++number) close(number);
  call_collectives(ranks);
  ranks.barrier();
  return "all right on rank " + std::to_string(ranks.rank());
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  std::string result;
  try {
    result = run(argc > 2);
  } catch (const std::exception& error) {
    result = std::string("error: ") + error.what();
  }
  // Opened at the end, so that it takes none of the numbers from 0 to 2 before.
  std::ofstream(argv[1], std::ios::app) << result + "\n" << std::flush;
  return result.starts_with("error") ? 1 : 0;
}
