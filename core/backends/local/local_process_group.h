// SPDX-License-Identifier: Apache-2.0
// A job of processes of one host that no MPI started: FARANDOLE_RANK, FARANDOLE_SIZE and FARANDOLE_JOB.
#pragma once

#include <string>

#include "farandole/sdk/backend.h"
#include "local/local_transport.h"
#include "local/rendezvous.h"
#include "sockets/descriptor.h"
#include "sockets/socket_process_group.h"

namespace farandole::local {

/// Everything between processes goes over a socket for each pair; the collectives of the ranks use shared memory.
class LocalProcessGroup final : public sockets::SocketProcessGroup {
 public:
  /// Blocks until all processes have met. @throws InvalidArgument, Timeout, TransportError  see `meet`
  explicit LocalProcessGroup(const Slot& slot);
  ~LocalProcessGroup() override;

  Transport& transport() override { return transport_; }
  void set_topology(const Topology& topology) override { transport_.set_topology(topology); }
  void rest() override;
  /// In a forked child, which has one thread: it is no process of the job, and must not look like one to its peers.
  void drop_sockets();

 private:
  Link& link_with(int process) override { return *find_link(process); }
  Link* find_link(int process) override { return links_[static_cast<std::size_t>(process)].get(); }
  std::string why_lost(int process) override;

  UniqueDescriptor name_;
  Links links_;
  LocalTransport transport_{links_};
};

/// The backend "local", part of the library.
Backend& local_backend();

}  // namespace farandole::local
