// SPDX-License-Identifier: Apache-2.0
// Ranks that reduce until one rank is killed, or the link of its host is cut. Every other rank prints the error that it
// raises; two_hosts.sh checks these lines.
#include <unistd.h>

#include <cstdio>
#include <string>
#include <vector>

#include "farandole/collectives/communicator.h"
#include "farandole/core/error.h"

int main() {
  try {
    farandole::World world;
    farandole::Communicator ranks = farandole::Communicator::of_world(world);
    std::vector<float> data(1000, 1.0F);
    ranks.allreduce(data, farandole::ReduceOp::kMax);
    std::printf("joined %d\n", getpid());
    std::fflush(stdout);
    for (;;) ranks.allreduce(data, farandole::ReduceOp::kMax);
  } catch (const farandole::Error& error) {
    std::printf("%s\n", error.what());
  }
  return 0;
}
