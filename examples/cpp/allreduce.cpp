// SPDX-License-Identifier: Apache-2.0
// The shortest program: every rank contributes a vector and gets the sum over all ranks.
//
//   allreduce                 one rank
//   mpirun -np 2 allreduce    one rank per process
#include <cstdio>
#include <vector>

#include "farandole/collectives/communicator.h"
#include "farandole/core/error.h"
#include "farandole/core/version.h"

using namespace farandole;

int main() try {
  World world;
  Communicator communicator = Communicator::of_world(world);
  if (communicator.rank() == 0) {
    std::printf("Farandole %.*s, backend: %s\n", static_cast<int>(version().size()), version().data(),
                world.backend_description().c_str());
  }

  // 1 on rank 0, 2 on rank 1, …: the sum over all ranks is size (size + 1) / 2.
  std::vector<float> values(1000, static_cast<float>(communicator.rank() + 1));
  communicator.allreduce(values, ReduceOp::kSum);

  const int size = communicator.size();
  const float expected = 0.5F * static_cast<float>(size * (size + 1));
  std::printf("%s of %d, local rank %d on host %d: sum %g\n", communicator.describe(communicator.rank()).c_str(), size,
              communicator.placement().local_rank, communicator.placement().host_index,
              static_cast<double>(values.front()));
  for (const float value : values) {
    if (value != expected) {
      std::fprintf(stderr, "allreduce: rank %d has %g instead of %g\n", communicator.rank(), static_cast<double>(value),
                   static_cast<double>(expected));
      return 1;
    }
  }
  return 0;
} catch (const Error& error) {
  std::fprintf(stderr, "allreduce: %s\n", error.what());  // "allreduce: Mismatch: rank 0 …"
  return 1;
}
