// SPDX-License-Identifier: Apache-2.0
#include "deadlock_detector.h"

#include <fmt/format.h>

#include <algorithm>

namespace farandole {

void DeadlockDetector::reset() {
  suspected_.reset();
  idle_unannounced_ = false;
}

bool DeadlockDetector::open() {
  idle_unannounced_ = false;
  confirmed_.clear();
  return suspected_.has_value();
}

void DeadlockDetector::receive(bool all_blocked, bool progress) {
  all_blocked_ = all_blocked;
  progress_ = progress;
}

std::optional<std::string> DeadlockDetector::receive_confirmations(const std::vector<Announcements>& all,
                                                                   const std::vector<bool>& joined,
                                                                   const std::vector<std::string>& names) const {
  bool all_confirm = true;
  std::string waits;
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    const std::vector<std::string>& waits_for = all[rank].waits_for;
    all_confirm = all_confirm && (!waits_for.empty() || joined[rank]);
    if (waits_for.empty()) continue;
    const auto shown = static_cast<std::ptrdiff_t>(std::min(waits_for.size(), kNamesShown));
    waits +=
        fmt::format(" {} for '{}'{};", names[rank], fmt::join(waits_for.begin(), waits_for.begin() + shown, "', '"),
                    waits_for.size() > kNamesShown ? ", …" : "");
  }
  if (!all_confirm || waits.empty() || progress_) return std::nullopt;
  return "every rank waits for a name that its peers have not submitted:" + waits + " no data was touched";
}

void DeadlockDetector::end_negotiation(bool suspected, Time now) {
  suspected_.reset();
  if (suspected) suspected_ = now;
}

}  // namespace farandole
