// SPDX-License-Identifier: Apache-2.0
#include "device/device_order.h"

#include <algorithm>
#include <iterator>
#include <tuple>

namespace farandole {

void DeviceOrder::add(Ticket ticket) {
  pending_.emplace(ticket, Entry{});
}

std::optional<DeviceOrder::Time> DeviceOrder::propose(Ticket ticket) {
  const auto own = pending_.find(ticket);
  if (own != pending_.begin()) {
    const auto& [other, entry] = *std::prev(own);
    if (other.communicator == ticket.communicator && entry.state == State::kCalled) return std::nullopt;
  }
  own->second = {State::kProposed, ++latest_};
  return latest_;
}

void DeviceOrder::agree(Ticket ticket, Time agreed) {
  latest_ = std::max(latest_, agreed);
  pending_.at(ticket) = {State::kAgreed, agreed};
}

bool DeviceOrder::is_next(Ticket ticket) const {
  const Entry& own = pending_.at(ticket);
  if (own.state != State::kAgreed) return false;
  // Every rank proposes in the order of calls, so later operations of a communicator get later times: only the first
  // pending operation of each communicator counts. Waiting for later operations could deadlock: a communicator runs
  // only a few operations together, so later operations may be agreed on only after this operation has run.
  const Ticket* previous = nullptr;
  for (const auto& [other, entry] : pending_) {
    const bool is_first = previous == nullptr || previous->communicator != other.communicator;
    previous = &other;
    if (entry.state == State::kCalled) continue;
    if (is_first && std::tie(entry.time, other) < std::tie(own.time, ticket)) return false;
  }
  return true;
}

}  // namespace farandole
