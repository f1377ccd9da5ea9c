// SPDX-License-Identifier: Apache-2.0
#include "joining.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace farandole {
namespace {

RequestError departure_error(Departure departure, const std::vector<std::string>& names) {
  if (departure == Departure::kSetRemoved) return {ErrorKind::kInvalidArgument, "the process set has been removed"};
  const std::string ranks = fmt::format("{}", fmt::join(names, ", "));
  return {ErrorKind::kPeerLost,
          fmt::format("{} has left the job, and can take part no more; every rank must make the same calls, and the "
                      "program of {} has ended without this one",
                      ranks, ranks)};
}

}  // namespace

std::optional<RequestError> Joining::refuse(const std::string& what) const {
  if (!departed_) return std::nullopt;
  return RequestError{departed_->kind, what + ": " + departed_->text};
}

void Joining::leave(Departure departure) {
  if (!left_[self_] && departure_unannounced_ == Departure::kNone) departure_unannounced_ = departure;
}

void Joining::announce(Announcements& announcements) {
  announcements.joins = std::exchange(join_unannounced_, false);
  announcements.departs = std::exchange(departure_unannounced_, Departure::kNone);
}

bool Joining::receive_departures(const std::vector<Announcements>& all, const std::vector<std::string>& names) {
  std::vector<std::string> departing;
  Departure departure = Departure::kNone;
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank].departs == Departure::kNone) continue;
    left_[rank] = true;
    departure = std::max(departure, all[rank].departs);
    departing.push_back(names[rank]);
  }
  if (departing.empty()) return false;
  if (!departed_) departed_ = departure_error(departure, departing);
  reset_joins();  // joined ranks no longer contribute to allreduces
  return true;
}

bool Joining::receive_joins(const std::vector<Announcements>& all) {
  bool joins = false;
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    if (!all[rank].joins) continue;
    joined_[rank] = true;
    last_joined_ = static_cast<int>(rank);
    joins = true;
  }
  if (!joins) return false;
  if (is_joined()) join_unannounced_ = false;  // if `join` was called again after the announcement
  closing_ = std::find(joined_.begin(), joined_.end(), false) == joined_.end();
  return true;
}

int Joining::end_closing() {
  reset_joins();
  return last_joined_;
}

void Joining::reset_joins() {
  closing_ = false;
  std::fill(joined_.begin(), joined_.end(), false);
}

bool Joining::has_any_joined() const {
  return std::find(joined_.begin(), joined_.end(), true) != joined_.end();
}

bool Joining::have_all_left() const {
  return std::find(left_.begin(), left_.end(), false) == left_.end();
}

}  // namespace farandole
