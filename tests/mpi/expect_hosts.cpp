// SPDX-License-Identifier: Apache-2.0
// usage: expect_hosts N     checks that the job has N hosts, and that every rank knows its place among them
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <vector>

#include "farandole/collectives/communicator.h"

using namespace farandole;

int main(int argc, char** argv) try {
  const int expected = argc > 1 ? std::atoi(argv[1]) : 1;
  World world;
  Communicator communicator = Communicator::of_world(world);
  const Placement here = communicator.placement();
  // Ranks on each host, counted by the ranks themselves.
  std::vector<int> ranks_on_host(static_cast<std::size_t>(communicator.size()), 0);
  ranks_on_host[static_cast<std::size_t>(here.host_index)] = 1;
  communicator.allreduce(ranks_on_host, ReduceOp::kSum);
  const int counted = ranks_on_host[static_cast<std::size_t>(here.host_index)];
  std::printf("%s: host %d of %d, local rank %d of %d\n", communicator.describe(communicator.rank()).c_str(),
              here.host_index, here.host_count, here.local_rank, here.local_size);
  if (here.host_count == expected && here.local_size == counted) return 0;
  std::fprintf(stderr, "expect_hosts: rank %d sees %d hosts, expected %d; it has %d ranks on its host and counted %d\n",
               communicator.rank(), here.host_count, expected, here.local_size, counted);
  return 1;
} catch (const std::exception& error) {
  std::fprintf(stderr, "expect_hosts: %s\n", error.what());
  return 1;
}
