// SPDX-License-Identifier: Apache-2.0
// A program with an MPI communicator of its own, `team`. Only compiled, and not with MPI's header.
#include "farandole/collectives/communicator.h"

using namespace farandole;

int MPI_Comm_c2f(int communicator);

void join(int team) {
  // BLOCK
}
