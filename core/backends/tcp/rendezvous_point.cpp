// SPDX-License-Identifier: Apache-2.0
#include "tcp/rendezvous_point.h"

#include <fmt/format.h>
#include <netdb.h>
#include <sys/socket.h>

#include <algorithm>
#include <charconv>
#include <memory>
#include <system_error>

#include "farandole/core/error.h"

namespace farandole::tcp {

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
