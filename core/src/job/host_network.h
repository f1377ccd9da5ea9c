// SPDX-License-Identifier: Apache-2.0
// Transport between the hosts of a job: the process group's, or TCP connections of Farandole's own.
#pragma once

#include <memory>
#include <string>

#include "farandole/core/settings.h"
#include "farandole/core/topology.h"
#include "farandole/sdk/backend.h"
#include "tcp/tcp_network.h"
#include "tcp/tcp_transport.h"

namespace farandole {

/// Transport between hosts on which the processes of a job have agreed (FARANDOLE_NETWORK).
class HostNetwork {
 public:
  /// Uses the process group's transport. @param why  reason, for messages
  explicit HostNetwork(std::string why) : description_(std::move(why)) {}
  /// Uses TCP connections. @param why  reason, for messages
  HostNetwork(std::unique_ptr<tcp::TcpNetwork> network, const Topology& topology, std::string why);

  /// Transport to ranks of other hosts; null if the process group's transport is used.
  Transport* transport() const { return transport_.get(); }
  /// Transport and reason: "tcp (auto: …)".
  std::string describe() const;

 private:
  std::string description_;
  std::unique_ptr<tcp::TcpNetwork> network_;
  std::unique_ptr<tcp::TcpTransport> transport_;
};

/// Selects the transport between hosts, the same on all processes. `auto` selects TCP if there are several hosts, every
/// process can listen and can reach a process of the next host, and no host has a faster fabric, which MPI would use.
/// Collective over the processes of the group; blocks, up to 10 s if packets are lost.
/// @throws Unsupported  on all processes: FARANDOLE_NETWORK is tcp, and a process cannot use TCP
HostNetwork choose_host_network(const Settings& settings, ProcessGroup& group, const Topology& topology);

}  // namespace farandole
