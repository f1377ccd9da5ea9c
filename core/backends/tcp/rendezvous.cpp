// SPDX-License-Identifier: Apache-2.0
#include "tcp/rendezvous.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "farandole/core/error.h"
#include "farandole/internal/log.h"
#include "farandole/internal/stall_monitor.h"
#include "sockets/open_files.h"
#include "tcp/address.h"
#include "tcp/rendezvous_client.h"
#include "tcp/rendezvous_messages.h"
#include "tcp/rendezvous_server.h"
#include "tcp/stream.h"

namespace farandole::tcp {
namespace {

constexpr int kPollMs = 5;
constexpr int kLastPort = 65535;

rendezvous::Request make_request(const TcpNetwork& network) {
  rendezvous::Request request{own_build_claim(), network.listens_at(), 0};
  std::memcpy(&request.id, random_256_bits().data(), sizeof request.id);
  return request;
}

/// Listens at the first free port of the rendezvous. @throws TransportError  no port is free
UniqueDescriptor listen_for(const Slot& slot, const std::optional<Address>& at) {
  if (slot.rendezvous.empty()) return listen_at(at);
  const int first = parse_rendezvous(slot.rendezvous).port;
  const int last = std::min(first + kMorePorts, kLastPort);
  std::string problem;
  for (int port = first; port <= last; ++port) {
    try {
      return listen_at(at, static_cast<std::uint16_t>(port));
    } catch (const TransportError& error) {
      problem = error.message();
      log(LogLevel::kDebug, fmt::format("the rendezvous {}: {}", slot.rendezvous, problem));
    }
  }
  throw TransportError(
      fmt::format("joining the job: process 0 can listen at none of the ports {} to {} of the rendezvous {} ({}); end "
                  "the programs that have them, or choose another port (FARANDOLE_RENDEZVOUS, MASTER_PORT)",
                  first, last, slot.rendezvous, problem));
}

/// Returns the addresses as a comma-separated text, for `Slot::share`.
std::string to_text(const ListenAddresses& addresses, std::uint16_t port) {
  std::vector<std::string> texts;
  for (Address each : addresses.addresses) {
    if (each.family == 0) continue;
    each.port = port;
    texts.push_back(to_text(each));
  }
  return fmt::format("{}", fmt::join(texts, ","));
}

/// Parses the text that process 0 has shared; returns its addresses in the order in which to try them.
std::vector<Address> parse_shared(std::string_view text, const TcpNetwork& network) {
  ListenAddresses all;
  for (std::size_t i = 0; i < ListenAddresses::kMax && !text.empty(); ++i) {
    const std::size_t comma = std::min(text.find(','), text.size());
    const RendezvousPoint point = parse_rendezvous(text.substr(0, comma));
    text.remove_prefix(std::min(comma + 1, text.size()));
    std::string problem;
    const std::vector<Address> found = resolve(point, problem);
    if (found.size() != 1) throw TransportError(fmt::format("what process 0 has shared is no address: {}", problem));
    all.addresses[i] = found.front();
  }
  return network.by_reach(all);
}

/// Returns all addresses at which process 0 may listen. @param addresses  with the first port
std::vector<Address> all_ports(std::span<const Address> addresses) {
  std::vector<Address> all;
  for (const Address& first : addresses) {
    for (int port = first.port; port <= std::min(first.port + kMorePorts, kLastPort); ++port) {
      all.push_back(first);
      all.back().port = static_cast<std::uint16_t>(port);
    }
  }
  return all;
}

/// The rendezvous address as process 0 resolves it. Resolved once, because process 0 answers no connection while it
/// waits for the name service.
struct OwnRendezvous {
  std::vector<Address> other_candidates;  ///< where another process 0 may listen; on this host only ports below this
                                          ///< process's, as both take the first free port
  std::string unreachable_reason;  ///< "; process 0 does not listen at …": why peers may fail to reach it; or empty
};

/// Returns why no process, or no process of another host, can reach process 0 at the rendezvous address as this host
/// resolves the address; empty if no reason is known.
std::string describe_unreachable(const RendezvousPoint& point, const TcpNetwork& network,
                                 std::span<const Address> addresses, const std::vector<InterfaceAddress>& own) {
  const auto is_listened_at = [&](const Address& at) {
    return network.source() ? at.family == network.source()->family && at.bytes == network.source()->bytes
                            : is_local_address(at, own);
  };
  const auto is_loopback = [](const Address& at) { return is_local_address(at, {}); };
  std::vector<std::string> texts;
  for (Address at : addresses) {
    at.port = 0;
    texts.push_back(to_text(at));
  }
  const std::string all = fmt::format("{}", fmt::join(texts, ", "));
  const std::string_view host = point.host;
  if (std::none_of(addresses.begin(), addresses.end(), is_listened_at)) {
    return fmt::format(
        "; process 0 does not listen at {}{}, where the processes look for it: the rendezvous must be the host of "
        "process 0, by an address of the interface that the job uses",
        host, all == host ? "" : fmt::format(" ({})", all));
  }
  if (!std::all_of(addresses.begin(), addresses.end(), is_loopback)) return {};
  return fmt::format(
      "; {}{}, which processes of other hosts do not reach: there the rendezvous must be another address of this host",
      host, all == host ? " is this host itself" : fmt::format(" is {} here", all));
}

OwnRendezvous resolve_own_rendezvous(const RendezvousPoint& point, const TcpNetwork& network, std::uint16_t own_port) {
  const std::vector<InterfaceAddress> own = interface_addresses();
  const auto is_here = [&own](const Address& at) { return is_local_address(at, own); };
  OwnRendezvous found;
  std::string problem;
  const std::vector<Address> addresses = resolve(point, problem);
  found.unreachable_reason =
      problem.empty() ? describe_unreachable(point, network, addresses, own) : fmt::format("; {}", problem);
  found.other_candidates = all_ports(addresses);
  std::erase_if(found.other_candidates, [&](const Address& at) { return is_here(at) && at.port >= own_port; });
  return found;
}

template <class Participant>
void wait_for_events(const Participant& participant, const rendezvous::Client* caller) {
  std::vector<pollfd> sockets;
  participant.add_to(sockets);
  if (caller != nullptr) caller->add_to(sockets);
  ::poll(sockets.data(), sockets.size(), kPollMs);
}

/// Looks for another process 0 of the same job. @throws InvalidArgument  another process 0 exists, and has rejected
/// this process
void check_for_second(std::optional<rendezvous::Client>& second) {
  try {
    if (second) second->advance();
  } catch (const PeerLost&) {
    second.reset();  // the other process 0 belonged to a job that has ended
  }
}

/// Returns what the user must do so that all processes join.
std::string advice_for(const Slot& slot) {
  if (!slot.advice.empty()) return slot.advice;
  return fmt::format(
      "each must be started with its own number, the same number of processes, the same rendezvous ({}), FARANDOLE_JOB "
      "if it is set, and the same key",
      slot.rendezvous.empty() ? "of the launcher" : slot.rendezvous);
}

void run_server(const Slot& slot, TcpNetwork& network) {
  sockets::provide_descriptors(2 * slot.processes + static_cast<int>(Acceptor::kMaxPending),
                               "the rendezvous of this job");
  UniqueDescriptor listener = listen_for(slot, network.source());
  const std::uint16_t port = port_of(listener);
  const std::string at = to_text(network.listens_at(), port);
  if (slot.rendezvous.empty()) slot.share(at);
  const rendezvous::Request own = make_request(network);
  rendezvous::Server host(slot, network, own, std::move(listener));
  OwnRendezvous point;
  std::optional<rendezvous::Client> second;
  if (!slot.rendezvous.empty()) {
    point = resolve_own_rendezvous(parse_rendezvous(slot.rendezvous), network, port);
    second.emplace(slot, network, own, [&point](std::string&) { return point.other_candidates; });
  }
  log(LogLevel::kDebug, fmt::format("process 0 of {} listens for the other processes at {}", slot.processes, at));
  StallMonitor stall(slot.warn_after, slot.timeout, Clock::now(), slot.timeout_origin.c_str());
  try {
    for (; !host.advance(); wait_for_events(host, second ? &*second : nullptr)) {
      if (host.has_found_itself()) {
        second.reset();
        point.unreachable_reason.clear();
      }
      check_for_second(second);
      stall.check([&] {
        return fmt::format("joining the job: process 0 of {} waits at {}: {}; {}{}", slot.processes, at,
                           host.describe_missing(), advice_for(slot), point.unreachable_reason);
      });
    }
  } catch (const Error& error) {
    host.refuse(error);
    throw;
  }
}

void run_client(const Slot& slot, TcpNetwork& network) {
  rendezvous::Client::AddressSource find_addresses;
  if (slot.rendezvous.empty()) {
    find_addresses = [found = parse_shared(slot.share({}), network)](std::string&) { return found; };
  } else {
    find_addresses = [point = parse_rendezvous(slot.rendezvous)](std::string& problem) {
      return all_ports(resolve(point, problem));
    };
  }
  rendezvous::Client caller(slot, network, make_request(network), std::move(find_addresses));
  StallMonitor stall(slot.warn_after, slot.timeout, Clock::now(), slot.timeout_origin.c_str());
  for (; !caller.advance(); wait_for_events(caller, nullptr)) {
    stall.check([&] {
      return fmt::format("joining the job: process {} of {} has been waiting for {:.1f} s: {}{}{}", slot.process,
                         slot.processes, stall.waited().count(), caller.describe_wait(),
                         slot.advice.empty() ? "" : "; ", slot.advice);
    });
  }
}

}  // namespace

Slot make_slot(const Settings& settings) {
  Slot slot;
  slot.interface = settings.network.interface;
  slot.peer_timeout = settings.network.peer_timeout;
  slot.warn_after = settings.faults.warn_after;
  slot.timeout = settings.faults.timeout;
  return slot;
}

TcpNetwork::Options network_options(const Slot& slot) {
  return {slot.process, slot.processes, slot.key, slot.job, slot.interface, slot.peer_timeout, nullptr};
}

void meet(const Slot& slot, TcpNetwork& network) {
  if (slot.processes == 1) return;
  slot.process == 0 ? run_server(slot, network) : run_client(slot, network);
}

}  // namespace farandole::tcp
