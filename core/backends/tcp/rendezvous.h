// SPDX-License-Identifier: Apache-2.0
// How the processes of a job over several hosts find each other when no MPI started them.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "farandole/core/settings.h"
#include "tcp/job_key.h"
#include "tcp/tcp_network.h"

namespace farandole::tcp {

/// What a process knows of its job before it meets its peers. Whatever launched the processes fills this in: the
/// numbers, the key, and one of `rendezvous` and `share`.
struct Slot {
  int process = 0;        ///< this process's number
  int processes = 1;      ///< how many there are
  JobKey key{};           ///< the same in all processes, and secret
  std::uint64_t job = 0;  ///< number of the job: the same in all processes, and another one in other jobs
  /// Where process 0 listens, the same text in all processes: "node1:29500", "10.0.0.1:29500", "[2001:db8::1]:29500".
  /// Where that port is taken process 0 takes the next that is free, as far as kMorePorts after it. Empty: `share`
  /// tells all processes.
  std::string rendezvous;
  /// Returns in every process the text that process 0 passes, of 1 KiB at most; the other processes pass an empty one.
  /// Called once by each process, by the thread that joins; may block until process 0 has called. What it throws passes
  /// through. Not used where there is a `rendezvous`.
  std::function<std::string(std::string_view of_process_0)> share;
  std::string interface;     ///< FARANDOLE_NETWORK_INTERFACE: process 0 listens on no other
  Seconds peer_timeout{60};  ///< FARANDOLE_PEER_TIMEOUT
  Seconds warn_after{30};    ///< logs which processes are missing, again after twice the time, and so on
  Seconds timeout{0};        ///< 0: waits for ever
};

/// A slot with what the settings say: the interface, and how long to wait. A launcher knows the rest.
Slot make_slot(const Settings& settings);

/// Ports after that of the rendezvous which process 0 may take: torchrun's own store sits on MASTER_PORT.
inline constexpr int kMorePorts = 8;

/// The network of a slot. Listens. @throws InvalidArgument, TransportError  see TcpNetwork
TcpNetwork::Options network_options(const Slot& slot);

/// Lets the processes of a job meet: each calls process 0, says where it listens, and gets the addresses of its
/// neighbours in the binomial tree (sockets/binomial_tree.h) and the number of this start of the job, which `network`
/// knows from then on. Process 0 answers when all have come; the calls end then, so that processes - 1 short
/// connections are made and none is left. Collective over the processes of the job. Blocks.
/// @param network  made with `network_options(slot)`
/// @throws InvalidArgument  on all processes that have come: two have the same number, or a process was given another
/// number of processes, or runs another build; shows both. Or the rendezvous is no address
/// @throws PeerLost  on all that have come: a process that was met has gone before all had met
/// @throws Timeout  names the processes that are missing   @throws TransportError  no port is free
void meet(const Slot& slot, TcpNetwork& network);

}  // namespace farandole::tcp
