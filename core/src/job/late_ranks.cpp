// SPDX-License-Identifier: Apache-2.0
#include "farandole/internal/late_ranks.h"

#include "job/job.h"

namespace farandole {

LateRanks::LateRanks(Job& job, int rank) : job_(job), rank_(rank), entered_(kMaxCommunicators) {}

std::uint64_t LateRanks::entered(std::uint32_t communicator) const {
  return communicator < kMaxCommunicators ? entered_[communicator].load(std::memory_order_relaxed) : 0;
}

void LateRanks::ask(std::uint16_t communicator, std::uint64_t sequence, std::span<const int> awaited,
                    std::span<const int> others) {
  job_.peers().ask(rank_, communicator, sequence, awaited, others);
}

std::string LateRanks::describe_missing(std::uint16_t communicator, std::uint64_t sequence,
                                        std::span<const int> members) const {
  return job_.peers().stragglers().describe_missing(communicator, sequence, members);
}

void LateRanks::search_cycle() {
  job_.peers().search_cycle(rank_);
}

void LateRanks::set_left(bool left) {
  if (job_.fault().is_forked_child()) return;
  job_.peers().stragglers().set_left(rank_, left);
  job_.ring_all();
}

bool LateRanks::has_left(int rank, Seconds ago) const {
  return job_.peers().stragglers().has_left(rank, ago);
}

}  // namespace farandole
