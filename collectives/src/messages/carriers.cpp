// SPDX-License-Identifier: Apache-2.0
#include "messages/carriers.h"

#include <algorithm>
#include <numeric>

namespace farandole {
namespace {

/// Local ranks of the carriers of a host, ascending.
std::vector<int> carriers_of(const HierarchicalQuery& query, const Hierarchy& hierarchy, int host) {
  std::vector<int> locals(static_cast<std::size_t>(query.carriers));
  std::iota(locals.begin(), locals.end(), 0);
  if (!is_rooted(query.collective)) return locals;
  const Hierarchy::Place root = hierarchy.place_of(query.root);
  if (root.host == host) locals.back() = std::max(locals.back(), root.local);
  return locals;
}

/// Number of a local rank as a carrier; -1 if the rank is no carrier.
int carrier_at(const std::vector<int>& locals, int local) {
  const auto found = std::find(locals.begin(), locals.end(), local);
  return found == locals.end() ? -1 : static_cast<int>(found - locals.begin());
}

}  // namespace

Carriers::Carriers(const HierarchicalQuery& query, const Hierarchy& hierarchy)
    : hierarchy_(hierarchy), count_(query.carriers) {
  for (int host = 0; host < hierarchy.host_count(); ++host) {
    const std::vector<int>& locals = locals_.emplace_back(carriers_of(query, hierarchy, host));
    std::vector<std::vector<int>>& assigned = assigned_.emplace_back(static_cast<std::size_t>(count_));
    for (int local = 0; local < hierarchy.local_size(host); ++local) {
      const int own = carrier_at(locals, local);
      const int carrier = own >= 0 ? own : local % count_;
      assigned[static_cast<std::size_t>(carrier)].push_back(hierarchy.ranks_of(host)[static_cast<std::size_t>(local)]);
    }
    all_carry_ = all_carry_ && hierarchy.local_size(host) == count_;
  }
  own_ = carrier_at(locals_[static_cast<std::size_t>(hierarchy.host)], hierarchy.local);
}

int Carriers::local_of(int carrier) const {
  return locals_[static_cast<std::size_t>(hierarchy_.host)][static_cast<std::size_t>(carrier)];
}

const std::vector<int>& Carriers::assigned(int host, int carrier) const {
  return assigned_[static_cast<std::size_t>(host)][static_cast<std::size_t>(carrier)];
}

std::size_t Carriers::assigned_everywhere(int carrier) const {
  std::size_t ranks = 0;
  for (int host = 0; host < hierarchy_.host_count(); ++host) ranks += assigned(host, carrier).size();
  return ranks;
}

std::vector<std::size_t> Carriers::by_local(const std::vector<std::size_t>& by_carrier) const {
  std::vector<std::size_t> counts(static_cast<std::size_t>(hierarchy_.local_size()));
  for (int carrier = 0; carrier < count_; ++carrier) {
    counts[static_cast<std::size_t>(local_of(carrier))] = by_carrier[static_cast<std::size_t>(carrier)];
  }
  return counts;
}

std::vector<int> Carriers::counterparts() const {
  std::vector<int> ranks;
  for (int host = 0; carries() && host < hierarchy_.host_count(); ++host) {
    const int local = locals_[static_cast<std::size_t>(host)][static_cast<std::size_t>(own_)];
    ranks.push_back(hierarchy_.ranks_of(host)[static_cast<std::size_t>(local)]);
  }
  return ranks;
}

SliceLayout::SliceLayout(const HierarchicalQuery& query, int slice) {
  const auto before = [&](std::size_t count, int index) {
    return count * static_cast<std::size_t>(index) / static_cast<std::size_t>(query.slices);
  };
  std::size_t first = 0;
  for (const std::size_t count : query.counts) {
    skipped_.push_back(before(count, slice));
    counts_.push_back(before(count, slice + 1) - skipped_.back());
    firsts_.push_back(first + skipped_.back());
    first += count;
  }
  const std::size_t granularity = std::max(query.granularity, query.slice_granularity);
  vector_ = extent_of(balanced_offsets(query.count, query.slices, 1, granularity), slice);
  parts_ = balanced_offsets(vector_.count, query.carriers, 1, query.granularity);
  for (std::size_t& offset : parts_) offset += vector_.first;
}

std::size_t SliceLayout::blocks(const std::vector<int>& ranks) const {
  return std::accumulate(ranks.begin(), ranks.end(), std::size_t{0},
                         [this](std::size_t total, int rank) { return total + block(rank); });
}

PlanRange SliceLayout::block_in(PlanPlace::Memory memory, int rank) const {
  return {{memory, firsts_[static_cast<std::size_t>(rank)]}, block(rank)};
}

PlanRange SliceLayout::block_at_origin(PlanPlace::Memory memory, int rank) const {
  return {{memory, skipped_[static_cast<std::size_t>(rank)]}, block(rank)};
}

PlanRange SliceLayout::part_in(PlanPlace::Memory memory, int carrier) const {
  if (carrier < 0) return {{memory, vector_.first}, 0};
  const Extent part = extent_of(parts_, carrier);
  return {{memory, part.first}, part.count};
}

std::vector<std::size_t> SliceLayout::part_counts() const {
  std::vector<std::size_t> counts;
  for (int carrier = 0; carrier + 1 < static_cast<int>(parts_.size()); ++carrier) {
    counts.push_back(extent_of(parts_, carrier).count);
  }
  return counts;
}

}  // namespace farandole
