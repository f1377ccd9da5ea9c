// SPDX-License-Identifier: Apache-2.0
#include "messages/hierarchy.h"

#include <algorithm>
#include <map>

namespace farandole {

std::optional<Hierarchy> Hierarchy::of(const Group& group) {
  std::map<int, std::vector<int>> by_host;  // members, in the communicator's order
  bool all_share = true;
  for (int index = 0; index < group.size(); ++index) {
    by_host[group.host_of(index)].push_back(group.member(index));
    all_share = all_share && group.shares_memory(index);
  }
  const std::size_t most = std::max_element(by_host.begin(), by_host.end(), [](const auto& a, const auto& b) {
                             return a.second.size() < b.second.size();
                           })->second.size();
  if (by_host.size() < 2 || most < 2 || !all_share) return std::nullopt;

  Hierarchy hierarchy;
  hierarchy.hosts = static_cast<int>(by_host.size());
  const int self = group.member(group.rank);
  const std::vector<int>& here = by_host[group.host_of(group.rank)];
  hierarchy.local_rank = static_cast<int>(std::find(here.begin(), here.end(), self) - here.begin());
  hierarchy.local_size = static_cast<int>(here.size());
  hierarchy.is_leader = hierarchy.local_rank == 0;
  hierarchy.equal =
      std::all_of(by_host.begin(), by_host.end(), [&](const auto& host) { return host.second.size() == most; });
  hierarchy.leaders.endpoint = group.endpoint;
  hierarchy.leaders.id = group.id;
  hierarchy.leaders.transport = group.transport;
  hierarchy.leaders.rank = -1;
  hierarchy.across = hierarchy.leaders;
  for (const auto& [host, members] : by_host) {
    if (members.front() == self) hierarchy.leaders.rank = hierarchy.leaders.size();
    hierarchy.leaders.members.push_back(members.front());
    if (!hierarchy.equal) continue;
    const int counterpart = members[static_cast<std::size_t>(hierarchy.local_rank)];
    if (counterpart == self) hierarchy.across.rank = hierarchy.across.size();
    hierarchy.across.members.push_back(counterpart);
  }
  return hierarchy;
}

}  // namespace farandole
