// SPDX-License-Identifier: Apache-2.0
#include "tcp/acceptor.h"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <iterator>
#include <system_error>
#include <utility>

#include "farandole/internal/log.h"
#include "tcp/stream.h"

namespace farandole::tcp {
namespace {

constexpr auto kLogInterval = std::chrono::minutes(1);
constexpr auto kRecent = std::chrono::milliseconds(50);

}  // namespace

Acceptor::Acceptor(UniqueDescriptor listener, const JobKey& key, const Introduction& own, Seconds peer_timeout)
    : listener_(std::move(listener)), key_(key), introduction_(own), peer_timeout_(peer_timeout) {}

void Acceptor::advance(const Decide& decide, const Adopt& adopt) {
  accept();
  for (auto each = handshakes_.begin(); each != handshakes_.end();) {
    each = advance_handshake(*each, decide, adopt) ? handshakes_.erase(each) : std::next(each);
  }
}

bool Acceptor::has_new(Clock::time_point now) const {
  return !handshakes_.empty() && now - handshakes_.back().start() < kRecent;
}

void Acceptor::accept() {
  // Accepts a bounded number of connections, so that a flood of connections cannot keep this process here.
  for (std::size_t i = 0; i < max_pending(); ++i) {
    UniqueDescriptor socket = accept_connection(listener_, peer_timeout_);
    if (!socket) return warn_if_out_of_descriptors(errno);
    if (handshakes_.size() >= max_pending()) {
      const auto oldest =
          std::find_if(handshakes_.begin(), handshakes_.end(), [](const Handshake& each) { return !each.is_proven(); });
      if (oldest == handshakes_.end()) return;
      handshakes_.erase(oldest);
      count_stranger("a caller that had not proved yet to be of the job, to make room for later ones");
    }
    handshakes_.push_back(Handshake::respond(std::move(socket), key_, introduction_));
  }
}

/// Advances a handshake. Returns true if the handshake has ended and can be erased.
bool Acceptor::advance_handshake(Handshake& handshake, const Decide& decide, const Adopt& adopt) {
  if (handshake.advance() == Handshake::State::kProven) {
    handshake.decide(decide(handshake.peer()));
    handshake.advance();
  }
  switch (handshake.state()) {
    case Handshake::State::kDone:
      adopt(handshake.peer(), handshake.take_socket());
      return true;
    case Handshake::State::kRefused:
      return true;
    case Handshake::State::kFailed:
      if (handshake.is_stranger()) count_stranger(handshake.problem());
      return true;
    case Handshake::State::kProven:
    case Handshake::State::kUnderway:
      break;
  }
  if (!handshake.is_overdue(Clock::now())) return false;
  count_stranger("a caller that has not proved in time to be of the job");
  return true;
}

/// Warns if accept failed for lack of descriptors. The connections wait in the queue of the listening socket until
/// descriptors are free; until then the connecting process cannot distinguish this process from a process that
/// computes.
void Acceptor::warn_if_out_of_descriptors(int error) {
  if ((error != EMFILE && error != ENFILE) || !may_log()) return;
  log(LogLevel::kWarning,
      fmt::format("process {}: calls of other processes wait, because this one has too many open files ({}); raise the "
                  "limit (ulimit -n), or close files",
                  introduction_.process, std::generic_category().message(error)));
}

bool Acceptor::may_log() {
  const auto now = Clock::now();
  if (now < next_log_) return false;
  next_log_ = now + kLogInterval;
  return true;
}

void Acceptor::count_stranger(std::string_view why) {
  ++strangers_;
  if (!may_log()) return;
  log(LogLevel::kWarning, fmt::format("process {}: a connection that is none of the job's is refused ({} so far): {}",
                                      introduction_.process, strangers_, why));
}

void Acceptor::add_to(std::vector<pollfd>& sockets) const {
  sockets.push_back({listener_.get(), POLLIN, 0});
  for (const Handshake& each : handshakes_) sockets.push_back({each.descriptor(), each.awaited_events(), 0});
}

void Acceptor::drop_sockets() {
  const UniqueDescriptor dropped(std::move(listener_));
  handshakes_.clear();
}

}  // namespace farandole::tcp
