// SPDX-License-Identifier: Apache-2.0
// A program that uses MPI itself. Farandole joins the MPI that the program has initialised, here through a communicator
// of the program's own, and leaves MPI initialised. With 4 or more processes there are two teams, each a separate
// Farandole job.
//
//   mpirun -np 4 join_mpi
#include <mpi.h>

#include <cstdio>
#include <exception>
#include <vector>

#include "farandole/collectives/communicator.h"

using namespace farandole;

namespace {

constexpr int kFewestForTwoTeams = 4;

/// Sums the numbers of the team's processes with Farandole and with MPI. @returns true if both agree
bool sums_agree(MPI_Comm team, int process) {
  WorldOptions options;
  options.mpi_communicator = MPI_Comm_c2f(team);
  World world(options);
  Communicator communicator = Communicator::of_world(world);

  std::vector<double> values(5000, process);
  communicator.allreduce(values, ReduceOp::kSum);

  double expected = process;
  MPI_Allreduce(MPI_IN_PLACE, &expected, 1, MPI_DOUBLE, MPI_SUM, team);
  std::printf("process %d is rank %d of %d in its team (%s): sum %g\n", process, communicator.rank(),
              communicator.size(), world.backend_description().c_str(), values.front());
  return values.front() == expected && values.back() == expected;
}

int run() {
  int process = 0, processes = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &process);
  MPI_Comm_size(MPI_COMM_WORLD, &processes);
  // Farandole takes its ranks from the communicator `team`, in which processes are in reverse order.
  MPI_Comm team = MPI_COMM_NULL;
  MPI_Comm_split(MPI_COMM_WORLD, processes >= kFewestForTwoTeams ? process % 2 : 0, -process, &team);
  // sums_agree destroys its World before it returns. A World must end before its communicator is freed and MPI
  // finalised.
  const bool agree = sums_agree(team, process);
  MPI_Comm_free(&team);
  if (!agree) std::fprintf(stderr, "join_mpi: process %d has another sum than MPI\n", process);
  return agree ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  int provided = MPI_THREAD_SINGLE;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
  int status = 1;
  try {
    status = run();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "join_mpi: %s\n", error.what());
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  MPI_Finalize();
  return status;
}
