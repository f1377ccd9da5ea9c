// SPDX-License-Identifier: Apache-2.0
#include "messages/hierarchy.h"

#include <algorithm>
#include <map>

namespace farandole {
namespace {

bool has_fewer_ranks(const std::vector<int>& a, const std::vector<int>& b) {
  return a.size() < b.size();
}

}  // namespace

int Hierarchy::min_local_size() const {
  return static_cast<int>(std::min_element(hosts.begin(), hosts.end(), has_fewer_ranks)->size());
}

int Hierarchy::max_local_size() const {
  return static_cast<int>(std::max_element(hosts.begin(), hosts.end(), has_fewer_ranks)->size());
}

bool Hierarchy::is_regular() const {
  const std::size_t each = hosts.front().size();
  return std::all_of(hosts.begin(), hosts.end(), [each](const std::vector<int>& ranks) {
    return ranks.size() == each && ranks.back() - ranks.front() == static_cast<int>(each) - 1;
  });
}

bool Hierarchy::is_round_robin() const {
  const auto count = static_cast<std::size_t>(host_count());
  const std::size_t each = hosts.front().size();
  for (std::size_t index = 0; index < count; ++index) {
    if (hosts[index].size() != each) return false;
    for (std::size_t place = 0; place < each; ++place) {
      if (hosts[index][place] != static_cast<int>(place * count + index)) return false;
    }
  }
  return true;
}

Hierarchy::Place Hierarchy::place_of(int rank) const {
  for (int index = 0; index < host_count(); ++index) {
    const std::vector<int>& ranks = ranks_of(index);
    const auto found = std::lower_bound(ranks.begin(), ranks.end(), rank);
    if (found != ranks.end() && *found == rank) return {index, static_cast<int>(found - ranks.begin())};
  }
  return {-1, -1};
}

Hierarchy Hierarchy::of(const std::vector<int>& host_of_rank, int rank) {
  std::map<int, std::vector<int>> by_host;
  for (std::size_t index = 0; index < host_of_rank.size(); ++index) {
    by_host[host_of_rank[index]].push_back(static_cast<int>(index));
  }
  Hierarchy hierarchy;
  for (auto& [number, ranks] : by_host) hierarchy.hosts.push_back(std::move(ranks));
  const Place own = hierarchy.place_of(rank);
  hierarchy.host = own.host;
  hierarchy.local = own.local;
  return hierarchy;
}

Hierarchy Hierarchy::by_host(const Group& group) {
  std::vector<int> host_of_rank;
  for (int index = 0; index < group.size(); ++index) host_of_rank.push_back(group.host_of(index));
  return of(host_of_rank, group.rank);
}

std::optional<Hierarchy> Hierarchy::of(const Group& group) {
  bool all_share = true;
  for (int index = 0; index < group.size(); ++index) all_share = all_share && group.shares_memory(index);
  Hierarchy hierarchy = by_host(group);
  const int hosts = hierarchy.host_count();
  if (hosts < 2 || hosts == group.size() || !all_share) return std::nullopt;
  return hierarchy;
}

Group group_across(const Group& group, const std::vector<int>& ranks) {
  Group across;
  across.endpoint = group.endpoint;
  across.id = group.id;
  across.transport = group.transport;
  across.rank = -1;
  for (const int rank : ranks) {
    if (rank == group.rank) across.rank = across.size();
    across.members.push_back(group.member(rank));
  }
  return across;
}

}  // namespace farandole
