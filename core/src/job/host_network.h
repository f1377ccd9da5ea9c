// SPDX-License-Identifier: Apache-2.0
// Which way messages between the hosts of a job go: that of its process group, or TCP connections of its own.
#pragma once

#include <memory>
#include <string>

#include "farandole/core/settings.h"
#include "farandole/core/topology.h"
#include "farandole/sdk/backend.h"
#include "tcp/tcp_network.h"
#include "tcp/tcp_transport.h"

namespace farandole {

/// What the processes of a job have agreed on by FARANDOLE_NETWORK.
class HostNetwork {
 public:
  /// Messages between hosts go by the process group. @param why  for people
  explicit HostNetwork(std::string why) : description_(std::move(why)) {}
  HostNetwork(std::unique_ptr<tcp::TcpNetwork> network, const Topology& topology, std::string why);

  /// For messages to ranks of other hosts; null: the process group has one.
  Transport* transport() const { return transport_.get(); }
  /// "tcp (auto: …)"
  std::string describe() const;

 private:
  std::string description_;
  std::unique_ptr<tcp::TcpNetwork> network_;
  std::unique_ptr<tcp::TcpTransport> transport_;
};

/// Lets the processes of a job agree. `auto` takes TCP where there are several hosts, all processes can listen and
/// reach a process of the next host, and no host has a faster fabric, which MPI would use. Collective over the
/// processes of the group; blocks, for 10 s at most where packets are lost.
/// @throws Unsupported  on all processes: FARANDOLE_NETWORK is tcp, and one of them can not
HostNetwork choose_host_network(const Settings& settings, ProcessGroup& group, const Topology& topology);

}  // namespace farandole
