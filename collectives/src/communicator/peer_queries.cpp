// SPDX-License-Identifier: Apache-2.0
#include "communicator/peer_queries.h"

#include <algorithm>
#include <vector>

namespace farandole {

void PeerQueries::ask(const Work::State& work, bool all) const {
  std::vector<int> others;
  if (all) {
    // From the next rank on, so that every rank is asked by equally many.
    others = group_.members;
    std::rotate(others.begin(), others.begin() + group_.rank, others.end());
  }
  group_.endpoint->late_ranks().ask(group_.id, work.sequence, work.operation->waits_for(), others);
}

bool PeerQueries::waits_for_rank_that_left(const Work::State& work) const {
  const std::vector<int> ranks = work.operation->waits_for();
  return std::any_of(ranks.begin(), ranks.end(),
                     [&](int rank) { return group_.endpoint->late_ranks().has_left(rank, kGoodbye); });
}

std::string PeerQueries::describe_missing(const Work::State& work) const {
  return group_.endpoint->late_ranks().describe_missing(group_.id, work.sequence, group_.members);
}

bool PeerQueries::have_started(const ShmContext& host, std::uint64_t sequence) const {
  if (host.group && host.group->peer_has_started_next(LaneLedger::first_number(sequence))) return true;
  if (host.group_of_all() != nullptr) return false;
  const auto lane = static_cast<std::uint8_t>(sequence % kLanes);
  const Transport* asked = nullptr;
  for (int peer = 0; peer < group_.size(); ++peer) {
    if (peer == group_.rank) continue;
    Transport& route = group_.route(peer);
    if (&route == asked) continue;
    asked = &route;
    if (route.has_arrived(group_.id, lane, group_.endpoint->rank())) return true;
  }
  return false;
}

}  // namespace farandole
