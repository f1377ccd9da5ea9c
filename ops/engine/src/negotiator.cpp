// SPDX-License-Identifier: Apache-2.0
#include "negotiator.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "farandole/core/error.h"

namespace farandole {
namespace {

bool works_with_joined(RequestKind kind) {
  return kind == RequestKind::kAllreduce || kind == RequestKind::kBarrier || kind == RequestKind::kRefused;
}

std::vector<Announcements> decode(std::span<const std::string> all, const std::vector<std::string>& names) {
  std::vector<Announcements> announcements;
  for (const std::string& bytes : all) {
    try {
      announcements.push_back(bytes.empty() ? Announcements() : Announcements::decode(bytes));
    } catch (const TransportError& error) {
      throw TransportError(
          fmt::format("{} has sent what no rank of this job sends: {}", names[announcements.size()], error.message()));
    }
  }
  return announcements;
}

}  // namespace

Negotiator::Negotiator(int rank, std::vector<std::string> names, Limits limits)
    : names_(std::move(names)),
      slots_(limits.slots),
      planner_(limits.fusion),
      announced_(static_cast<std::size_t>(rank)),
      joining_(static_cast<std::size_t>(rank), names_.size()) {}

std::optional<RequestError> Negotiator::submit(Submission&& submission, Time now) {
  RequestSpec& spec = submission.spec;
  if (joining_.departed()) return joining_.refuse(describe(spec));
  if (auto refused = steps_.refusal_of(spec.name, submission.generation)) return refused;
  waits_.reset();
  const bool in_step = submission.generation != kNoStep;
  const int slot = slots_.find(spec, in_step);
  const bool has_slot = slot != SlotTable::kNone;
  SharedSpec shared = has_slot ? slots_[slot].spec : std::make_shared<const RequestSpec>(std::move(spec));
  pending_.add({submission.ticket, std::move(shared), submission.waiting, in_step, now, slot});
  if (!has_slot) return std::nullopt;
  planner_.add(slot, submission.waiting == Waiting::kCaller, now);
  mark_released();
  return std::nullopt;
}

std::optional<RequestError> Negotiator::join() {
  if (!joining_.departed()) joining_.join();
  return joining_.refuse("join");
}

std::vector<FailedRequest> Negotiator::fail_all(const RequestError& error) {
  planner_.remove_all();
  steps_.give_up();
  waits_.reset();
  return pending_.fail_all(error);
}

Negotiator::Time Negotiator::next_wakeup() const {
  if (waits_.has_unannounced() && is_waited_for()) return Time::min();
  if (joining_.has_unannounced() || joining_.is_closing()) return Time::min();
  return std::min({pending_.next_wakeup(), planner_.next_release(), waits_.next_wakeup()});
}

std::vector<std::string> Negotiator::pending_names() const {
  std::vector<std::string> names;
  for (const PendingRequest* request : pending_.oldest_first()) names.push_back(request->spec->name);
  return names;
}

std::string Negotiator::describe_waiting() const {
  const std::vector<const PendingRequest*> order = pending_.oldest_first();
  std::string text;
  for (std::size_t i = 0; i < order.size() && i < kNamesShown; ++i) {
    text += (i > 0 ? "; " : "") + describe(*order[i]->spec);
    std::string missing;
    for (const std::size_t rank : announced_.missing(order[i]->spec->name, joining_.joined())) {
      missing += (missing.empty() ? "" : ", ") + names_[rank];
    }
    if (!missing.empty()) text += " (not submitted yet by " + missing + ")";
  }
  if (order.size() > kNamesShown) text += fmt::format("; and {} more", order.size() - kNamesShown);
  return text;
}

std::span<std::uint8_t> Negotiator::open(bool blocked, Time now) {
  ++counters_.negotiations;
  planner_.release_due(now);
  mark_released();
  blocked = blocked && !planner_.holds_any() && is_waited_for();
  const bool is_joined = joining_.is_joined();
  const Announcements announcements = take_announcements(blocked && !is_joined);
  counters_.named += announcements.requests.size();
  announcements_ = announcements.empty() ? std::string() : announcements.encode();

  opened_.assign(kHeaderBytes + slots_.size(), 1);
  opened_[0] = announcements.empty() ? 1 : 0;
  opened_[1] = blocked || is_joined ? 1 : 0;
  const auto bytes = opened_.begin() + kHeaderBytes;
  if (!is_joined) std::copy(pending_.bytes().begin(), pending_.bytes().end(), bytes);
  for (int slot = 0; joining_.is_closing() && slot < static_cast<int>(slots_.size()); ++slot) {
    // While the set is closing (Joining), the byte's meaning is reversed: 1 means that this rank has no request in the
    // slot. So the minimum is 0 if any rank has a request.
    if (pending_.has(slot)) bytes[slot] = 0;
  }
  return opened_;
}

Announcements Negotiator::take_announcements(bool blocked) {
  Announcements announcements;
  announcements.requests = pending_.announce();
  joining_.announce(announcements);
  if (waits_.open() && blocked) waits_.confirm(pending_names());
  announcements.waits_for = waits_.confirmed();
  return announcements;
}

Negotiator::Outcome Negotiator::receive(std::span<const std::uint8_t> combined, Time now) {
  Outcome outcome;
  outcome.needs_announcements = combined[0] == 0;
  const bool was_closing = joining_.is_closing();
  std::vector<int> ready;
  const std::uint8_t is_ready = was_closing ? 0 : 1;
  for (std::size_t i = kHeaderBytes; i < combined.size(); ++i) {
    if (combined[i] == is_ready) ready.push_back(static_cast<int>(i - kHeaderBytes));
  }
  waits_.receive(combined[1] == 1, !ready.empty());
  arrange(std::move(ready), outcome);
  if (outcome.needs_announcements) {
    steps_.withhold(std::exchange(outcome.failed, {}));
  } else {
    if (was_closing) outcome.all_joined = joining_.end_closing();
    end_negotiation(outcome, now);
  }
  return outcome;
}

Negotiator::Outcome Negotiator::receive_announcements(std::span<const std::string> all, Time now) {
  Outcome outcome;
  outcome.failed = steps_.take_withheld();
  const std::vector<Announcements> announcements = decode(all, names_);
  receive_departures(announcements, outcome);
  if (joining_.departed()) return outcome;
  const bool was_closing = joining_.is_closing();
  std::vector<std::string> complete = receive_requests(announcements);
  if (joining_.receive_joins(announcements)) {
    const std::vector<std::string> without_joined = announced_.complete(joining_.joined());
    complete.insert(complete.end(), without_joined.begin(), without_joined.end());
    pending_.request_negotiation();
    waits_.note_progress();
  }
  if (!complete.empty()) waits_.note_progress();
  settle(complete, outcome);
  if (was_closing) outcome.all_joined = joining_.end_closing();
  receive_waits(announcements, outcome);
  end_negotiation(outcome, now);
  return outcome;
}

void Negotiator::receive_departures(const std::vector<Announcements>& all, Outcome& outcome) {
  if (!joining_.receive_departures(all, names_)) return;
  outcome.departed = joining_.departed();
  outcome.all_left = joining_.have_all_left();
  const std::vector<FailedRequest> failed = fail_all(*outcome.departed);
  outcome.failed.insert(outcome.failed.end(), failed.begin(), failed.end());
  announced_.clear();
}

std::vector<std::string> Negotiator::receive_requests(const std::vector<Announcements>& all) {
  std::vector<std::string> complete;
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    for (const Announcement& announcement : all[rank].requests) {
      const std::string& name = announcement.spec->name;
      const int known = slots_.find(name);
      if (known != SlotTable::kNone) retire(known);
      if (announced_.add(rank, announcement, joining_.joined())) complete.push_back(name);
    }
  }
  return complete;
}

