// SPDX-License-Identifier: Apache-2.0
// A rank that makes CALLS collectives in shared memory, and checks their results.
// usage: shared_rank CALLS DIRECTORY     makes files named after its process in DIRECTORY/ranks and, once it has
// joined, in DIRECTORY/joined
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "farandole/collectives/communicator.h"

namespace {

using farandole::Buffer;
using farandole::BufferView;
using farandole::Communicator;
using farandole::DType;
using farandole::ReduceOp;

void check_allreduce(Communicator& ranks, BufferView data, long call) {
  auto* elements = static_cast<float*>(data.data);
  std::fill_n(elements, data.count, static_cast<float>(call % 1000 + ranks.rank()));
  ranks.allreduce(data, ReduceOp::kSum);
  const long of_ranks = ranks.size() * (ranks.size() - 1) / 2;
  const auto sum = static_cast<float>(call % 1000 * ranks.size() + of_ranks);
  if (std::any_of(elements, elements + data.count, [sum](float x) { return x != sum; })) {
    throw std::runtime_error("a sum is wrong in call " + std::to_string(call));
  }
}

void run(long calls, const std::string& directory) {
  const std::string process = std::to_string(getpid());
  std::ofstream(directory + "/ranks/" + process).put('\n');
  farandole::World world;
  std::ofstream(directory + "/joined/" + process).put('\n');
  Communicator ranks = Communicator::of_world(world);
  if (!ranks.shares_memory()) throw std::runtime_error("the ranks share no memory");
  Buffer window = ranks.allocate(100'000, DType::kF32);
  std::vector<float> small(5), ordinary(60'000);
  for (long call = 0; call < calls; ++call) {
    check_allreduce(ranks, small, call);
    check_allreduce(ranks, window.view(), call);
    check_allreduce(ranks, ordinary, call);
    if (call % 10 == 0) {
      Communicator copy = ranks.duplicate();
      Buffer fresh = copy.allocate(50'000 + static_cast<std::size_t>(call % 7) * 1000, DType::kF32);
      check_allreduce(copy, fresh.view(), call);
    }
  }
  std::printf("rank %d of %d is done\n", ranks.rank(), ranks.size());
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  try {
    run(std::atol(argv[1]), argv[2]);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "exception: %s\n", error.what());
    return 1;
  }
  return 0;
}
