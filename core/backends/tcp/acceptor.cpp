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

constexpr auto kBetweenLines = std::chrono::minutes(1);
constexpr auto kNew = std::chrono::milliseconds(50);

}  // namespace

Acceptor::Acceptor(UniqueDescriptor listener, const JobKey& key, const Introduction& mine, Seconds peer_timeout)
    : listener_(std::move(listener)), key_(key), mine_(mine), peer_timeout_(peer_timeout) {}

void Acceptor::advance(const Decide& decide, const Adopt& adopt) {
  accept();
  for (auto each = handshakes_.begin(); each != handshakes_.end();) {
    each = is_over(*each, decide, adopt) ? handshakes_.erase(each) : std::next(each);
  }
}

bool Acceptor::has_new(Clock::time_point now) const {
  return !handshakes_.empty() && now - handshakes_.back().start() < kNew;
}

void Acceptor::accept() {
  // At most as many as may wait here, so that a flood of callers can not keep this process.
  for (std::size_t i = 0; i < most(); ++i) {
    UniqueDescriptor socket = accept_caller(listener_, peer_timeout_);
    if (!socket) return look_why_none(errno);
    if (handshakes_.size() >= most()) {
      const auto oldest =
          std::find_if(handshakes_.begin(), handshakes_.end(), [](const Handshake& each) { return !each.is_proven(); });
      if (oldest == handshakes_.end()) return;
      handshakes_.erase(oldest);
      refuse("a caller that had not proved yet to be of the job, to make room for later ones");
    }
    handshakes_.push_back(Handshake::answer(std::move(socket), key_, mine_));
  }
}

/// True if nothing is left to do for it.
bool Acceptor::is_over(Handshake& handshake, const Decide& decide, const Adopt& adopt) {
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
      if (handshake.is_stranger()) refuse(handshake.problem());
      return true;
    case Handshake::State::kProven:
    case Handshake::State::kUnderway:
      break;
  }
  if (!handshake.is_overdue(Clock::now())) return false;
  refuse("a caller that has not proved in time to be of the job");
  return true;
}

/// What calls meanwhile is answered once there is room; until then a caller can not tell this process from one that
/// computes.
void Acceptor::look_why_none(int error) {
  if ((error != EMFILE && error != ENFILE) || !may_log()) return;
  log(LogLevel::kWarning,
      fmt::format("process {}: calls of other processes wait, because this one has too many open files ({}); raise the "
                  "limit (ulimit -n), or close files",
                  mine_.process, std::generic_category().message(error)));
}

bool Acceptor::may_log() {
  const auto now = Clock::now();
  if (now < next_line_) return false;
  next_line_ = now + kBetweenLines;
  return true;
}

void Acceptor::refuse(std::string_view why) {
  ++strangers_;
  if (!may_log()) return;
  log(LogLevel::kWarning, fmt::format("process {}: a connection that is none of the job's is refused ({} so far): {}",
                                      mine_.process, strangers_, why));
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
