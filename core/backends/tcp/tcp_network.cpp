// SPDX-License-Identifier: Apache-2.0
#include "tcp/tcp_network.h"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <mutex>
#include <utility>

#include "farandole/core/error.h"
#include "farandole/internal/log.h"
#include "sockets/open_files.h"

namespace farandole::tcp {
namespace {

// Interval at which a process without attempts in progress accepts connections.
constexpr auto kAcceptInterval = std::chrono::milliseconds(2);
// Limit for connect(2), before the next address is tried. There is no limit for the handshake: a connected peer that
// does not answer is computing, which may take any time.
constexpr auto kConnectTime = std::chrono::seconds(3);
constexpr auto kNoLimit = Clock::duration::max();
constexpr auto kRetryPause = std::chrono::milliseconds(50);
// Time for the peer's own connection to arrive, after the peer has answered kCrossed or kTaken or was accepted.
constexpr auto kCrossedTime = std::chrono::seconds(1);
// A process listens from before its addresses are known until it ends. A process that refuses connections for this
// long, at all its addresses, has therefore ended. A refusal at one address is not enough: another host may have the
// same address, as container bridges do.
constexpr auto kRefusedTime = std::chrono::seconds(2);

void hold_before_fork(TcpNetwork& network) {
  network.fork_mutex().hold();
}
void release_in_parent(TcpNetwork& network) {
  network.fork_mutex().release();
}
void drop_in_child(TcpNetwork& network) {
  network.drop_sockets();
}
using NetworksInChildren = ForkedChildren<TcpNetwork, drop_in_child, hold_before_fork, release_in_parent>;

constexpr std::array kAllTraffic{Traffic::kShort, Traffic::kLong};
static_assert(kAllTraffic.size() == kTraffics);

/// Traffic of the connection; `decide` has checked the value.
Traffic traffic_of(const Introduction& peer) {
  return static_cast<Traffic>(peer.connection);
}

Traffic other_traffic(Traffic traffic) {
  return traffic == Traffic::kShort ? Traffic::kLong : Traffic::kShort;
}

bool is_empty(const Address& address) {
  return address.family == 0;
}

}  // namespace

TcpNetwork::TcpNetwork(Options options)
    : options_(std::move(options)),
      interfaces_(interface_addresses()),
      links_(static_cast<std::size_t>(options_.processes) * kTraffics),
      addresses_(static_cast<std::size_t>(options_.processes)) {
  sockets::ask_for_descriptors(static_cast<int>(links_.size() + Acceptor::kMaxPending));
  const std::vector<Address> chosen = choose_own_addresses(interfaces_, options_.interface);
  if (!options_.interface.empty()) source_ = chosen.front();
  UniqueDescriptor listener = listen_at(source_);
  const std::size_t count = source_ ? 1 : std::min(chosen.size(), ListenAddresses::kMax);
  for (std::size_t i = 0; i < count; ++i) {
    own_addresses_.addresses[i] = chosen[i];
    own_addresses_.addresses[i].port = port_of(listener);
  }
  acceptor_.emplace(std::move(listener), options_.key, introduction(Traffic::kShort), options_.peer_timeout);
  NetworksInChildren::add(this);
}

TcpNetwork::~TcpNetwork() {
  NetworksInChildren::remove(this);
}

Introduction TcpNetwork::introduction(Traffic traffic) const {
  return {options_.job, options_.process,   options_.processes,
          start_,       Purpose::kMessages, static_cast<std::uint16_t>(traffic)};
}

std::string TcpNetwork::name_of(int process) const {
  return options_.name ? options_.name(process) : fmt::format("process {}", process);
}

void TcpNetwork::set_start(std::uint32_t start) {
  const std::lock_guard lock(mutex_);
  start_ = start;
  acceptor_->set_introduction(introduction(Traffic::kShort));
}

void TcpNetwork::set_addresses(int process, const ListenAddresses& addresses) {
  const std::vector<Address> known = by_reach(addresses);
  const std::lock_guard lock(mutex_);
  addresses_[static_cast<std::size_t>(process)] = known;
  for (const Traffic traffic : kAllTraffic) {
    const auto peer = peers_.find({process, traffic});
    if (peer != peers_.end()) peer->second.connector.set_addresses(known);
  }
}

std::vector<Address> TcpNetwork::by_reach(const ListenAddresses& addresses) const {
  std::vector<Address> known(addresses.addresses.begin(), addresses.addresses.end());
  std::erase_if(known, is_empty);
  return order_by_reach(known, interfaces_);
}

Link& TcpNetwork::link(int process, Traffic traffic) {
  if (Link* const known = find(process, traffic)) return *known;
  {
    const std::lock_guard lock(mutex_);
    link_of({process, traffic});
    peer_of({process, traffic}).is_wanted = true;
    is_connecting_.store(true, std::memory_order_relaxed);
  }
  advance();
  return *find(process, traffic);
}

/// Returns the peer; adds the peer if necessary.
TcpNetwork::Peer& TcpNetwork::peer_of(PeerId id) {
  if (const auto known = peers_.find(id); known != peers_.end()) return known->second;
  const ConnectOptions options{options_.key,
                               introduction(id.traffic),
                               id.process,
                               source_,
                               options_.peer_timeout,
                               kConnectTime,
                               kNoLimit,
                               kRetryPause,
                               kRetryPause};
  const std::vector<Address>& addresses = addresses_[static_cast<std::size_t>(id.process)];
  return peers_.emplace(id, Peer{Connector(options, addresses)}).first->second;
}

/// Returns the link; makes the link if necessary.
Link& TcpNetwork::link_of(PeerId id) {
  if (Link* const known = find(id.process, id.traffic)) return *known;
  owned_links_.push_back(std::make_unique<Link>(UniqueDescriptor(), name_of(id.process)));
  links_[link_index(id)].store(owned_links_.back().get(), std::memory_order_release);
  return *owned_links_.back();
}

bool TcpNetwork::is_connected(int process, Traffic traffic) {
  const std::lock_guard lock(mutex_);
  const auto found = peers_.find({process, traffic});
  return found != peers_.end() && found->second.is_connected;
}

bool TcpNetwork::is_due() {
  if (is_connecting_.load(std::memory_order_relaxed)) return true;
  const Clock::rep now = coarse_now().time_since_epoch().count();
  if (now < next_check_.load(std::memory_order_relaxed)) return false;
  next_check_.store(now + Clock::duration(kAcceptInterval).count(), std::memory_order_relaxed);
  return true;
}

void TcpNetwork::advance() {
  if (!is_due()) return;
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock) return;
  acceptor_->advance([this](const Introduction& peer) { return decide(peer); },
                     [this](const Introduction& peer, UniqueDescriptor socket) {
                       connect({peer.process, traffic_of(peer)}, std::move(socket));
                     });
  strangers_.store(acceptor_->strangers(), std::memory_order_relaxed);
  const auto now = Clock::now();
  bool is_connecting = acceptor_->has_new(now);
  for (auto& [id, peer] : peers_) {
    if (!peer.is_wanted || peer.is_connected || !peer.lost.empty()) continue;
    advance_connector(id, peer, now);
    is_connecting = is_connecting || !peer.is_connected;
  }
  is_connecting_.store(is_connecting, std::memory_order_relaxed);
  // A rank tests only transfers of the peers that it waits for. Messages to other peers may still wait for space in a
  // socket.
  for (const auto& link : owned_links_) link->send_waiting();
}

