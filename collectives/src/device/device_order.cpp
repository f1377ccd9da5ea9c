// SPDX-License-Identifier: Apache-2.0
#include "device/device_order.h"

#include <algorithm>
#include <tuple>

namespace farandole {

DeviceOrder::Time DeviceOrder::propose(Ticket ticket) {
  pending_[ticket] = {++latest_, false};
  return latest_;
}

void DeviceOrder::agree(Ticket ticket, Time agreed) {
  latest_ = std::max(latest_, agreed);
  pending_.at(ticket) = {agreed, true};
}

bool DeviceOrder::is_next(Ticket ticket) const {
  const Entry& own = pending_.at(ticket);
  return own.is_agreed && std::all_of(pending_.begin(), pending_.end(), [&](const auto& other) {
           return std::tie(own.time, ticket) <= std::tie(other.second.time, other.first);
         });
}

}  // namespace farandole
