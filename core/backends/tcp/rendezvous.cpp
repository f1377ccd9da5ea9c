// SPDX-License-Identifier: Apache-2.0
#include "tcp/rendezvous.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "farandole/core/error.h"
#include "farandole/internal/log.h"
#include "farandole/internal/stall_monitor.h"
#include "sockets/open_files.h"
#include "tcp/rendezvous_caller.h"
#include "tcp/rendezvous_host.h"
#include "tcp/rendezvous_messages.h"
#include "tcp/rendezvous_point.h"
#include "tcp/stream.h"

namespace farandole::tcp {
namespace {

constexpr int kRestMs = 5;
constexpr int kLastPort = 65535;

rendezvous::Request make_request(const TcpNetwork& network) {
  rendezvous::Request request{own_build_claim(), network.listens_at(), 0};
  std::memcpy(&request.id, random_256_bits().data(), sizeof request.id);
  return request;
}

/// A port of the rendezvous that is free.
UniqueDescriptor listen_for(const Slot& slot, const std::optional<Address>& at) {
  if (slot.rendezvous.empty()) return listen_at(at);
  const int first = parse_rendezvous(slot.rendezvous).port;
  const int last = std::min(first + kMorePorts, kLastPort);
  for (int port = first; port < last; ++port) {
    try {
      return listen_at(at, static_cast<std::uint16_t>(port));
    } catch (const TransportError& taken) {
      log(LogLevel::kDebug, fmt::format("the rendezvous {}: {}", slot.rendezvous, taken.what()));
    }
  }
  return listen_at(at, static_cast<std::uint16_t>(last));
}

/// Addresses as one text, for `Slot::share`.
std::string to_text(const ListenAddresses& addresses, std::uint16_t port) {
  std::vector<std::string> texts;
  for (Address each : addresses.addresses) {
    if (each.family == 0) continue;
    each.port = port;
    texts.push_back(to_text(each));
  }
  return fmt::format("{}", fmt::join(texts, ","));
}

/// Where process 0 listens, as it has said.
std::vector<Address> parse_shared(std::string_view text, const TcpNetwork& network) {
  ListenAddresses all;
  for (std::size_t i = 0; i < ListenAddresses::kMost && !text.empty(); ++i) {
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

/// All ports at which process 0 may be.
std::vector<Address> find_places(const RendezvousPoint& point, std::string& problem) {
  std::vector<Address> all;
  for (Address at : resolve(point, problem)) {
    for (int port = point.port; port <= std::min(point.port + kMorePorts, kLastPort); ++port) {
      at.port = static_cast<std::uint16_t>(port);
      all.push_back(at);
    }
  }
  return all;
}

/// Where another process 0 may be, seen from one that listens at `own_port`: on this host it has found a lower port.
std::vector<Address> find_places_of_second(const RendezvousPoint& point, std::uint16_t own_port) {
  std::string problem;
  std::vector<Address> all = find_places(point, problem);
  const std::vector<InterfaceAddress> own = interface_addresses();
  std::erase_if(all, [&](const Address& at) { return is_of_this_host(at, own) && at.port >= own_port; });
  return all;
}

template <class Party>
void rest(const Party& party, const rendezvous::Caller* caller) {
  std::vector<pollfd> sockets;
  party.add_to(sockets);
  if (caller != nullptr) caller->add_to(sockets);
  ::poll(sockets.data(), sockets.size(), kRestMs);
}

/// @throws InvalidArgument  there is another process 0, which says so
void look_for_second(std::optional<rendezvous::Caller>& second) {
  try {
    if (second) second->advance();
  } catch (const PeerLost&) {
    second.reset();  // it was of a job that has ended
  }
}

void receive(const Slot& slot, TcpNetwork& network) {
  sockets::provide_descriptors(2 * slot.processes + static_cast<int>(Callers::kMost), "the rendezvous of this job");
  UniqueDescriptor listener = listen_for(slot, network.source());
  const std::uint16_t port = port_of(listener);
  const std::string at = to_text(network.listens_at(), port);
  if (slot.rendezvous.empty()) slot.share(at);
  const rendezvous::Request own = make_request(network);
  rendezvous::Host host(slot, network, own, std::move(listener));
  std::optional<rendezvous::Caller> second;
  if (!slot.rendezvous.empty()) {
    // Looked up once: while the name service takes its time no call is answered.
    second.emplace(
        slot, network, own,
        [places = find_places_of_second(parse_rendezvous(slot.rendezvous), port)](std::string&) { return places; });
  }
  log(LogLevel::kDebug, fmt::format("process 0 of {} listens for the others at {}", slot.processes, at));
  StallMonitor stall(slot.warn_after, slot.timeout);
  try {
    for (; !host.advance(); rest(host, second ? &*second : nullptr)) {
      if (host.has_found_itself()) second.reset();
      look_for_second(second);
      stall.check([&] {
        return fmt::format(
            "joining the job: process 0 of {} waits at {}: {}; each must be started with its own number, "
            "the same number of processes, the same rendezvous ({}) and the same key",
            slot.processes, at, host.describe_missing(), slot.rendezvous.empty() ? "of the launcher" : slot.rendezvous);
      });
    }
  } catch (const Error& error) {
    host.refuse(error);
    throw;
  }
}

void call(const Slot& slot, TcpNetwork& network) {
  rendezvous::Caller::Places places;
  if (slot.rendezvous.empty()) {
    places = [found = parse_shared(slot.share({}), network)](std::string&) { return found; };
  } else {
    places = [point = parse_rendezvous(slot.rendezvous)](std::string& problem) { return find_places(point, problem); };
  }
  rendezvous::Caller caller(slot, network, make_request(network), std::move(places));
  StallMonitor stall(slot.warn_after, slot.timeout);
  for (; !caller.advance(); rest(caller, nullptr)) {
    stall.check([&] {
      return fmt::format("joining the job: process {} of {} has been waiting for {:.1f} s: {}", slot.process,
                         slot.processes, stall.waited().count(), caller.describe_wait());
    });
  }
}

}  // namespace

Slot make_slot(const Settings& settings) {
  Slot slot;
  slot.interface = settings.network_interface;
  slot.peer_timeout = settings.peer_timeout;
  slot.warn_after = settings.warn_after;
  slot.timeout = settings.timeout;
  return slot;
}

TcpNetwork::Options network_options(const Slot& slot) {
  return {slot.process,    slot.processes, slot.key,          slot.job,
          slot.generation, slot.interface, slot.peer_timeout, nullptr};
}

void meet(const Slot& slot, TcpNetwork& network) {
  if (slot.processes == 1) return;
  slot.process == 0 ? receive(slot, network) : call(slot, network);
}

}  // namespace farandole::tcp
