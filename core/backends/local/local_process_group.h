// SPDX-License-Identifier: Apache-2.0
// Jobs of one host without MPI: FARANDOLE_RANK, FARANDOLE_SIZE and FARANDOLE_JOB.
#pragma once

#include <string>

#include "farandole/sdk/backend.h"
#include "local/local_transport.h"
#include "local/rendezvous.h"
#include "sockets/descriptor.h"
#include "sockets/socket_process_group.h"

namespace farandole::local {

/// The processes of a job that all run on this host and were started without MPI. Each pair of processes has a stream
/// socket for control messages and for the few messages that do not go through shared memory; the ranks' collectives
/// use shared memory.
class LocalProcessGroup final : public sockets::SocketProcessGroup {
 public:
  /// Blocks until every pair of processes is connected. @throws InvalidArgument, PeerLost, Timeout, TransportError  see
  /// `join_job`
  explicit LocalProcessGroup(const LocalJob& job);
  ~LocalProcessGroup() override;

  Transport& transport() override { return transport_; }
  void set_topology(const Topology& topology) override { transport_.set_topology(topology); }
  void rest() override;
  /// Closes all sockets in a forked child, while it has one thread: the child is not a process of the job, and an open
  /// socket would look to the peers as if this process still lived.
  void drop_sockets();

 private:
  Link& link_with(int process) override { return *find_link(process); }
  Link* find_link(int process) override { return links_[static_cast<std::size_t>(process)].get(); }
  std::string loss_reason(int process) override;

  UniqueDescriptor listener_;
  Links links_;
  LocalTransport transport_{links_};
};

/// The backend "local", which is part of the library.
Backend& local_backend();

}  // namespace farandole::local
