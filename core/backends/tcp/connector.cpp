// SPDX-License-Identifier: Apache-2.0
#include "tcp/connector.h"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

#include "tcp/stream.h"

namespace farandole::tcp {
namespace {

using Kind = Connector::Failure::Kind;

std::string refused_text() {
  return std::generic_category().message(ECONNREFUSED);
}

/// Failure kind of an attempt whose connection was never established.
Kind unconnected_kind(const std::string& problem) {
  return problem == refused_text() ? Kind::kNotListening : Kind::kUnreachable;
}

std::string describe_verdict(Verdict verdict) {
  if (verdict == Verdict::kMisfit) return "it has another number of processes";
  return verdict == Verdict::kTaken ? "it says that it has a connection with this process"
                                    : "it calls this process itself";
}

}  // namespace

std::string Connector::Failure::describe() const {
  return fmt::format("{}: {}", to_text(at), text);
}

Connector::Connector(const ConnectOptions& options, std::vector<Address> addresses)
    : options_(options), addresses_(std::move(addresses)), pause_(options.first_pause) {}

void Connector::set_addresses(std::vector<Address> addresses) {
  addresses_ = std::move(addresses);
  next_address_ = 0;
}

Connector::State Connector::advance(Clock::time_point now) {
  if (!handshake_) {
    if (now < next_attempt_ || addresses_.empty()) return State::kWaiting;
    address_ = addresses_[next_address_];
    start_ = now;
    UniqueDescriptor socket = start_connect(address_, options_.source, options_.peer_timeout);
    if (!socket) {
      const std::string problem = describe_socket_problem(errno);
      return fail(unconnected_kind(problem), problem, now);
    }
    handshake_.emplace(
        Handshake::initiate(std::move(socket), options_.key, options_.introduction, options_.target_process));
  }
  switch (handshake_->advance()) {
    case Handshake::State::kDone:
      return State::kConnected;
    case Handshake::State::kRefused:
      return fail(Kind::kDeclined, describe_verdict(handshake_->verdict()), now);
    case Handshake::State::kFailed:
      return fail(handshake_->is_connected() ? Kind::kBroken : unconnected_kind(handshake_->problem()),
                  handshake_->problem(), now);
    case Handshake::State::kProven:
    case Handshake::State::kUnderway:
      break;
  }
  const bool is_connected = handshake_->is_connected();
  if (now - start_ < (is_connected ? options_.answer_timeout : options_.connect_timeout)) return State::kWaiting;
  return is_connected ? fail(Kind::kSilent, "what listens there does not answer", now)
                      : fail(Kind::kUnreachable, "no answer", now);
}

Connector::State Connector::fail(Failure::Kind kind, std::string text, Clock::time_point now) {
  const bool was_left_waiting = handshake_ && handshake_->is_connected() && now - start_ >= options_.connect_timeout;
  const Verdict verdict = kind == Kind::kDeclined ? handshake_->verdict() : Verdict::kAccepted;
  const bool shows_life = (kind == Kind::kDeclined && verdict != Verdict::kTaken) || was_left_waiting;
  if (shows_life) failing_since_.reset();
  if (!shows_life && !failing_since_) failing_since_ = now;
  if (kind != Kind::kNotListening) not_listening_since_.reset();
  if (kind == Kind::kNotListening && !not_listening_since_) not_listening_since_ = now;
  failure_ = {kind, address_, std::move(text), verdict};
  handshake_.reset();
  next_attempt_ = now;
  // The verdict shows that the peer listens at this address: keep the address for the next attempt.
  if (kind != Kind::kDeclined && ++next_address_ < addresses_.size()) return State::kFailed;
  if (kind != Kind::kDeclined) next_address_ = 0;
  next_attempt_ += pause_;
  pause_ = std::min(2 * pause_, options_.max_pause);
  return State::kFailed;
}

UniqueDescriptor Connector::take_socket() {
  UniqueDescriptor socket = handshake_->take_socket();
  handshake_.reset();
  return socket;
}

void Connector::cancel(Clock::time_point next) {
  handshake_.reset();
  next_attempt_ = next;
}

void Connector::add_to(std::vector<pollfd>& sockets) const {
  if (handshake_) sockets.push_back({handshake_->descriptor(), handshake_->awaited_events(), 0});
}

}  // namespace farandole::tcp
