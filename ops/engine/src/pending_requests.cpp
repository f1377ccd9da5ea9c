// SPDX-License-Identifier: Apache-2.0
#include "pending_requests.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace farandole {
namespace {

// The negotiation for requests without a slot is delayed, so that one negotiation announces many of them: until
// kAfterLatest after the latest such request, but at most until kAfterFirst after the first. No delay if a caller waits
// for one of these requests.
constexpr std::chrono::milliseconds kAfterLatest{1};
constexpr std::chrono::milliseconds kAfterFirst{20};

}  // namespace

void PendingRequests::resize(std::size_t slots) {
  in_slot_.resize(slots);
  bytes_.resize(slots);
}

void PendingRequests::add(PendingRequest&& request) {
  PendingRequest& added = requests_[request.spec->name];
  added = std::move(request);
  if (added.slot < 0) {
    unannounced_.push_back(&added);
  } else {
    in_slot(added.slot) = &added;
  }
}

void PendingRequests::mark_ready(std::span<const int> slots) {
  for (const int slot : slots) {
    in_slot(slot)->announced = true;
    bytes_[static_cast<std::size_t>(slot)] = 1;
  }
  announced_ += slots.size();
  unsent_ = unsent_ || !slots.empty();
}

void PendingRequests::leave_slot(int slot) {
  bytes_[static_cast<std::size_t>(slot)] = 0;
  PendingRequest* const request = std::exchange(in_slot(slot), nullptr);
  if (request == nullptr) return;
  if (std::exchange(request->announced, false)) --announced_;
  request->slot = -1;
  unannounced_.push_back(request);
}

void PendingRequests::enter_slot(const std::string& name, int slot) {
  const auto found = requests_.find(name);
  if (found == requests_.end()) return;
  found->second.slot = slot;
  in_slot(slot) = &found->second;
  bytes_[static_cast<std::size_t>(slot)] = 1;
}

std::vector<Announcement> PendingRequests::announce() {
  unsent_ = false;
  std::vector<Announcement> announcements;
  for (PendingRequest* request : unannounced_) {
    request->announced = true;
    announcements.push_back({request->spec, request->in_step});
  }
  announced_ += unannounced_.size();
  unannounced_.clear();
  return announcements;
}

PendingRequest PendingRequests::end(const std::string& name) {
  const auto found = requests_.find(name);
  if (found == requests_.end()) return {};
  PendingRequest& request = found->second;
  if (request.slot >= 0) {
    in_slot(request.slot) = nullptr;
    bytes_[static_cast<std::size_t>(request.slot)] = 0;
  }
  if (request.announced) {
    --announced_;
  } else if (request.slot < 0) {
    std::erase(unannounced_, &request);
  }
  PendingRequest ended = std::move(request);
  requests_.erase(found);
  return ended;
}

std::vector<FailedRequest> PendingRequests::fail_all(const RequestError& error) {
  std::vector<FailedRequest> failed;
  for (const PendingRequest* request : oldest_first()) failed.push_back({request->ticket, error});
  std::fill(in_slot_.begin(), in_slot_.end(), nullptr);
  std::fill(bytes_.begin(), bytes_.end(), std::uint8_t{0});
  requests_.clear();
  unannounced_.clear();
  announced_ = 0;
  unsent_ = false;
  return failed;
}

void PendingRequests::wait_for(const std::string& name, Waiting waiting) {
  const auto found = requests_.find(name);
  if (found != requests_.end()) found->second.waiting = std::max(found->second.waiting, waiting);
}

bool PendingRequests::is_waited_for() const {
  return std::any_of(requests_.begin(), requests_.end(),
                     [](const auto& each) { return each.second.waiting != Waiting::kNobody; });
}

std::vector<const PendingRequest*> PendingRequests::oldest_first() const {
  std::vector<const PendingRequest*> order;
  for (const auto& [name, request] : requests_) order.push_back(&request);
  std::sort(order.begin(), order.end(), [](const auto* a, const auto* b) { return a->ticket < b->ticket; });
  return order;
}

std::optional<PendingRequests::Time> PendingRequests::oldest() const {
  std::optional<Time> since;
  for (const auto& [name, request] : requests_) {
    if (request.spec->kind != RequestKind::kRefused) since = std::min(since.value_or(request.since), request.since);
  }
  return since;
}

PendingRequests::Time PendingRequests::next_wakeup() const {
  if (unsent_) return Time::min();
  if (unannounced_.empty()) return Time::max();
  Time first = Time::max(), latest = Time::min();
  for (const PendingRequest* request : unannounced_) {
    if (request->waiting == Waiting::kCaller) return Time::min();
    first = std::min(first, request->since);
    latest = std::max(latest, request->since);
  }
  return std::min(latest + kAfterLatest, first + kAfterFirst);
}

}  // namespace farandole