void Negotiator::settle(const std::vector<std::string>& complete, Outcome& outcome) {
  std::vector<int> ready;
  for (const std::string& name : complete) {
    const auto settled = announced_.settle(name, names_);
    if (!settled) continue;
    if (settled->mismatch.empty()) {
      const int slot = new_slot(*settled);
      // If this rank has joined, it may have a request of this name that it has not announced: that stays pending.
      if (settled->is_own) pending_.enter_slot(name, slot);
      ready.push_back(slot);
      continue;
    }
    if (settled->in_step) steps_.fail(settled->mismatch);
    if (settled->is_own) fail(name, {ErrorKind::kMismatch, settled->mismatch}, outcome);
  }
  arrange(std::move(ready), outcome);
}

int Negotiator::new_slot(const AnnouncedRequests::Settled& settled) {
  const int eviction_candidate = slots_.eviction_candidate(counters_.negotiations);
  if (eviction_candidate != SlotTable::kNone) retire(eviction_candidate);
  const int slot = slots_.add(settled.spec, settled.in_step, counters_.negotiations);
  planner_.resize(slots_.size());
  pending_.resize(slots_.size());
  return slot;
}

void Negotiator::retire(int slot) {
  planner_.forget(slot);
  mark_released();
  pending_.leave_slot(slot);
  slots_.retire(slot);
}

