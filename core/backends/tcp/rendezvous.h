// SPDX-License-Identifier: Apache-2.0
// Rendezvous over TCP: how the processes of a job on several hosts find each other without MPI.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "farandole/core/settings.h"
#include "tcp/job_key.h"
#include "tcp/tcp_network.h"

namespace farandole::tcp {

/// Parameters of one process of a job that is joined over TCP. The launcher's adapter fills in the process number, the
/// number of processes, the key, and either `rendezvous` or `share`.
struct Slot {
  int process = 0;        ///< number of this process
  int processes = 1;      ///< number of processes in the job
  JobKey key{};           ///< secret; the same in all processes
  std::uint64_t job = 0;  ///< number of the job: the same in all processes, different in other jobs
  /// Address of process 0, the same text in all processes: "node1:29500", "10.0.0.1:29500", "[2001:db8::1]:29500". If
  /// the port is taken, process 0 takes the next free port, up to kMorePorts further. Empty: `share` distributes the
  /// address.
  std::string rendezvous;
  /// Broadcasts a text of at most 1 KiB from process 0: returns in every process the text that process 0 passes; other
  /// processes pass an empty text. Called once per process, by the joining thread; may block until process 0 has
  /// called. Exceptions pass through. Not used if `rendezvous` is set.
  std::function<std::string(std::string_view of_process_0)> share;
  std::string interface;     ///< FARANDOLE_NETWORK_INTERFACE, for all connections of this process; empty: all
  Seconds peer_timeout{60};  ///< FARANDOLE_PEER_TIMEOUT
  Seconds warn_after{30};    ///< time until the first warning; the pauses between warnings double
  Seconds timeout{0};        ///< 0: wait for ever
  std::string timeout_origin = "FARANDOLE_TIMEOUT";  ///< what has set `timeout`, for the text of the error
  std::string advice;  ///< what the user must do so that all processes join; empty: what a launcher's job needs
};

/// Returns a slot with the interface and the times of the settings. The launcher's adapter fills in the rest.
Slot make_slot(const Settings& settings);

/// Number of further ports that process 0 may take: torchrun's own store occupies MASTER_PORT.
inline constexpr int kMorePorts = 8;

/// Returns the options of the network for a slot.
TcpNetwork::Options network_options(const Slot& slot);

/// Joins the job. Collective over the processes of the job. Blocks.
///
/// Protocol: process 0 listens, at `rendezvous` or an address that `share` distributes. Every other process connects to
/// process 0 (Handshake with Purpose::kRendezvous) and sends a Request: its build, host and listening addresses. When
/// all have done so, process 0 checks that all run the same build. Then process 0 sends each process the addresses of
/// its neighbours in the binomial tree (sockets/binomial_tree.h), and a random number for this start of the job. `meet`
/// stores both in `network`. The processes - 1 connections to process 0 are closed afterwards. While processes are
/// missing, process 0 regularly sends their numbers to the connected processes, so that every warning and Timeout can
/// name the missing processes.
/// @param network  made with `network_options(slot)`
/// @throws InvalidArgument  on all processes that have connected: two processes have the same number, or differ in the
/// number of processes or in the build; the message shows both. On any process: `rendezvous` is not an address
/// @throws PeerLost  on all processes that have connected: a process has ended after sending its request, and before
/// all others had sent theirs
/// @throws Timeout  names the missing processes   @throws TransportError  no port is free
void meet(const Slot& slot, TcpNetwork& network);

}  // namespace farandole::tcp