/// Advances the attempts of this process to connect to the peer.
void TcpNetwork::advance_connector(PeerId id, Peer& peer, Clock::time_point now) {
  switch (peer.connector.advance(now)) {
    case Connector::State::kWaiting:
      return;
    case Connector::State::kConnected:
      connect(id, peer.connector.take_socket());
      return;
    case Connector::State::kFailed:
      break;
  }
  const Connector::Failure& failure = *peer.connector.failure();
  log(LogLevel::kDebug, fmt::format("calling {} at {}", name_of(id.process), failure.describe()));
  // The peer's own connection arrives soon, or has arrived.
  if (failure.kind == Connector::Failure::Kind::kDeclined) peer.connector.cancel(now + kCrossedTime);
  check_for_loss(id, peer, now);
}

void TcpNetwork::check_for_loss(PeerId id, Peer& peer, Clock::time_point now) {
  if (!peer.connector.failing_since()) return;
  const Connector::Failure& failure = *peer.connector.failure();
  const auto failing = now - *peer.connector.failing_since();
  const auto& refused_since = peer.connector.refused_since();
  if (refused_since && now - *refused_since >= kRefusedTime) {
    peer.lost = fmt::format("it does not listen any more ({})", failure.describe());
  } else if (failing >= options_.peer_timeout) {
    peer.lost = fmt::format("no connection could be made within {} s (FARANDOLE_PEER_TIMEOUT): {}",
                            options_.peer_timeout.count(), failure.describe());
    peer.is_out_of_reach = true;
  }
  if (!peer.lost.empty()) log(LogLevel::kDebug, fmt::format("{} is lost: {}", name_of(id.process), peer.lost));
}

