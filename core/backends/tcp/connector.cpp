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

/// Of a call that was never connected.
Kind kind_of_unconnected(const std::string& problem) {
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

Connector::Connector(const ConnectOptions& terms, std::vector<Address> addresses)
    : terms_(terms), addresses_(std::move(addresses)), pause_(terms.first_pause) {}

void Connector::set_addresses(std::vector<Address> addresses) {
  addresses_ = std::move(addresses);
  next_address_ = 0;
}

Connector::State Connector::advance(Clock::time_point now) {
  if (!call_) {
    if (now < next_ || addresses_.empty()) return State::kWaiting;
    at_ = addresses_[next_address_];
    start_ = now;
    UniqueDescriptor socket = begin_to_connect(at_, terms_.source, terms_.peer_timeout);
    if (!socket) {
      const std::string problem = describe_socket_problem(errno);
      return fail(kind_of_unconnected(problem), problem, now);
    }
    call_.emplace(Handshake::call(std::move(socket), terms_.key, terms_.mine, terms_.called));
  }
  switch (call_->advance()) {
    case Handshake::State::kDone:
      return State::kConnected;
    case Handshake::State::kRefused:
      return fail(Kind::kDeclined, describe_verdict(call_->verdict()), now);
    case Handshake::State::kFailed:
      return fail(call_->is_connected() ? Kind::kBroken : kind_of_unconnected(call_->problem()), call_->problem(), now);
    case Handshake::State::kProven:
    case Handshake::State::kUnderway:
      break;
  }
  const bool is_connected = call_->is_connected();
  if (now - start_ < (is_connected ? terms_.answer_time : terms_.connect_time)) return State::kWaiting;
  return is_connected ? fail(Kind::kSilent, "what listens there does not answer", now)
                      : fail(Kind::kUnreachable, "no answer", now);
}

Connector::State Connector::fail(Failure::Kind kind, std::string text, Clock::time_point now) {
  const bool was_left_waiting = call_ && call_->is_connected() && now - start_ >= terms_.connect_time;
  const Verdict verdict = kind == Kind::kDeclined ? call_->verdict() : Verdict::kAccepted;
  const bool is_there = (kind == Kind::kDeclined && verdict != Verdict::kTaken) || was_left_waiting;
  if (is_there) failing_since_.reset();
  if (!is_there && !failing_since_) failing_since_ = now;
  if (kind != Kind::kNotListening) refused_since_.reset();
  if (kind == Kind::kNotListening && !refused_since_) refused_since_ = now;
  failure_ = {kind, at_, std::move(text), verdict};
  call_.reset();
  next_ = now;
  // An address at which the other end is stays the one to call.
  if (kind != Kind::kDeclined && ++next_address_ < addresses_.size()) return State::kFailed;
  if (kind != Kind::kDeclined) next_address_ = 0;
  next_ += pause_;
  pause_ = std::min(2 * pause_, terms_.longest_pause);
  return State::kFailed;
}

UniqueDescriptor Connector::take_socket() {
  UniqueDescriptor socket = call_->take_socket();
  call_.reset();
  return socket;
}

void Connector::cancel(Clock::time_point next) {
  call_.reset();
  next_ = next;
}

void Connector::add_to(std::vector<pollfd>& sockets) const {
  if (call_) sockets.push_back({call_->descriptor(), call_->awaited_events(), 0});
}

}  // namespace farandole::tcp
