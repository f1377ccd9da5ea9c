// SPDX-License-Identifier: Apache-2.0
// Jobs of one host without MPI (FARANDOLE_RANK, FARANDOLE_SIZE and FARANDOLE_JOB), and their messages over the sockets
// between the processes.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "farandole/sdk/backend.h"
#include "local/rendezvous.h"
#include "sockets/descriptor.h"
#include "sockets/link_transport.h"
#include "sockets/socket_process_group.h"

namespace farandole::local {

using sockets::Link;

/// Connections of this process, indexed by peer process; null for this process itself.
using Links = std::vector<std::unique_ptr<Link>>;

/// Carries the messages that do not go through shared memory, over one connection per pair of processes.
class LocalTransport final : public sockets::LinkTransport {
 public:
  explicit LocalTransport(const Links& links) : links_(links) {}

  std::string_view name() const override { return "local"; }
  LinkCost cost() const override { return {5.0, 1e6 / 2e9}; }

 private:
  // Both kinds of traffic share a connection: inside a host few messages are long enough to delay others.
  Link* link_with(int process, Traffic) override { return links_[static_cast<std::size_t>(process)].get(); }
  Link* find_link(int process, Traffic traffic) const override {
    return traffic == Traffic::kShort ? links_[static_cast<std::size_t>(process)].get() : nullptr;
  }

  const Links& links_;
};

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