Verdict TcpNetwork::decide(const Introduction& claims) {
  if (claims.processes != options_.processes || claims.process < 0 || claims.process >= options_.processes ||
      claims.process == options_.process || claims.connection >= kTraffics) {
    return Verdict::kMisfit;
  }
  Peer& peer = peer_of({claims.process, traffic_of(claims)});
  if (peer.is_connected) return Verdict::kTaken;
  // Simultaneous connect: reject only if this process's own attempt is established. An attempt that cannot be
  // established, as in a network that allows connections in one direction only, does not count.
  if (peer.connector.is_established() && options_.process < claims.process) return Verdict::kCrossed;
  // From here on only this connection can become the connection of the two processes, unless the peer cancels.
  peer.connector.cancel(Clock::now() + kCrossedTime);
  return Verdict::kAccepted;
}

void TcpNetwork::connect(PeerId id, UniqueDescriptor socket) {
  Peer& peer = peer_of(id);
  if (peer.is_connected) return;
  peer.is_connected = true;
  peer.connector.cancel({});
  if (id.traffic == Traffic::kShort) set_interactive(socket.get());
  link_of(id).attach(std::move(socket));
  connections_[static_cast<std::size_t>(id.traffic)].fetch_add(1, std::memory_order_relaxed);
  log(LogLevel::kDebug, fmt::format("connected with {}; {}", name_of(id.process), describe()));
}

std::string TcpNetwork::loss_reason(int process, Traffic traffic) {
  Link* const link = find(process, traffic);
  if (link != nullptr && link->is_closed()) return link->end_reason();
  // The connection reports its own end, after everything that was sent over it.
  if (is_connected(process, traffic)) return why_peer_lost({process, traffic});
  Link* const other = find(process, other_traffic(traffic));
  if (other != nullptr && other->is_closed()) return other->end_reason();
  return why_peer_lost({process, traffic});
}

std::string TcpNetwork::unreachable_reason(int process) {
  Link* const link = find(process);
  if (link != nullptr && link->is_closed()) return link->has_timed_out() ? link->end_reason() : std::string();
  const std::string why = why_peer_lost({process, Traffic::kShort});
  const std::lock_guard lock(mutex_);
  const auto found = peers_.find({process, Traffic::kShort});
  return found != peers_.end() && (found->second.is_connected || found->second.is_out_of_reach) ? why : std::string();
}

/// Returns why the peer is lost; empty while it is not. Does not check whether the connection has ended.
std::string TcpNetwork::why_peer_lost(PeerId id) {
  Link* const link = find(id.process, id.traffic);
  const std::lock_guard lock(mutex_);
  const auto found = peers_.find(id);
  if (found == peers_.end()) return {};
  Peer& peer = found->second;
  if (peer.is_connected && peer.silence.is_silent(link->descriptor(), options_.peer_timeout)) {
    return fmt::format("nothing came from its host for {} s (FARANDOLE_PEER_TIMEOUT)", options_.peer_timeout.count());
  }
  return peer.lost;
}

std::string TcpNetwork::connect_failure(int process) {
  const std::lock_guard lock(mutex_);
  const auto found = peers_.find({process, Traffic::kShort});
  if (found == peers_.end() || found->second.is_connected) return {};
  const Peer& peer = found->second;
  if (!peer.lost.empty()) return peer.lost;
  return peer.connector.failure() ? peer.connector.failure()->describe() : "it does not answer";
}

void TcpNetwork::rest(int milliseconds) {
  std::vector<pollfd> sockets;
  {
    const std::lock_guard lock(mutex_);
    acceptor_->add_to(sockets);
    for (const auto& [id, peer] : peers_) {
      peer.connector.add_to(sockets);
      if (peer.is_connected) sockets.push_back({find(id.process, id.traffic)->descriptor(), POLLIN, 0});
    }
  }
  ::poll(sockets.data(), sockets.size(), milliseconds);
}

std::string TcpNetwork::describe() const {
  std::string text = fmt::format("connections: {} of {} peers", connections(), options_.processes - 1);
  if (const int more = connections(Traffic::kLong); more > 0) text += fmt::format(", {} for long vectors", more);
  return text;
}

void TcpNetwork::drop_sockets() {
  // False: another thread of the parent held the mutex at the fork, and the members may be inconsistent; leave them
  // alone.
  if (!mutex_.release()) return;
  acceptor_->drop_sockets();
  for (auto& [id, peer] : peers_) peer.connector.cancel({});
  for (const auto& link : owned_links_) link->drop_socket();
}

}  // namespace farandole::tcp
