// SPDX-License-Identifier: Apache-2.0
#include "tcp/rendezvous_client.h"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <utility>

#include "farandole/core/error.h"
#include "sockets/binomial_tree.h"
#include "sockets/frame.h"

namespace farandole::tcp::rendezvous {
namespace {

// Nothing announces that process 0 has begun to listen, so attempts are repeated: soon at first, then less often.
constexpr auto kFirstPause = std::chrono::milliseconds(10);
constexpr auto kMaxPause = std::chrono::milliseconds(500);
// Limit for the kernel, or for a program that listens at the address, to answer an attempt.
constexpr auto kAnswerTime = std::chrono::seconds(5);
// Interval of name lookups: the name of the host may become known after this process has started.
constexpr auto kRetryLookupInterval = std::chrono::seconds(1);
constexpr auto kLookupInterval = std::chrono::seconds(15);

std::string describe_failure(const Connector::Failure& failure) {
  return failure.describe() + (failure.kind == Connector::Failure::Kind::kBroken
                                   ? " (a program of another job listens there, or one with another key)"
                                   : "");
}

/// Ranks how informative the last failure is about process 0. A program that fails the handshake may be process 0 with
/// another key. A silent program is usually torchrun's store, at the first port.
int informativeness(const Connector& connector) {
  using Kind = Connector::Failure::Kind;
  if (!connector.failure()) return 0;
  if (connector.failure()->kind == Kind::kNotListening) return 1;
  return connector.failure()->kind == Kind::kBroken ? 3 : 2;
}

}  // namespace

Client::Client(const Slot& slot, TcpNetwork& network, const Request& request, AddressSource find_addresses)
    : slot_(slot), network_(network), request_(request), find_addresses_(std::move(find_addresses)) {}

bool Client::advance() {
  if (link_) return receive_answer();
  const auto now = Clock::now();
  look_up_addresses(now);
  for (Connector& connector : connectors_) {
    if (connector.advance(now) != Connector::State::kConnected) continue;
    send_request(connector);
    return receive_answer();
  }
  return false;
}

/// Looks up the addresses, and starts a connector for each new address. Existing connectors continue.
void Client::look_up_addresses(Clock::time_point now) {
  if (now < next_lookup_) return;
  const Introduction introduction{slot_.job, slot_.process, slot_.processes, /*start=*/0, Purpose::kRendezvous};
  const ConnectOptions options{slot_.key,   introduction, /*called=*/0, network_.source(), slot_.peer_timeout,
                               kAnswerTime, kAnswerTime,  kFirstPause,  kMaxPause};
  std::string problem;
  for (const Address& at : find_addresses_(problem)) {
    const auto is_there = [&](const Connector& connector) { return connector.addresses().front() == at; };
    if (std::any_of(connectors_.begin(), connectors_.end(), is_there)) continue;
    connectors_.emplace_back(options, std::vector{at});
  }
  problem_ = std::move(problem);
  next_lookup_ = now + (connectors_.empty() ? kRetryLookupInterval : kLookupInterval);
}

void Client::send_request(Connector& connector) {
  address_ = connector.addresses().front();
  link_ = std::make_unique<sockets::Link>(connector.take_socket(), "process 0", kept_);
  link_->post(kRequest, &request_, sizeof request_);
  connectors_.clear();
}

/// Reads the messages of process 0. Returns true if the answer is complete.
bool Client::receive_answer() {
  if (const auto refusal = link_->take(kRefusal)) sockets::throw_encoded_error(*refusal, "process 0");
  if (const auto bytes = link_->take(kNeighbours)) {
    const sockets::BinomialTree tree(slot_.process, slot_.processes);
    network_.set_start(parse_start(link_->take(kStart)));
    for (const Neighbour& each : parse_neighbours(*bytes, tree.neighbours())) {
      network_.set_addresses(each.process, each.addresses);
    }
    return true;
  }
  while (const auto missing = link_->take(kMissing)) {
    missing_text_.assign(reinterpret_cast<const char*>(missing->data()), missing->size());
  }
  if (!link_->is_closed()) return false;
  // A last message of process 0 may have arrived meanwhile.
  constexpr sockets::Key kAll = ~sockets::Key{0};
  if (link_->has_arrived(kRefusal, kAll) || link_->has_arrived(kNeighbours, kAll)) return false;
  throw PeerLost(fmt::format(
      "joining the job: process 0 at {} has gone before all had met ({}; {}); its own output may say why",
      to_text(address_), link_->end_reason(), missing_text_.empty() ? "no process was missing" : missing_text_));
}

std::string Client::describe_wait() const {
  if (link_ && !missing_text_.empty()) return missing_text_;
  if (link_) return fmt::format("process 0 at {} says no more", to_text(address_));
  if (connectors_.empty()) return problem_;
  const auto says_less = [](const Connector& a, const Connector& b) { return informativeness(a) < informativeness(b); };
  const Connector& connector = *std::max_element(connectors_.begin(), connectors_.end(), says_less);
  const bool is_answered = connector.failure() && connector.failure()->kind == Connector::Failure::Kind::kBroken;
  const std::string causes =
      slot_.rendezvous.empty() || is_answered
          ? ""
          : fmt::format("; it has not started, runs on another host, or has met another process {} before",
                        slot_.process);
  return fmt::format(
      "process 0 does not answer at {}{}: {}{}", to_text(connectors_.front().addresses().front()),
      connectors_.size() == 1 ? "" : fmt::format(" and {} more ports and addresses", connectors_.size() - 1),
      connector.failure() ? describe_failure(*connector.failure()) : "no answer", causes);
}

void Client::add_to(std::vector<pollfd>& sockets) const {
  if (link_) sockets.push_back({link_->descriptor(), POLLIN, 0});
  for (const Connector& connector : connectors_) connector.add_to(sockets);
}

}  // namespace farandole::tcp::rendezvous
