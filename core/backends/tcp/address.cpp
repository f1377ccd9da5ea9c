// SPDX-License-Identifier: Apache-2.0
#include "tcp/address.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <memory>
#include <optional>
#include <system_error>

#include "farandole/core/error.h"
#include "sockets/descriptor.h"

namespace farandole::tcp {
namespace {

std::size_t length_of(const Address& address) {
  return address.family == 4 ? 4 : 16;
}

bool have_same_prefix(const Address& first, const Address& second, int bits) {
  if (first.family != second.family) return false;
  for (std::size_t i = 0; bits > 0; ++i, bits -= 8) {
    const int mask = bits >= 8 ? 0xff : (0xff << (8 - bits)) & 0xff;
    if (((first.bytes[i] ^ second.bytes[i]) & mask) != 0) return false;
  }
  return true;
}

bool is_loopback(const Address& address) {
  if (address.family == 4) return address.bytes[0] == 127;
  std::array<std::uint8_t, 16> loopback{};
  loopback.back() = 1;
  return address.bytes == loopback;
}

std::optional<Address> parse_address(const std::string& text) {
  Address address;
  for (const auto& [family, number] : {std::pair{AF_INET, 4}, std::pair{AF_INET6, 6}}) {
    if (inet_pton(family, text.c_str(), address.bytes.data()) != 1) continue;
    address.family = static_cast<std::uint16_t>(number);
    return address;
  }
  return std::nullopt;
}

/// Parses a network ("10.0.0.0/8") or a single address.
std::optional<InterfaceAddress> parse_network(std::string_view text) {
  const auto slash = text.find('/');
  const auto address = parse_address(std::string(text.substr(0, slash)));
  if (!address) return std::nullopt;
  const int max_bits = static_cast<int>(8 * length_of(*address));
  int bits = max_bits;
  if (slash != std::string_view::npos) {
    const std::string_view number = text.substr(slash + 1);
    const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), bits);
    const bool is_number = error == std::errc{} && end == number.data() + number.size();
    if (!is_number || bits < 0 || bits > max_bits) return std::nullopt;
  }
  return InterfaceAddress{"", *address, bits};
}

/// Returns the source address of packets to a remote network. Connects a datagram socket, which makes the kernel look
/// up the route and sends nothing.
std::optional<Address> address_by_route(const char* remote) {
  Address available = *parse_address(remote);
  available.port = 9;
  sockaddr_storage storage{};
  const unsigned length = to_sockaddr(available, storage);
  const sockets::UniqueDescriptor socket(::socket(storage.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!socket || connect(socket.get(), reinterpret_cast<const sockaddr*>(&storage), length) != 0) return std::nullopt;
  sockaddr_storage own{};
  socklen_t own_length = sizeof own;
  if (getsockname(socket.get(), reinterpret_cast<sockaddr*>(&own), &own_length) != 0) return std::nullopt;
  Address address = from_sockaddr(reinterpret_cast<const sockaddr&>(own));
  address.port = 0;
  return address;
}

std::vector<Address> by_route(std::span<const InterfaceAddress> all) {
  std::vector<Address> chosen;
  for (const InterfaceAddress& own : all) {
    if (!is_loopback(own.address)) chosen.push_back(own.address);
  }
  if (chosen.empty()) {
    for (const InterfaceAddress& own : all) chosen.push_back(own.address);
  }
  // Addresses of documentation networks, which have the same route as any other remote network.
  for (const char* remote : {"2001:db8::1", "192.0.2.1"}) {
    const auto outgoing = address_by_route(remote);
    const auto found = outgoing ? std::find(chosen.begin(), chosen.end(), *outgoing) : chosen.end();
    if (found != chosen.end()) std::rotate(chosen.begin(), found, found + 1);
  }
  return chosen;
}

}  // namespace

bool is_link_local(const Address& address) {
  return address.family == 6 && address.bytes[0] == 0xfe && (address.bytes[1] & 0xc0) == 0x80;
}

std::string to_text(const Address& address) {
  char text[INET6_ADDRSTRLEN] = {};
  inet_ntop(address.family == 4 ? AF_INET : AF_INET6, address.bytes.data(), text, sizeof text);
  if (address.port == 0) return text;
  return address.family == 4 ? fmt::format("{}:{}", text, address.port) : fmt::format("[{}]:{}", text, address.port);
}

Address from_sockaddr(const sockaddr& address) {
  Address result;
  if (address.sa_family == AF_INET) {
    sockaddr_in in{};
    std::memcpy(&in, &address, sizeof in);
    result.family = 4;
    result.port = ntohs(in.sin_port);
    std::memcpy(result.bytes.data(), &in.sin_addr, 4);
  } else if (address.sa_family == AF_INET6) {
    sockaddr_in6 in{};
    std::memcpy(&in, &address, sizeof in);
    result.family = 6;
    result.port = ntohs(in.sin6_port);
    std::memcpy(result.bytes.data(), &in.sin6_addr, 16);
  } else {
    throw InvalidArgument(fmt::format("an address of family {} is neither IPv4 nor IPv6", address.sa_family));
  }
  return result;
}

unsigned to_sockaddr(const Address& address, sockaddr_storage& out) {
  out = {};
  if (address.family == 4) {
    sockaddr_in in{};
    in.sin_family = AF_INET;
    in.sin_port = htons(address.port);
    std::memcpy(&in.sin_addr, address.bytes.data(), 4);
    std::memcpy(&out, &in, sizeof in);
    return sizeof in;
  }
  sockaddr_in6 in{};
  in.sin6_family = AF_INET6;
  in.sin6_port = htons(address.port);
  std::memcpy(&in.sin6_addr, address.bytes.data(), 16);
  std::memcpy(&out, &in, sizeof in);
  return sizeof in;
}

