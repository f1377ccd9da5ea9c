// SPDX-License-Identifier: Apache-2.0
#include "negotiator.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

namespace farandole {
namespace {

using std::chrono::milliseconds;

// New requests wait for more of them to be announced together: this long after the latest, but not longer after the
// first.
constexpr milliseconds kAfterLatest{1};
constexpr milliseconds kAfterFirst{20};
// A bucket waits this long after the last request that came to it for the rest of it.
constexpr milliseconds kBucketWaits{25};
// Ranks that seem to wait for each other may be wrong about it for this long: a thread may be about to submit.
constexpr milliseconds kSuspicionLasts{300};

bool works_with_joined(RequestKind kind) {
  return kind == RequestKind::kAllreduce || kind == RequestKind::kBarrier || kind == RequestKind::kRefused;
}

RequestError step_error(const std::string& name, const std::string& failure) {
  return {ErrorKind::kMismatch, fmt::format("'{}' is of a step that has failed: {}", name, failure)};
}

}  // namespace

Negotiator::Negotiator(int rank, std::vector<std::string> names, Limits limits)
    : rank_(rank),
      names_(std::move(names)),
      limits_(limits),
      joined_(names_.size(), false),
      left_(names_.size(), false),
      bytes_(kHeaderBytes, 0) {}

std::optional<RequestError> Negotiator::submit(Submission&& submission, Time now) {
  RequestSpec& spec = submission.spec;
  if (departed_) return RequestError{departed_->kind, describe(spec) + ": " + departed_->text};
  const bool in_step = submission.generation != kNoStep;
  if (in_step && submission.generation < generation_) return step_error(spec.name, step_failure_);
  forget_suspicion();
  standstill_unannounced_ = false;
  std::string key = spec.name;
  Pending& pending = pending_[std::move(key)];
  pending.ticket = submission.ticket;
  pending.waiting = submission.waiting;
  pending.in_step = in_step;
  pending.since = now;
  const auto known = slot_of_.find(spec.name);
  const bool is_known = known != slot_of_.end() && *slot(known->second).spec == spec;
  if (is_known && (slot(known->second).in_step || !in_step)) {
    pending.spec = slot(known->second).spec;
    take_slot(pending, known->second, now);
  } else {
    pending.spec = std::make_shared<RequestSpec>(std::move(spec));
    announce_later(pending);
  }
  return std::nullopt;
}

void Negotiator::wait_for(const std::string& name, Waiting waiting) {
  const auto found = pending_.find(name);
  if (found != pending_.end()) found->second.waiting = std::max(found->second.waiting, waiting);
}

void Negotiator::mark_ready(int index) {
  Pending& pending = *slot(index).pending;
  if (pending.announced) return;
  pending.announced = true;
  ++announced_;
  byte(index) = 1;
  ++unsent_ready_;
}

void Negotiator::announce_later(Pending& pending) {
  if (pending.announced) --announced_;
  pending.slot = -1;
  pending.announced = false;
  unannounced_.push_back(&pending);
}

std::optional<RequestError> Negotiator::join() {
  if (departed_) return RequestError{departed_->kind, "join: " + departed_->text};
  if (!joined_[self()]) join_unannounced_ = true;
  return std::nullopt;
}

void Negotiator::leave(Departure departure) {
  if (!left_[self()] && departure_unannounced_ == Departure::kNone) departure_unannounced_ = departure;
}

std::vector<Negotiator::Failed> Negotiator::fail_all(const RequestError& error) {
  std::vector<Failed> failed;
  for (const auto& [name, pending] : pending_) failed.push_back({pending.ticket, error});
  std::sort(failed.begin(), failed.end(), [](const auto& a, const auto& b) { return a.ticket < b.ticket; });
  for (Slot& each : slots_) each.pending = nullptr;
  for (Bucket& bucket : buckets_) bucket.ready = 0;
  std::fill(bytes_.begin(), bytes_.end(), std::uint8_t{0});
  pending_.clear();
  unannounced_.clear();
  held_buckets_.clear();
  unsent_ready_ = 0;
  announced_ = 0;
  step_fails_ = false;
  refused_.clear();
  standstill_unannounced_ = false;
  forget_suspicion();
  return failed;
}

Negotiator::Time Negotiator::next_wakeup() const {
  if (standstill_unannounced_ && is_waited_for()) return Time::min();
  if (unsent_ready_ > 0 || join_unannounced_ || departure_unannounced_ != Departure::kNone || again_ || closing_)
    return Time::min();
  Time earliest = Time::max();
  if (!unannounced_.empty()) {
    Time first = Time::max(), latest = Time::min();
    for (const Pending* pending : unannounced_) {
      if (pending->waiting == Waiting::kCaller) return Time::min();
      first = std::min(first, pending->since);
      latest = std::max(latest, pending->since);
    }
    earliest = std::min(latest + kAfterLatest, first + kAfterFirst);
  }
  for (const int bucket : held_buckets_) {
    earliest = std::min(earliest, buckets_[static_cast<std::size_t>(bucket)].since + kBucketWaits);
  }
  if (suspected_) earliest = std::min(earliest, *suspected_ + kSuspicionLasts);
  return earliest;
}

bool Negotiator::must_answer() const {
  return announced_ > 0 || joined_[self()] || left_[self()] || join_unannounced_ ||
         departure_unannounced_ != Departure::kNone;
}

bool Negotiator::only_refuses() const {
  return !pending_.empty() && !oldest();
}

std::vector<std::string> Negotiator::pending_names() const {
  std::vector<const Pending*> order;
  for (const auto& [name, pending] : pending_) order.push_back(&pending);
  std::sort(order.begin(), order.end(), [](const auto* a, const auto* b) { return a->ticket < b->ticket; });
  std::vector<std::string> names;
  for (const Pending* pending : order) names.push_back(pending->spec->name);
  return names;
}

std::optional<Negotiator::Time> Negotiator::oldest() const {
  std::optional<Time> since;
  for (const auto& [name, pending] : pending_) {
    if (!is_refusal(pending)) since = std::min(since.value_or(pending.since), pending.since);
  }
  return since;
}

std::string Negotiator::describe_waiting() const {
  const std::vector<std::string> names = pending_names();
  std::string text;
  for (std::size_t i = 0; i < names.size() && i < kNamesShown; ++i) {
    const Pending& pending = pending_.at(names[i]);
    text += (i > 0 ? "; " : "") + describe(*pending.spec);
    const auto announced = by_name_.find(names[i]);
    if (announced == by_name_.end()) continue;
    std::string missing;
    for (std::size_t rank = 0; rank < names_.size(); ++rank) {
      if (!announced->second.by_rank[rank].spec && !joined_[rank])
        missing += (missing.empty() ? "" : ", ") + names_[rank];
    }
    text += " (not submitted yet by " + missing + ")";
  }
  if (names.size() > kNamesShown) text += fmt::format("; and {} more", names.size() - kNamesShown);
  return text;
}

std::span<std::uint8_t> Negotiator::open(bool blocked, Time now) {
  ++counters_.negotiations;
  again_ = false;
  for (const int bucket : std::vector<int>(held_buckets_)) {
    if (buckets_[static_cast<std::size_t>(bucket)].since + kBucketWaits <= now) mark_bucket_ready(bucket);
  }
  unsent_ready_ = 0;
  standstill_unannounced_ = false;
  blocked = blocked && held_buckets_.empty() && is_waited_for();
  Announcements announcements;
  for (Pending* pending : unannounced_) {
    pending->announced = true;
    ++announced_;
    announcements.requests.push_back({pending->spec, pending->in_step});
    ++counters_.named;
  }
  unannounced_.clear();
  announcements.joins = std::exchange(join_unannounced_, false);
  announcements.departs = std::exchange(departure_unannounced_, Departure::kNone);
  if (suspected_ && blocked && !joined_[self()]) announcements.waits_for = pending_names();
  confirmed_waits_ = announcements.waits_for;
  has_announcements_ = !announcements.requests.empty() || announcements.joins ||
                       announcements.departs != Departure::kNone || !announcements.waits_for.empty();
  announcements_ = has_announcements_ ? announcements.encode() : std::string();

  opened_ = bytes_;
  if (joined_[self()]) std::fill(opened_.begin() + kHeaderBytes, opened_.end(), std::uint8_t{1});
  for (std::size_t i = 0; closing_ && i < slots_.size(); ++i) {
    // Every rank has 1 where it has nothing: the minimum is 0 where anybody has something.
    if (slots_[i].pending != nullptr) opened_[kHeaderBytes + i] = 0;
  }
  opened_[0] = has_announcements_ ? 0 : 1;
  opened_[1] = blocked || joined_[self()] ? 1 : 0;
  return opened_;
}

Negotiator::Outcome Negotiator::receive(std::span<const std::uint8_t> combined, Time now) {
  Outcome outcome;
  outcome.needs_announcements = combined[0] == 0;
  all_blocked_ = combined[1] == 1;
  std::vector<int> ready;
  const std::uint8_t is_ready = closing_ ? 0 : 1;
  for (std::size_t i = kHeaderBytes; i < combined.size(); ++i) {
    if (combined[i] == is_ready) ready.push_back(static_cast<int>(i - kHeaderBytes));
  }
  has_happened_ = !ready.empty();
  refuse_joined(ready, outcome);
  if (!ready.empty()) arrange(ready, outcome);
  if (outcome.needs_announcements) {
    refused_ = std::exchange(outcome.failed, {});
  } else {
    if (closing_) end_closing(outcome);
    end_failed_step(outcome);
    suspect(now);
  }
  return outcome;
}

void Negotiator::end_closing(Outcome& outcome) {
  closing_ = false;
  std::fill(joined_.begin(), joined_.end(), false);
  outcome.all_joined = last_joined_;
}

bool Negotiator::is_waited_for() const {
  return std::any_of(pending_.begin(), pending_.end(),
                     [](const auto& each) { return each.second.waiting != Waiting::kNobody; });
}

/// All ranks were blocked when this negotiation began. If this one still is, maybe all are.
void Negotiator::suspect(Time now) {
  suspected_.reset();
  if (all_blocked_ && is_waited_for()) suspected_ = now;
}

Negotiator::Agreed Negotiator::take(int index) {
  Slot& own = slot(index);
  Agreed agreed{own.spec, 0};
  if (own.pending != nullptr) {
    agreed.ticket = own.pending->ticket;
    give_up(own.spec->name);
  }
  own.last_negotiation = counters_.negotiations;
  byte(index) = 0;
  return agreed;
}

void Negotiator::drop(const std::string& name) {
  const auto found = pending_.find(name);
  if (found->second.announced) --announced_;
  std::erase(unannounced_, &found->second);
  pending_.erase(found);
}

void Negotiator::give_up(const std::string& name) {
  const Pending& pending = pending_.at(name);
  if (pending.slot >= 0) {
    Slot& own = slot(pending.slot);
    if (own.bucket >= 0) {
      Bucket& bucket = buckets_[static_cast<std::size_t>(own.bucket)];
      if (--bucket.ready == 0) std::erase(held_buckets_, own.bucket);
    }
    own.pending = nullptr;
    byte(pending.slot) = 0;
  }
  drop(name);
}

void Negotiator::fail_step(const std::string& text) {
  if (!step_fails_) step_failure_ = text;
  step_fails_ = true;
}

/// All that any rank has pending in a step is of the step that has failed: earlier ones were ended before it began, and
/// later ones begin when their ranks know of this. What this negotiation has made ready is done all the same.
void Negotiator::end_failed_step(Outcome& outcome) {
  if (!step_fails_) return;
  step_fails_ = false;
  ++generation_;
  forget_announced([](std::size_t /*rank*/, const Announcement& announcement) { return announcement.in_step; });
  for (const std::string& name : pending_names()) {
    const Pending& pending = pending_.at(name);
    if (!pending.in_step) continue;
    outcome.failed.push_back({pending.ticket, step_error(name, step_failure_)});
    give_up(name);
  }
  if (announced_ > 0) return;
  // This rank has nothing left to announce: its peers might not answer.
  unsent_ready_ = 0;
  again_ = false;
}

void Negotiator::refuse_joined(std::vector<int>& ready, Outcome& outcome) {
  if (std::none_of(joined_.begin(), joined_.end(), [](bool joined) { return joined; })) return;
  std::erase_if(ready, [&](int index) {
    const SharedSpec spec = slot(index).spec;
    if (works_with_joined(spec->kind)) return false;
    const std::string text = describe(*spec) + ": a rank has joined, and only allreduces can go on then";
    if (slot(index).in_step) fail_step(text);
    const Agreed agreed = take(index);
    if (agreed.ticket != 0) outcome.failed.push_back({agreed.ticket, {ErrorKind::kMismatch, text}});
    return true;
  });
}

}  // namespace farandole
