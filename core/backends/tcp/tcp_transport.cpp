// SPDX-License-Identifier: Apache-2.0
#include "tcp/tcp_transport.h"

#include <fmt/format.h>

#include <chrono>
#include <string>

#include "farandole/core/error.h"

namespace farandole::tcp {
namespace {

// Interval at which a waiting transfer checks whether its peer is lost.
constexpr auto kLossInterval = std::chrono::milliseconds(10);
// A process that fails because another process is lost closes its connections, too. This is the time for control
// messages, which name the process that was lost first, to arrive before this process reports its own peer.
constexpr auto kFaultGraceTime = std::chrono::milliseconds(300);

}  // namespace

Link* TcpTransport::link_with(int process, Traffic traffic) {
  return process == network_.process() ? nullptr : &network_.link(process, traffic);
}

void TcpTransport::check_peer(int peer, Traffic traffic, WaitState& wait) {
  network_.advance();
  const auto now = coarse_now();
  if (now < wait.next_check) return;
  // The first test of a transfer makes no check.
  const bool is_first = wait.next_check == Clock::time_point{};
  wait.next_check = now + kLossInterval;
  if (is_first) return;
  const std::string why = network_.loss_reason(topology().rank(peer).process, traffic);
  if (why.empty()) {
    wait.lost_since.reset();
  } else if (!wait.lost_since) {
    wait.lost_since = now;
  } else if (now - *wait.lost_since >= kFaultGraceTime) {
    throw PeerLost(fmt::format("{} is lost: {}", topology().describe(peer), why));
  }
}

}  // namespace farandole::tcp
