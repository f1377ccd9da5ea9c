// SPDX-License-Identifier: Apache-2.0
#include "announced_requests.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <string_view>
#include <utility>

namespace farandole {
namespace {

bool is_complete(const std::vector<Announcement>& by_rank, const std::vector<bool>& joined) {
  std::size_t rank = 0;
  while (rank < by_rank.size() && (by_rank[rank].spec || joined[rank])) ++rank;
  return rank == by_rank.size();
}

/// Returns how the announcements differ; empty if they are equal.
std::string describe_mismatch(const std::vector<Announcement>& by_rank, const std::vector<std::string>& names) {
  std::vector<std::pair<const RequestSpec*, std::vector<std::string_view>>> variants;
  for (std::size_t rank = 0; rank < by_rank.size(); ++rank) {
    const RequestSpec* spec = by_rank[rank].spec.get();
    if (spec == nullptr) continue;
    auto same = std::find_if(variants.begin(), variants.end(), [&](const auto& each) { return *each.first == *spec; });
    if (same == variants.end()) same = variants.emplace(same, spec, std::vector<std::string_view>());
    same->second.push_back(names[rank]);
  }
  if (variants.size() == 1) return {};
  std::string text = "ranks disagree:";
  for (const auto& [spec, ranks] : variants) {
    const std::size_t shown = std::min(ranks.size(), kNamesShown);
    text += fmt::format(" {}{} submitted {};",
                        fmt::join(ranks.begin(), ranks.begin() + static_cast<std::ptrdiff_t>(shown), ", "),
                        ranks.size() > shown ? fmt::format(" and {} more", ranks.size() - shown) : "", describe(*spec));
  }
  return text + " no data was touched";
}

}  // namespace

bool AnnouncedRequests::add(std::size_t rank, const Announcement& announcement, const std::vector<bool>& joined) {
  ByRank& by_rank = by_name_[announcement.spec->name];
  by_rank.resize(joined.size());
  by_rank[rank] = announcement;
  return is_complete(by_rank, joined);
}

std::vector<std::string> AnnouncedRequests::complete(const std::vector<bool>& joined) const {
  std::vector<std::string> names;
  for (const auto& [name, by_rank] : by_name_) {
    if (is_complete(by_rank, joined)) names.push_back(name);
  }
  return names;
}

std::optional<AnnouncedRequests::Settled> AnnouncedRequests::settle(const std::string& name,
                                                                    const std::vector<std::string>& names) {
  const auto found = by_name_.find(name);
  if (found == by_name_.end()) return std::nullopt;
  const ByRank by_rank = std::move(found->second);
  by_name_.erase(found);
  Settled settled;
  for (const Announcement& each : by_rank) {
    if (!settled.spec) settled.spec = each.spec;
    settled.in_step = settled.in_step || each.in_step;
  }
  settled.is_own = by_rank[self_].spec != nullptr;
  settled.mismatch = describe_mismatch(by_rank, names);
  return settled;
}

void AnnouncedRequests::forget(const DropPredicate& drops) {
  for (auto next = by_name_.begin(); next != by_name_.end();) {
    ByRank& by_rank = next->second;
    bool remains = false;
    for (std::size_t rank = 0; rank < by_rank.size(); ++rank) {
      if (by_rank[rank].spec && drops(rank, by_rank[rank])) by_rank[rank] = {};
      remains = remains || by_rank[rank].spec;
    }
    next = remains ? std::next(next) : by_name_.erase(next);
  }
}

std::vector<std::size_t> AnnouncedRequests::missing(const std::string& name, const std::vector<bool>& joined) const {
  std::vector<std::size_t> missing;
  const auto found = by_name_.find(name);
  for (std::size_t rank = 0; found != by_name_.end() && rank < joined.size(); ++rank) {
    if (!found->second[rank].spec && !joined[rank]) missing.push_back(rank);
  }
  return missing;
}

}  // namespace farandole