std::vector<InterfaceAddress> interface_addresses() {
  ifaddrs* first = nullptr;
  if (getifaddrs(&first) != 0) {
    throw TransportError(fmt::format("the kernel does not tell the addresses of this host (getifaddrs): {}",
                                     std::generic_category().message(errno)));
  }
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> list(first, freeifaddrs);
  std::vector<InterfaceAddress> found;
  for (const ifaddrs* entry = list.get(); entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || entry->ifa_netmask == nullptr || (entry->ifa_flags & IFF_UP) == 0) continue;
    if (entry->ifa_addr->sa_family != AF_INET && entry->ifa_addr->sa_family != AF_INET6) continue;
    InterfaceAddress own{entry->ifa_name, from_sockaddr(*entry->ifa_addr), 0};
    own.address.port = 0;
    if (is_link_local(own.address)) continue;
    for (const std::uint8_t byte : from_sockaddr(*entry->ifa_netmask).bytes) own.prefix_bits += std::popcount(byte);
    found.push_back(std::move(own));
  }
  return found;
}

bool is_in_network(const Address& address, const InterfaceAddress& own) {
  return have_same_prefix(address, own.address, own.prefix_bits);
}

bool is_local_address(const Address& address, std::span<const InterfaceAddress> own) {
  const auto is_same = [&](const InterfaceAddress& each) { return have_same_prefix(address, each.address, 128); };
  return is_loopback(address) || std::any_of(own.begin(), own.end(), is_same);
}

std::vector<Address> choose_own_addresses(std::span<const InterfaceAddress> all, std::string_view choice) {
  std::vector<Address> chosen;
  if (choice.empty()) {
    chosen = by_route(all);
  } else {
    const auto network = parse_network(choice);
    for (const InterfaceAddress& own : all) {
      if (own.interface == choice || (network && is_in_network(own.address, *network))) chosen.push_back(own.address);
    }
  }
  if (!chosen.empty()) return chosen;
  std::string available;
  for (const InterfaceAddress& own : all) {
    available +=
        fmt::format("{}{} {}/{}", available.empty() ? "" : ", ", own.interface, to_text(own.address), own.prefix_bits);
  }
  throw InvalidArgument(
      fmt::format("FARANDOLE_NETWORK_INTERFACE is '{}', and no interface of this host that is up has that name or an "
                  "address of that network; there are: {}",
                  choice, available.empty() ? "none" : available));
}

std::vector<Address> order_by_reach(std::span<const Address> of_peer, std::span<const InterfaceAddress> own) {
  const auto rank = [own](const Address& address) {
    const auto is_own = [&](const InterfaceAddress& each) { return have_same_prefix(address, each.address, 128); };
    const auto is_near = [&](const InterfaceAddress& each) { return is_in_network(address, each); };
    if (std::any_of(own.begin(), own.end(), is_own)) return 2;
    return std::any_of(own.begin(), own.end(), is_near) ? 0 : 1;
  };
  std::vector<Address> ordered(of_peer.begin(), of_peer.end());
  std::stable_sort(ordered.begin(), ordered.end(),
                   [&](const Address& first, const Address& second) { return rank(first) < rank(second); });
  return ordered;
}

RendezvousPoint parse_rendezvous(std::string_view text) {
  const auto refuse = [text](std::string_view why) -> RendezvousPoint {
    throw InvalidArgument(
        fmt::format("the rendezvous '{}' {}; it must be host:port, such as node1:29500, 10.0.0.1:29500 or "
                    "[2001:db8::1]:29500, the same in all processes, with the host of process 0",
                    text, why));
  };
  const std::size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) return refuse("has no port");
  std::string_view host = text.substr(0, colon);
  const std::string_view number = text.substr(colon + 1);
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  } else if (host.find(':') != std::string_view::npos) {
    return refuse("has more than one colon outside brackets, which an address of IPv6 needs");
  }
  if (host.empty()) return refuse("has no host");
  RendezvousPoint point{std::string(host), 0};
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), point.port);
  if (error != std::errc{} || end != number.data() + number.size() || point.port == 0) {
    return refuse("has a port that is no number from 1 to 65535");
  }
  return point;
}

std::vector<Address> resolve(const RendezvousPoint& point, std::string& problem) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* first = nullptr;
  const int failed = getaddrinfo(point.host.c_str(), nullptr, &hints, &first);
  if (failed != 0) {
    problem = fmt::format(
        "the host '{}' (of FARANDOLE_RENDEZVOUS, MASTER_ADDR) is not known on this host: {}; give its address instead, "
        "or make the name known on every host",
        point.host, gai_strerror(failed));
    return {};
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> list(first, freeaddrinfo);
  std::vector<Address> found;
  for (const addrinfo* entry = list.get(); entry != nullptr; entry = entry->ai_next) {
    if (entry->ai_family != AF_INET && entry->ai_family != AF_INET6) continue;
    Address address = from_sockaddr(*entry->ai_addr);
    address.port = point.port;
    if (is_link_local(address)) continue;
    if (std::find(found.begin(), found.end(), address) == found.end()) found.push_back(address);
  }
  if (found.empty()) {
    problem = fmt::format("the host '{}' has no address that means something beyond one link (fe80::/10)", point.host);
  }
  return found;
}

}  // namespace farandole::tcp
