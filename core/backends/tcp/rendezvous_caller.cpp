// SPDX-License-Identifier: Apache-2.0
#include "tcp/rendezvous_caller.h"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

#include "farandole/core/error.h"
#include "sockets/binomial_tree.h"
#include "sockets/error_message.h"
#include "tcp/stream.h"

namespace farandole::tcp::rendezvous {
namespace {

// Nothing tells that process 0 has begun to listen: it is called again, first soon, then not so often.
constexpr auto kFirstPause = std::chrono::milliseconds(10);
constexpr auto kLongestPause = std::chrono::milliseconds(500);
// How long an address may leave a call without an answer of its kernel, or of a program that listens there.
constexpr auto kAnswerTime = std::chrono::seconds(5);
// The name of a host may become known later than this process starts.
constexpr auto kNextLook = std::chrono::seconds(1);
constexpr auto kLaterLook = std::chrono::seconds(15);

}  // namespace

Caller::Caller(const Slot& slot, TcpNetwork& network, const Request& request, Places places)
    : slot_(slot), network_(network), request_(request), places_(std::move(places)) {}

bool Caller::advance() {
  if (link_) return hear();
  const auto now = Clock::now();
  look_for_places(now);
  for (Door& door : doors_) {
    UniqueDescriptor socket = go_on(door, now);
    if (!socket) continue;
    enter(door, std::move(socket));
    return hear();
  }
  return false;
}

/// Adds addresses that are new; those that are being called stay.
void Caller::look_for_places(Clock::time_point now) {
  if (now < next_look_) return;
  std::string problem;
  for (const Address& at : places_(problem)) {
    const auto is_there = [&](const Door& door) { return door.at == at; };
    if (std::any_of(doors_.begin(), doors_.end(), is_there)) continue;
    Door& door = doors_.emplace_back();
    door.at = at;
    door.pause = kFirstPause;
  }
  problem_ = std::move(problem);
  next_look_ = now + (doors_.empty() ? kNextLook : kLaterLook);
}

/// Returns the connection with process 0 once there is one.
UniqueDescriptor Caller::go_on(Door& door, Clock::time_point now) {
  if (!door.call) {
    if (now < door.next) return {};
    UniqueDescriptor socket = begin_to_connect(door.at, network_.source(), slot_.peer_timeout);
    if (!socket) {
      fail(door, std::generic_category().message(errno), now);
      return {};
    }
    const Introduction mine{slot_.job, slot_.process, slot_.processes, slot_.generation, Purpose::kRendezvous};
    door.call.emplace(Handshake::call(std::move(socket), slot_.key, mine, /*called=*/0));
    door.start = now;
  }
  switch (door.call->advance()) {
    case Handshake::State::kDone:
      return door.call->take_socket();
    case Handshake::State::kRefused:
      fail(door, "process 0 refuses the call", now);
      return {};
    case Handshake::State::kFailed:
      fail(door,
           door.call->is_connected()
               ? fmt::format("{} (a program of another job listens there, or one with another key)",
                             door.call->problem())
               : door.call->problem(),
           now);
      return {};
    case Handshake::State::kProven:
    case Handshake::State::kUnderway:
      break;
  }
  if (now - door.start >= kAnswerTime) {
    fail(door, door.call->is_connected() ? "what listens there does not answer" : "no answer", now);
  }
  return {};
}

void Caller::fail(Door& door, std::string problem, Clock::time_point now) const {
  door.call.reset();
  door.problem = std::move(problem);
  door.next = now + door.pause;
  door.pause = std::min<Clock::duration>(2 * door.pause, kLongestPause);
}

void Caller::enter(Door& door, UniqueDescriptor socket) {
  at_ = door.at;
  link_ = std::make_unique<sockets::Link>(std::move(socket), "process 0", kept_);
  link_->post(kRequest, &request_, sizeof request_);
  doors_.clear();
}

/// What process 0 has said.
bool Caller::hear() {
  if (const auto refusal = link_->take(kRefusal)) sockets::throw_encoded_error(*refusal, "process 0");
  if (const auto bytes = link_->take(kNeighbours)) {
    const sockets::BinomialTree tree(slot_.process, slot_.processes);
    for (const Neighbour& each : parse_neighbours(*bytes, tree.neighbours())) {
      network_.set_addresses(each.process, each.addresses);
    }
    return true;
  }
  while (const auto missing = link_->take(kMissing)) {
    missing_.assign(reinterpret_cast<const char*>(missing->data()), missing->size());
  }
  if (!link_->is_closed()) return false;
  // What process 0 said last may have come since.
  constexpr sockets::Key kAll = ~sockets::Key{0};
  if (link_->has_arrived(kRefusal, kAll) || link_->has_arrived(kNeighbours, kAll)) return false;
  throw PeerLost(
      fmt::format("joining the job: process 0 at {} has gone before all had met ({}; {}); its own output may "
                  "say why",
                  to_text(at_), link_->end_reason(), missing_.empty() ? "nobody was missing" : missing_));
}

std::string Caller::describe_wait() const {
  if (link_) return missing_.empty() ? fmt::format("process 0 at {} says no more", to_text(at_)) : missing_;
  if (doors_.empty()) return problem_;
  // A port at which no program listens tells less than one that has answered.
  const std::string refused = std::generic_category().message(ECONNREFUSED);
  const auto telling = std::find_if(doors_.begin(), doors_.end(),
                                    [&](const Door& door) { return !door.problem.empty() && door.problem != refused; });
  const Door& door = telling != doors_.end() ? *telling : doors_.front();
  return fmt::format("process 0 does not answer at {}{}: {}", to_text(doors_.front().at),
                     doors_.size() == 1 ? "" : fmt::format(" and {} more ports and addresses", doors_.size() - 1),
                     door.problem.empty() ? "no answer" : fmt::format("{}: {}", to_text(door.at), door.problem));
}

void Caller::add_to(std::vector<pollfd>& sockets) const {
  if (link_) sockets.push_back({link_->descriptor(), POLLIN, 0});
  for (const Door& door : doors_) {
    if (door.call) sockets.push_back({door.call->descriptor(), door.call->awaited_events(), 0});
  }
}

}  // namespace farandole::tcp::rendezvous
