// SPDX-License-Identifier: Apache-2.0
// The rendezvous address of a job, as users and launchers write it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tcp/address.h"

namespace farandole::tcp {

/// A host name or address, and a port.
struct RendezvousPoint {
  std::string host;
  std::uint16_t port = 0;
};

/// Parses "node1:29500", "10.0.0.1:29500" or "[2001:db8::1]:29500". @throws InvalidArgument  `text` is not of this
/// form; the message shows what is expected
RendezvousPoint parse_rendezvous(std::string_view text);
/// Looks up the host's addresses and gives each the port; link-local addresses are left out. Blocks for as long as the
/// name service takes. @param problem  set if there is no address: "Name or service not known"
std::vector<Address> resolve(const RendezvousPoint& point, std::string& problem);

}  // namespace farandole::tcp