void Negotiator::arrange(std::vector<int> ready, Outcome& outcome) {
  if (joining_.has_any_joined()) std::erase_if(ready, [&](int slot) { return refuses_joined(slot, outcome); });
  if (ready.empty()) return;
  const BucketPlanner::Arrangement arrangement = planner_.arrange(std::move(ready), slots_);
  counters_.broken_buckets += arrangement.broken;
  mark_released();
  for (const std::vector<int>& slots : arrangement.buckets) {
    std::vector<Agreed>& together = outcome.buckets.emplace_back();
    for (const int slot : slots) together.push_back(take(slot));
  }
}

bool Negotiator::refuses_joined(int slot, Outcome& outcome) {
  const SharedSpec spec = slots_[slot].spec;
  if (works_with_joined(spec->kind)) return false;
  const std::string text = describe(*spec) + ": a rank has joined, and only allreduces can go on then";
  if (slots_[slot].in_step) steps_.fail(text);
  slots_.use(slot, counters_.negotiations);
  if (pending_.has(slot)) fail(spec->name, {ErrorKind::kMismatch, text}, outcome);
  return true;
}

Negotiator::Agreed Negotiator::take(int slot) {
  slots_.use(slot, counters_.negotiations);
  return {slots_[slot].spec, pending_.end_in(slot).ticket};
}

void Negotiator::fail(const std::string& name, const RequestError& error, Outcome& outcome) {
  const PendingRequest request = pending_.end(name);
  if (request.ticket == 0) return;
  if (request.slot >= 0) planner_.remove(request.slot);
  outcome.failed.push_back({request.ticket, error});
}

void Negotiator::receive_waits(const std::vector<Announcements>& all, Outcome& outcome) {
  const auto text = waits_.receive_confirmations(all, joining_.joined(), names_);
  if (!text) return;
  steps_.fail(*text);
  announced_.forget(
      [&](std::size_t rank, const Announcement& /*announcement*/) { return !all[rank].waits_for.empty(); });
  for (const std::string& name : waits_.confirmed()) fail(name, {ErrorKind::kMismatch, *text}, outcome);
}

/// If a step fails, the requests that this negotiation has made ready still run.
void Negotiator::end_negotiation(Outcome& outcome, Time now) {
  if (steps_.end_negotiation()) {
    announced_.forget([](std::size_t /*rank*/, const Announcement& announcement) { return announcement.in_step; });
    for (const PendingRequest* request : pending_.oldest_first()) {
      if (request->in_step) fail(request->spec->name, steps_.error(request->spec->name), outcome);
    }
    pending_.cancel_if_nothing_announced();
  }
  waits_.end_negotiation(waits_.were_all_blocked() && is_waited_for(), now);
}

}  // namespace farandole
