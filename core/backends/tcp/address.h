// SPDX-License-Identifier: Apache-2.0
// IPv4 and IPv6 addresses: the addresses of this host, the order in which to try the addresses of a peer, and the
// rendezvous address of a job, as users and launchers write it.
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

/// An IP address and a port. Processes send this struct to each other as bytes.
struct Address {
  std::uint16_t family = 0;              ///< 4 or 6; 0: empty
  std::uint16_t port = 0;                ///< in host byte order
  std::array<std::uint8_t, 16> bytes{};  ///< in network byte order; IPv4 uses the first four
  bool operator==(const Address&) const = default;
};
static_assert(sizeof(Address) == 20);

/// Returns "10.0.0.1:4711" or "[2001:db8::1]:4711"; only the address if the port is 0.
std::string to_text(const Address& address);
/// @throws InvalidArgument  the address is neither IPv4 nor IPv6
Address from_sockaddr(const sockaddr& address);
/// Fills `out`; returns the number of bytes used.
unsigned to_sockaddr(const Address& address, sockaddr_storage& out);

/// An address of an interface of this host.
struct InterfaceAddress {
  std::string interface;  ///< "eth0"
  Address address;        ///< port 0
  int prefix_bits = 0;    ///< prefix length of the interface's network
  bool operator==(const InterfaceAddress&) const = default;
};
/// Returns the addresses of all interfaces that are up, without link-local addresses.
/// @throws TransportError  getifaddrs failed
std::vector<InterfaceAddress> interface_addresses();
/// True for link-local addresses (fe80::/10), which are valid together with an interface only.
bool is_link_local(const Address& address);
/// True if the address lies in the network of `own`.
bool is_in_network(const Address& address, const InterfaceAddress& own);

/// True if the address is in `own`, regardless of the port, or is a loopback address.
bool is_local_address(const Address& address, std::span<const InterfaceAddress> own);

/// Returns the addresses of `all` that a job may use, best first.
/// @param choice  FARANDOLE_NETWORK_INTERFACE: the name of an interface ("eth1"), or a network ("10.0.0.0/8",
///                "2001:db8::/32"). Empty: by route, i.e. the source address of packets to other networks comes first,
///                and loopback addresses are used only if there are no others.
/// @throws InvalidArgument  no address matches; the message lists the available addresses
std::vector<Address> choose_own_addresses(std::span<const InterfaceAddress> all, std::string_view choice);
/// Sorts the addresses of a peer in the order in which this host should try them: first addresses in a network of this
/// host, last addresses that this host has itself (a container bridge has the same address on every host).
std::vector<Address> order_by_reach(std::span<const Address> of_peer, std::span<const InterfaceAddress> own);

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
