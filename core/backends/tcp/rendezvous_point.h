// SPDX-License-Identifier: Apache-2.0
// Where the processes of a job meet, as people and launchers write it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tcp/address.h"

namespace farandole::tcp {

/// A host by name or address, and a port.
struct RendezvousPoint {
  std::string host;
  std::uint16_t port = 0;
};

/// "node1:29500", "10.0.0.1:29500", "[2001:db8::1]:29500". @throws InvalidArgument  it is none; says what is expected
RendezvousPoint parse_rendezvous(std::string_view text);
/// The addresses that the name of the host stands for, or itself, with `port`. Blocks as long as the name service does.
/// @param problem  set if there are none: "Name or service not known"
std::vector<Address> resolve(const RendezvousPoint& point, std::string& problem);

}  // namespace farandole::tcp
