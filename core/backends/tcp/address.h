// SPDX-License-Identifier: Apache-2.0
// Addresses of the network, IPv4 and IPv6: this host's, and which of a peer's to try first.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

struct sockaddr;
struct sockaddr_storage;

namespace farandole::tcp {

/// An address and a port. Processes send each other theirs as these bytes.
struct Address {
  std::uint16_t family = 0;              ///< 4, 6; 0: none
  std::uint16_t port = 0;                ///< in the host's byte order
  std::array<std::uint8_t, 16> bytes{};  ///< in the network's byte order; IPv4: the first four
  bool operator==(const Address&) const = default;
};
static_assert(sizeof(Address) == 20);

/// "10.0.0.1:4711", "[2001:db8::1]:4711"; without ":…" where the port is 0.
std::string to_text(const Address& address);
/// @throws InvalidArgument  it is neither IPv4 nor IPv6
Address from_sockaddr(const sockaddr& address);
/// Returns how many bytes of `out` are used.
unsigned to_sockaddr(const Address& address, sockaddr_storage& out);

/// An address of an interface of this host.
struct InterfaceAddress {
  std::string interface;  ///< "eth0"
  Address address;        ///< port 0
  int prefix_bits = 0;    ///< of its network
  bool operator==(const InterfaceAddress&) const = default;
};
/// Of all interfaces that are up; without addresses of one link.
/// @throws TransportError  the kernel does not tell
std::vector<InterfaceAddress> interface_addresses();
/// True if the address means something on one link only (fe80::/10), so that it needs the interface beside it.
bool is_link_local(const Address& address);
/// True if the address lies in the network of `own`.
bool is_in_network(const Address& address, const InterfaceAddress& own);

/// True if the address is one of `own`, whatever its port, or of a loopback network.
bool is_local_address(const Address& address, std::span<const InterfaceAddress> own);

/// Those of `all` that a job may use, best first.
/// @param choice  FARANDOLE_NETWORK_INTERFACE: the name of an interface ("eth1"), or a network ("10.0.0.0/8",
///                "2001:db8::/32"); empty: by the route, i.e. the address that packets to other networks leave by comes
///                first, and loopback is used only where there is nothing else
/// @throws InvalidArgument  nothing fits; names what there is
std::vector<Address> choose_own_addresses(std::span<const InterfaceAddress> all, std::string_view choice);
/// The addresses of a peer in the order in which this host should try them: those in a network of its own first, and
/// those that this host has itself, as bridges of containers have on every host, last.
std::vector<Address> order_by_reach(std::span<const Address> of_peer, std::span<const InterfaceAddress> own);

}  // namespace farandole::tcp
