// SPDX-License-Identifier: Apache-2.0
// What ranks tell each other by name: requests, joins, departures, and that they wait for each other.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "negotiator.h"

namespace farandole {
namespace {

RequestError departure_error(Departure departure, const std::string& who) {
  if (departure == Departure::kSetRemoved) return {ErrorKind::kInvalidArgument, "the process set has been removed"};
  return {ErrorKind::kPeerLost, who + " has left the job, and can take part no more"};
}

Announcements decode(const std::string& bytes, const std::string& who) {
  try {
    return bytes.empty() ? Announcements() : Announcements::decode(bytes);
  } catch (const TransportError& error) {
    throw TransportError(fmt::format("{} has sent what no rank of this job sends: {}", who, error.what()));
  }
}

}  // namespace

Negotiator::Outcome Negotiator::receive_announcements(std::span<const std::string> all, Time now) {
  Outcome outcome;
  outcome.failed = std::exchange(refused_, {});
  std::vector<Announcements> announcements;
  for (const std::string& bytes : all) announcements.push_back(decode(bytes, names_[announcements.size()]));
  receive_departures(announcements, outcome);
  if (departed_) return outcome;
  const bool was_closing = closing_;
  std::vector<std::string> complete;
  receive_requests(announcements, complete);
  receive_joins(announcements, complete);
  settle(complete, outcome);
  has_happened_ = has_happened_ || !complete.empty();
  if (was_closing) end_closing(outcome);
  receive_waits(announcements, outcome);
  end_failed_step(outcome);
  suspect(now);
  return outcome;
}

void Negotiator::receive_departures(const std::vector<Announcements>& all, Outcome& outcome) {
  std::string who;
  Departure departure = Departure::kNone;
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank].departs == Departure::kNone) continue;
    left_[rank] = true;
    departure = std::max(departure, all[rank].departs);
    who += (who.empty() ? "" : ", ") + names_[rank];
  }
  if (who.empty()) return;
  if (!departed_) departed_ = departure_error(departure, who);
  outcome.departed = departed_;
  closing_ = false;
  std::fill(joined_.begin(), joined_.end(), false);  // nobody takes part for them any more
  const auto failed = fail_all(*outcome.departed);
  outcome.failed.insert(outcome.failed.end(), failed.begin(), failed.end());
  by_name_.clear();
  outcome.all_left = std::find(left_.begin(), left_.end(), false) == left_.end();
}

void Negotiator::receive_requests(const std::vector<Announcements>& all, std::vector<std::string>& complete) {
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    for (const Announcement& announcement : all[rank].requests) {
      const std::string& name = announcement.spec->name;
      const auto known = slot_of_.find(name);
      if (known != slot_of_.end()) retire(known->second);
      AnnouncedBy& announced = by_name_[name];
      announced.by_rank.resize(names_.size());
      if (!announced.by_rank[rank].spec) ++announced.count;
      announced.by_rank[rank] = announcement;
      if (is_complete(announced)) complete.push_back(name);
    }
  }
}

void Negotiator::receive_joins(const std::vector<Announcements>& all, std::vector<std::string>& complete) {
  bool somebody = false;
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    if (!all[rank].joins) continue;
    joined_[rank] = true;
    last_joined_ = static_cast<int>(rank);
    somebody = true;
  }
  if (!somebody) return;
  if (joined_[self()]) join_unannounced_ = false;  // called again meanwhile
  for (const auto& [name, announced] : by_name_) {
    if (is_complete(announced) && std::find(complete.begin(), complete.end(), name) == complete.end()) {
      complete.push_back(name);
    }
  }
  closing_ = std::find(joined_.begin(), joined_.end(), false) == joined_.end();
  // What has been announced already may be ready now.
  again_ = announced_ > 0;
  has_happened_ = true;
}

bool Negotiator::is_complete(const AnnouncedBy& announced) const {
  if (announced.count == 0) return false;
  for (std::size_t rank = 0; rank < names_.size(); ++rank) {
    if (!announced.by_rank[rank].spec && !joined_[rank]) return false;
  }
  return true;
}

