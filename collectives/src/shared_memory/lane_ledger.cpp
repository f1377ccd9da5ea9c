// SPDX-License-Identifier: Apache-2.0
#include "shared_memory/lane_ledger.h"

namespace farandole {

void LaneLedger::withdraw(std::uint64_t number) {
  const int lane = lane_of(number);
  if (completion_.in_flight(lane) / kNumbersPerCollective != number / kNumbersPerCollective) return;
  completion_.withdraw(lane);
  publish_completed();
}

void LaneLedger::end(int lane, std::uint64_t next) {
  completion_.end(lane, next);
  publish_completed();
}

int LaneLedger::first_behind(std::uint64_t number) {
  for (int local = 0; local < static_cast<int>(ranks_.size()); ++local) {
    Rank& peer = ranks_[static_cast<std::size_t>(local)];
    if (local == rank_ || peer.known >= number) continue;
    peer.known = peer.word->load(std::memory_order_acquire);
    if (peer.known < number) return local;
  }
  return -1;
}

void LaneLedger::publish_completed() const {
  std::atomic<std::uint64_t>* const own = ranks_[static_cast<std::size_t>(rank_)].word;
  // Null if an operation is given up before this rank has connected.
  if (own != nullptr) own->store(completed(), std::memory_order_release);
}

}  // namespace farandole
