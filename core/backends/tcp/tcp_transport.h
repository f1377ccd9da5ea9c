// SPDX-License-Identifier: Apache-2.0
// Transport over TCP connections.
#pragma once

#include <string_view>

#include "sockets/link_transport.h"
#include "tcp/tcp_network.h"

namespace farandole::tcp {

/// Transport over the links of a TcpNetwork. A transfer that waits for a process that has ended, or whose host is
/// silent, throws a PeerLost that names the rank and host.
class TcpTransport final : public sockets::LinkTransport {
 public:
  explicit TcpTransport(TcpNetwork& network) : network_(network) {}

  std::string_view name() const override { return "tcp"; }
  /// Measured between two hosts that are network namespaces of one machine (docs/benchmarks.md): 4 bytes take 9 µs, or
  /// 15 µs if the ranks have slept for 1 ms before; 64 MiB in each direction run at 1.1 to 1.6 GB/s.
  LinkCost cost() const override { return {15.0, 1e6 / 1.2e9}; }
  void check_peer(int peer, Traffic traffic, WaitState& wait) override;

 private:
  Link* link_with(int process, Traffic traffic) override;
  Link* find_link(int process, Traffic traffic) const override { return network_.find(process, traffic); }
  void before_polling() override { network_.advance(); }

  TcpNetwork& network_;
};

}  // namespace farandole::tcp