void Negotiator::settle(const std::vector<std::string>& complete, Outcome& outcome) {
  std::vector<int> ready;
  for (const std::string& name : complete) {
    const auto found = by_name_.find(name);
    if (found == by_name_.end()) continue;
    const AnnouncedBy announced = std::move(found->second);
    by_name_.erase(found);
    const auto first = std::find_if(announced.by_rank.begin(), announced.by_rank.end(), [](const auto& each) {
                         return each.spec != nullptr;
                       })->spec;
    const bool same = std::all_of(announced.by_rank.begin(), announced.by_rank.end(),
                                  [&](const Announcement& each) { return !each.spec || *each.spec == *first; });
    const bool in_step = std::any_of(announced.by_rank.begin(), announced.by_rank.end(),
                                     [](const Announcement& each) { return each.in_step; });
    // A rank that has joined may have another request of this name, of which it has not announced yet.
    const auto mine = announced.by_rank[self()].spec ? pending_.find(name) : pending_.end();
    if (!same) {
      const std::string text = describe_mismatch(announced);
      if (in_step) fail_step(text);
      if (mine != pending_.end()) {
        outcome.failed.push_back({mine->second.ticket, {ErrorKind::kMismatch, text}});
        drop(name);
      }
      continue;
    }
    const int index = new_slot(first, in_step);
    if (mine != pending_.end()) {
      mine->second.slot = index;
      slot(index).pending = &mine->second;
    }
    ready.push_back(index);
  }
  refuse_joined(ready, outcome);
  arrange_loose(ready, outcome);
}

std::string Negotiator::describe_mismatch(const AnnouncedBy& announced) const {
  std::vector<std::pair<const RequestSpec*, std::vector<std::size_t>>> variants;
  for (std::size_t rank = 0; rank < announced.by_rank.size(); ++rank) {
    const RequestSpec* spec = announced.by_rank[rank].spec.get();
    if (spec == nullptr) continue;
    const auto same =
        std::find_if(variants.begin(), variants.end(), [&](const auto& each) { return *each.first == *spec; });
    if (same == variants.end()) {
      variants.push_back({spec, {rank}});
    } else {
      same->second.push_back(rank);
    }
  }
  std::string text = "ranks disagree:";
  for (const auto& [spec, ranks] : variants) {
    std::vector<std::string_view> who;
    for (std::size_t i = 0; i < ranks.size() && i < kNamesShown; ++i) who.push_back(names_[ranks[i]]);
    text += fmt::format(" {}{} submitted {};", fmt::join(who, ", "),
                        ranks.size() > kNamesShown ? fmt::format(" and {} more", ranks.size() - kNamesShown) : "",
                        describe(*spec));
  }
  return text + " no data was touched";
}

void Negotiator::forget_announced(const std::function<bool(std::size_t, const Announcement&)>& is_over) {
  for (auto announced = by_name_.begin(); announced != by_name_.end();) {
    for (std::size_t rank = 0; rank < announced->second.by_rank.size(); ++rank) {
      Announcement& announcement = announced->second.by_rank[rank];
      if (!announcement.spec || !is_over(rank, announcement)) continue;
      announcement = {};
      --announced->second.count;
    }
    announced = announced->second.count == 0 ? by_name_.erase(announced) : std::next(announced);
  }
}

/// If every rank has confirmed that it waits for something that its peers did not submit, none will ever go on.
/// No rank waits for ranks that have joined.
void Negotiator::receive_waits(const std::vector<Announcements>& all, Outcome& outcome) {
  bool confirmed = true, somebody_waits = false;
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    const bool waits = !all[rank].waits_for.empty();
    confirmed = confirmed && (waits || joined_[rank]);
    somebody_waits = somebody_waits || waits;
  }
  if (!confirmed || !somebody_waits || has_happened_) return;
  std::string text = "every rank waits for a name that the others have not submitted:";
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    const auto& names = all[rank].waits_for;
    if (names.empty()) continue;
    const std::size_t shown = std::min(names.size(), kNamesShown);
    text += fmt::format(" {} for '{}'{};", names_[rank],
                        fmt::join(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(shown), "', '"),
                        names.size() > shown ? ", …" : "");
  }
  text += " no data was touched";
  fail_step(text);
  forget_announced(
      [&](std::size_t rank, const Announcement& /*announcement*/) { return !all[rank].waits_for.empty(); });
  for (const std::string& name : confirmed_waits_) {
    outcome.failed.push_back({pending_.at(name).ticket, {ErrorKind::kMismatch, text}});
    give_up(name);
  }
}

}  // namespace farandole
