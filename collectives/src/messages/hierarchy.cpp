// SPDX-License-Identifier: Apache-2.0
#include "messages/hierarchy.h"

#include <algorithm>
#include <map>

namespace farandole {

std::optional<TwoLevels> TwoLevels::of(const Group& group) {
  const Topology& topology = group.endpoint->topology();
  std::map<int, std::vector<int>> by_host;  // members, in the communicator's order
  for (const int member : group.members) by_host[topology.rank(member).host_index].push_back(member);
  const std::size_t most = std::max_element(by_host.begin(), by_host.end(), [](const auto& a, const auto& b) {
                             return a.second.size() < b.second.size();
                           })->second.size();
  const bool all_share = std::all_of(by_host.begin(), by_host.end(),
                                     [&](const auto& host) { return group.endpoint->shares_memory(host.first); });
  if (by_host.size() < 2 || most < 2 || !all_share) return std::nullopt;

  TwoLevels levels;
  levels.hosts = static_cast<int>(by_host.size());
  const int self = group.member(group.rank);
  const std::vector<int>& here = by_host[topology.rank(self).host_index];
  levels.local_rank = static_cast<int>(std::find(here.begin(), here.end(), self) - here.begin());
  levels.local_size = static_cast<int>(here.size());
  levels.is_leader = levels.local_rank == 0;
  levels.equal =
      std::all_of(by_host.begin(), by_host.end(), [&](const auto& host) { return host.second.size() == most; });
  levels.leaders.endpoint = group.endpoint;
  levels.leaders.id = group.id;
  levels.leaders.rank = -1;
  levels.across = levels.leaders;
  for (const auto& [host, members] : by_host) {
    if (members.front() == self) levels.leaders.rank = levels.leaders.size();
    levels.leaders.members.push_back(members.front());
    if (!levels.equal) continue;
    const int counterpart = members[static_cast<std::size_t>(levels.local_rank)];
    if (counterpart == self) levels.across.rank = levels.across.size();
    levels.across.members.push_back(counterpart);
  }
  return levels;
}

}  // namespace farandole
