// SPDX-License-Identifier: Apache-2.0
// How the processes of one host find each other when no MPI started them.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "sockets/descriptor.h"

namespace farandole::local {

using sockets::UniqueDescriptor;

/// What a process knows of its job before it meets its peers.
struct Slot {
  std::string job;    ///< the same text for all processes, 1 … 64 bytes
  int process = 0;    ///< this process's number
  int processes = 1;  ///< how many there are
  std::chrono::duration<double> warn_after{
      30};  ///< logs which processes are missing, again after twice the time, and so on
  std::chrono::duration<double> timeout{0};  ///< 0: waits for ever
};

/// The processes of a job, met.
struct Rendezvous {
  UniqueDescriptor name;                  ///< keeps other processes from taking this one's number
  std::vector<UniqueDescriptor> sockets;  ///< by process, SOCK_STREAM, non-blocking; none for this one itself
};

/// Connects this process with every other of its job. Each listens under a name made of user, job and number, in
/// Linux's abstract name space, which has no files, so that nothing stays behind however a process ends; whoever has
/// another user's identity is refused. Collective over the processes of the job. Blocks.
/// @throws InvalidArgument  the job's name is too long, the number is taken, or another process was given another
/// number of processes or runs another build   @throws PeerLost  a process that was met has gone before all had met
/// @throws Timeout  names the processes that are missing   @throws TransportError
Rendezvous meet(const Slot& slot);

}  // namespace farandole::local
