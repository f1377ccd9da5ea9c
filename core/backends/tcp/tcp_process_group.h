// SPDX-License-Identifier: Apache-2.0
// Process group and backend of jobs over several hosts without MPI.
#pragma once

#include <string>
#include <vector>

#include "farandole/sdk/backend.h"
#include "sockets/socket_process_group.h"
#include "tcp/rendezvous.h"
#include "tcp/tcp_network.h"
#include "tcp/tcp_transport.h"

namespace farandole::tcp {

/// Process group over TCP. Connections are made on first use; joining the job uses only connections along the edges of
/// the binomial tree, so there is no full mesh. Forked children close their copies of the sockets (TcpNetwork).
class TcpProcessGroup final : public sockets::SocketProcessGroup {
 public:
  /// Joins the job. Blocks until all processes have met and have exchanged their addresses. @throws Error  see `meet`
  /// and `allgather`
  explicit TcpProcessGroup(const Slot& slot);
  ~TcpProcessGroup() override;

  Transport& transport() override { return transport_; }
  void set_topology(const Topology& topology) override;
  std::string unreachable_reason(int process) override { return network_.unreachable_reason(process); }
  void rest() override;
  const TcpNetwork& network() const { return network_; }

 private:
  Link& link_with(int process) override { return network_.link(process); }
  Link* find_link(int process) override { return network_.find(process); }
  std::string loss_reason(int process) override { return network_.loss_reason(process); }
  bool is_watched_by(int process) override;
  void advance() override { network_.advance(); }

  TcpNetwork network_;
  TcpTransport transport_{network_};
  std::vector<bool> is_on_this_host_;  // by process: true if on this host; written by `set_topology`, const afterwards
};

/// Returns the backend "tcp", which is part of the library.
Backend& tcp_backend();

}  // namespace farandole::tcp
