#include "negotiator.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>
#include <utility>

namespace farandole {
namespace {

using std::chrono::milliseconds;

// New requests wait for others to be told with them: this long after the latest, but not longer after the first.
constexpr milliseconds kAfterLatest{1};
constexpr milliseconds kAfterFirst{20};
// A bucket waits this long after the last request that came to it for the rest of it.
constexpr milliseconds kBucketWaits{25};
// Ranks that seem to wait for each other may be wrong about it for this long: a thread may be about to submit.
constexpr milliseconds kSuspicionLasts{300};
// A request whose bucket has been broken this often stays alone.
constexpr int kMostBreaks = 3;
constexpr std::size_t kNamesShown = 5;

bool may_fuse(const RequestSpec& spec, const Negotiator::Limits& limits) {
  return spec.kind == RequestKind::kAllreduce && !spec.adasum && spec.size_in_bytes() < limits.alone_bytes;
}

/// Requests with the same key can be reduced together.
auto fusion_key(const RequestSpec& spec) {
  return std::tuple(spec.op, spec.prescale, spec.postscale);
}

bool works_with_joined(RequestKind kind) {
  return kind == RequestKind::kAllreduce || kind == RequestKind::kBarrier;
}

RequestError departure_error(Departure departure, const std::string& who) {
  if (departure == Departure::kSetRemoved) return {ErrorKind::kInvalidArgument, "the process set has been removed"};
  return {ErrorKind::kPeerLost, who + " has left the job, and can take part no more"};
}

}  // namespace

Negotiator::Negotiator(int rank, std::vector<std::string> names, Limits limits)
    : rank_(rank),
      names_(std::move(names)),
      limits_(limits),
      joined_(names_.size(), false),
      left_(names_.size(), false),
      bytes_(kHeaderBytes, 0) {}

std::optional<RequestError> Negotiator::submit(Ticket ticket, RequestSpec&& spec, bool caller_waits, Time now) {
  if (departed_) return RequestError{departed_->kind, describe(spec) + ": " + departed_->text};
  forget_suspicion();
  std::string key = spec.name;
  Pending& pending = pending_[std::move(key)];
  pending.ticket = ticket;
  pending.caller_waits = caller_waits;
  pending.since = now;
  const auto known = slot_of_.find(spec.name);
  if (known != slot_of_.end() && *slot(known->second).spec == spec) {
    pending.spec = slot(known->second).spec;
    take_slot(pending, known->second, now);
  } else {
    pending.spec = std::make_shared<RequestSpec>(std::move(spec));
    tell_later(pending);
  }
  return std::nullopt;
}

void Negotiator::take_slot(Pending& pending, int index, Time now) {
  Slot& own = slot(index);
  pending.slot = index;
  own.pending = &pending;
  if (own.bucket < 0) {
    say(index);
    return;
  }
  Bucket& bucket = buckets_[static_cast<std::size_t>(own.bucket)];
  if (++bucket.ready == 1) held_buckets_.push_back(own.bucket);
  if (std::find(held_buckets_.begin(), held_buckets_.end(), own.bucket) == held_buckets_.end()) {
    // A part of the bucket has been said already, so it will be broken up; and nobody would think of it again.
    say(index);
    return;
  }
  bucket.since = now;
  if (bucket.ready == bucket.slots.size() || pending.caller_waits) say_bucket(own.bucket);
}

void Negotiator::say(int index) {
  Pending& pending = *slot(index).pending;
  if (pending.said) return;
  pending.said = true;
  ++announced_;
  byte(index) = 1;
  ++unsaid_;
}

void Negotiator::say_bucket(int bucket) {
  for (const int index : buckets_[static_cast<std::size_t>(bucket)].slots) {
    if (slot(index).pending != nullptr) say(index);
  }
  std::erase(held_buckets_, bucket);
}

void Negotiator::tell_later(Pending& pending) {
  if (pending.said) --announced_;
  pending.slot = -1;
  pending.said = false;
  untold_.push_back(&pending);
}

std::optional<RequestError> Negotiator::join() {
  if (departed_) return RequestError{departed_->kind, "join: " + departed_->text};
  if (!joined_[self()]) join_untold_ = true;
  return std::nullopt;
}

void Negotiator::leave(Departure departure) {
  if (!left_[self()] && departure_untold_ == Departure::kNone) departure_untold_ = departure;
}

std::vector<Negotiator::Failed> Negotiator::fail_all(const RequestError& error) {
  std::vector<Failed> failed;
  for (const auto& [name, pending] : pending_) failed.push_back({pending.ticket, error});
  std::sort(failed.begin(), failed.end(), [](const auto& a, const auto& b) { return a.ticket < b.ticket; });
  for (Slot& each : slots_) each.pending = nullptr;
  for (Bucket& bucket : buckets_) bucket.ready = 0;
  std::fill(bytes_.begin(), bytes_.end(), std::uint8_t{0});
  pending_.clear();
  untold_.clear();
  held_buckets_.clear();
  unsaid_ = 0;
  announced_ = 0;
  forget_suspicion();
  return failed;
}

Negotiator::Time Negotiator::wish() const {
  if (unsaid_ > 0 || join_untold_ || departure_untold_ != Departure::kNone || again_ || closing_) return Time::min();
  Time earliest = Time::max();
  if (!untold_.empty()) {
    Time first = Time::max(), latest = Time::min();
    for (const Pending* pending : untold_) {
      if (pending->caller_waits) return Time::min();
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
  return announced_ > 0 || joined_[self()] || left_[self()] || join_untold_ || departure_untold_ != Departure::kNone;
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
  for (const auto& [name, pending] : pending_) since = std::min(since.value_or(pending.since), pending.since);
  return since;
}

std::string Negotiator::describe_waiting() const {
  const std::vector<std::string> names = pending_names();
  std::string text;
  for (std::size_t i = 0; i < names.size() && i < kNamesShown; ++i) {
    const Pending& pending = pending_.at(names[i]);
    text += (i > 0 ? "; " : "") + describe(*pending.spec);
    const auto told = told_.find(names[i]);
    if (told == told_.end()) continue;
    std::string missing;
    for (std::size_t rank = 0; rank < names_.size(); ++rank) {
      if (!told->second.by_rank[rank] && !joined_[rank]) missing += (missing.empty() ? "" : ", ") + names_[rank];
    }
    text += " (not submitted yet by " + missing + ")";
  }
  if (names.size() > kNamesShown) text += fmt::format("; and {} more", names.size() - kNamesShown);
  return text;
}

std::span<std::uint8_t> Negotiator::open(bool blocked, Time now) {
  ++counters_.rounds;
  again_ = false;
  for (const int bucket : std::vector<int>(held_buckets_)) {
    if (buckets_[static_cast<std::size_t>(bucket)].since + kBucketWaits <= now) say_bucket(bucket);
  }
  unsaid_ = 0;
  blocked = blocked && held_buckets_.empty() && is_caller_waiting();
  News news;
  for (Pending* pending : untold_) {
    pending->said = true;
    ++announced_;
    news.requests.push_back(pending->spec);
    ++counters_.named;
  }
  untold_.clear();
  news.joins = std::exchange(join_untold_, false);
  news.departs = std::exchange(departure_untold_, Departure::kNone);
  if (suspected_ && blocked) news.waits_for = pending_names();
  told_waits_ = news.waits_for;
  says_news_ = !news.requests.empty() || news.joins || news.departs != Departure::kNone || !news.waits_for.empty();
  news_ = says_news_ ? news.encode() : std::string();

  opened_ = bytes_;
  if (joined_[self()]) std::fill(opened_.begin() + kHeaderBytes, opened_.end(), std::uint8_t{1});
  for (std::size_t i = 0; closing_ && i < slots_.size(); ++i) {
    // All say 1 where they have nothing: the minimum is 0 where anybody has something.
    if (slots_[i].pending != nullptr) opened_[kHeaderBytes + i] = 0;
  }
  opened_[0] = says_news_ ? 0 : 1;
  opened_[1] = blocked ? 1 : 0;
  return opened_;
}

Negotiator::Outcome Negotiator::hear(std::span<const std::uint8_t> said, Time now) {
  Outcome outcome;
  outcome.needs_news = said[0] == 0;
  all_blocked_ = said[1] == 1;
  std::vector<int> ready;
  const std::uint8_t is_ready = closing_ ? 0 : 1;
  for (std::size_t i = kHeaderBytes; i < said.size(); ++i) {
    if (said[i] == is_ready) ready.push_back(static_cast<int>(i - kHeaderBytes));
  }
  has_happened_ = !ready.empty();
  refuse_joined(ready, outcome);
  if (!ready.empty()) arrange(std::move(ready), outcome);
  if (!outcome.needs_news) {
    if (closing_) end_closing(outcome);
    suspect(now);
  }
  return outcome;
}

void Negotiator::end_closing(Outcome& outcome) {
  closing_ = false;
  std::fill(joined_.begin(), joined_.end(), false);
  outcome.all_joined = last_joined_;
}

bool Negotiator::is_caller_waiting() const {
  return std::any_of(pending_.begin(), pending_.end(), [](const auto& each) { return each.second.caller_waits; });
}

/// All ranks were blocked when this round began. If this one still is, maybe all are.
void Negotiator::suspect(Time now) {
  suspected_.reset();
  if (all_blocked_ && is_caller_waiting()) suspected_ = now;
}

Negotiator::Agreed Negotiator::take(int index) {
  Slot& own = slot(index);
  Agreed agreed{own.spec, 0};
  if (own.pending != nullptr) {
    agreed.ticket = own.pending->ticket;
    give_up(own.spec->name);
  }
  own.last_round = counters_.rounds;
  byte(index) = 0;
  return agreed;
}

void Negotiator::drop(const std::string& name) {
  const auto found = pending_.find(name);
  if (found->second.said) --announced_;
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

void Negotiator::refuse_joined(std::vector<int>& ready, Outcome& outcome) {
  if (std::none_of(joined_.begin(), joined_.end(), [](bool joined) { return joined; })) return;
  std::erase_if(ready, [&](int index) {
    const SharedSpec spec = slot(index).spec;
    if (works_with_joined(spec->kind)) return false;
    const Agreed agreed = take(index);
    if (agreed.ticket != 0) {
      outcome.failed.push_back(
          {agreed.ticket,
           {ErrorKind::kMismatch, describe(*spec) + ": a rank has joined, and only allreduces can go on then"}});
    }
    return true;
  });
}

/// Planned buckets that are complete stay as they are; of the others, what is ready goes loose.
void Negotiator::arrange(std::vector<int> ready, Outcome& outcome) {
  std::map<int, std::size_t> ready_of_bucket;
  for (const int index : ready) {
    if (slot(index).bucket >= 0) ++ready_of_bucket[slot(index).bucket];
  }
  for (const auto& [bucket, count] : ready_of_bucket) {
    const std::vector<int> slots = buckets_[static_cast<std::size_t>(bucket)].slots;
    if (count < slots.size()) {
      ++counters_.broken_buckets;
      break_up(bucket);
      continue;
    }
    std::vector<Agreed> together;
    for (const int index : slots) together.push_back(take(index));
    outcome.buckets.push_back(std::move(together));
  }
  std::vector<int> loose;
  for (const int index : ready) {
    if (slot(index).bucket < 0) loose.push_back(index);
  }
  arrange_loose(loose, outcome);
}

void Negotiator::break_up(int bucket) {
  Bucket& broken = buckets_[static_cast<std::size_t>(bucket)];
  std::erase(held_buckets_, bucket);
  for (const int index : broken.slots) {
    slot(index).bucket = -1;
    ++slot(index).times_broken;
    if (slot(index).pending != nullptr) say(index);
  }
  broken = {};
}

/// Small allreduces of one kind that are ready together become a bucket, from now on.
void Negotiator::arrange_loose(const std::vector<int>& loose, Outcome& outcome) {
  struct Open {
    std::size_t bytes = 0;
    std::vector<int> slots;
  };
  std::vector<Open> groups;
  std::map<std::tuple<ReduceOp, double, double>, std::size_t> current;
  for (const int index : loose) {
    const RequestSpec& spec = *slot(index).spec;
    const std::size_t bytes = spec.size_in_bytes();
    if (!may_fuse(spec, limits_)) {
      groups.push_back({bytes, {index}});
      continue;
    }
    const auto [found, is_first] = current.try_emplace(fusion_key(spec), groups.size());
    if (is_first || groups[found->second].bytes + bytes > limits_.fusion_bytes) {
      found->second = groups.size();
      groups.emplace_back();
    }
    groups[found->second].bytes += bytes;
    groups[found->second].slots.push_back(index);
  }
  for (const Open& group : groups) {
    std::vector<Agreed> together;
    for (const int index : group.slots) together.push_back(take(index));
    outcome.buckets.push_back(std::move(together));
    const bool stays = group.slots.size() > 1 && std::none_of(group.slots.begin(), group.slots.end(), [&](int index) {
                         return slot(index).times_broken >= kMostBreaks;
                       });
    if (!stays) continue;
    auto free = std::find_if(buckets_.begin(), buckets_.end(), [](const Bucket& each) { return each.slots.empty(); });
    if (free == buckets_.end()) free = buckets_.emplace(buckets_.end());
    free->slots = group.slots;
    for (const int index : group.slots) slot(index).bucket = static_cast<int>(free - buckets_.begin());
  }
}

Negotiator::Outcome Negotiator::hear_news(std::span<const std::string> all, Time now) {
  Outcome outcome;
  std::vector<News> news;
  for (const std::string& bytes : all) news.push_back(bytes.empty() ? News() : News::decode(bytes));
  hear_departures(news, outcome);
  if (departed_) return outcome;
  const bool was_closing = closing_;
  std::vector<std::string> complete;
  hear_requests(news, complete);
  hear_joins(news, complete);
  settle(complete, outcome);
  has_happened_ = has_happened_ || !complete.empty();
  if (was_closing) end_closing(outcome);
  hear_waits(news, outcome);
  suspect(now);
  return outcome;
}

void Negotiator::hear_departures(const std::vector<News>& all, Outcome& outcome) {
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
  std::fill(joined_.begin(), joined_.end(), false);  // nobody supplies zeros any more
  const auto failed = fail_all(*outcome.departed);
  outcome.failed.insert(outcome.failed.end(), failed.begin(), failed.end());
  told_.clear();
  outcome.all_left = std::find(left_.begin(), left_.end(), false) == left_.end();
}

void Negotiator::hear_requests(const std::vector<News>& all, std::vector<std::string>& complete) {
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    for (const SharedSpec& spec : all[rank].requests) {
      const auto known = slot_of_.find(spec->name);
      if (known != slot_of_.end()) retire(known->second);
      Told& told = told_[spec->name];
      told.by_rank.resize(names_.size());
      if (!told.by_rank[rank]) ++told.count;
      told.by_rank[rank] = spec;
      if (is_complete(told)) complete.push_back(spec->name);
    }
  }
}

void Negotiator::hear_joins(const std::vector<News>& all, std::vector<std::string>& complete) {
  bool somebody = false;
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    if (!all[rank].joins) continue;
    joined_[rank] = true;
    last_joined_ = static_cast<int>(rank);
    somebody = true;
  }
  if (!somebody) return;
  if (joined_[self()]) join_untold_ = false;  // called again meanwhile
  for (const auto& [name, told] : told_) {
    if (is_complete(told) && std::find(complete.begin(), complete.end(), name) == complete.end()) {
      complete.push_back(name);
    }
  }
  closing_ = std::find(joined_.begin(), joined_.end(), false) == joined_.end();
  // What has been said already may be ready now.
  again_ = announced_ > 0;
}

bool Negotiator::is_complete(const Told& told) const {
  if (told.count == 0) return false;
  for (std::size_t rank = 0; rank < names_.size(); ++rank) {
    if (!told.by_rank[rank] && !joined_[rank]) return false;
  }
  return true;
}

void Negotiator::settle(const std::vector<std::string>& complete, Outcome& outcome) {
  std::vector<int> ready;
  for (const std::string& name : complete) {
    const auto found = told_.find(name);
    if (found == told_.end()) continue;
    const Told told = std::move(found->second);
    told_.erase(found);
    const auto first =
        *std::find_if(told.by_rank.begin(), told.by_rank.end(), [](const auto& spec) { return spec != nullptr; });
    const bool same = std::all_of(told.by_rank.begin(), told.by_rank.end(),
                                  [&](const SharedSpec& spec) { return !spec || *spec == *first; });
    // A rank that has joined may have another request of this name, of which it has not told yet.
    const auto mine = told.by_rank[self()] ? pending_.find(name) : pending_.end();
    if (!same) {
      if (mine != pending_.end()) {
        outcome.failed.push_back({mine->second.ticket, {ErrorKind::kMismatch, describe_mismatch(told)}});
        drop(name);
      }
      continue;
    }
    const int index = new_slot(first);
    if (mine != pending_.end()) {
      mine->second.slot = index;
      slot(index).pending = &mine->second;
    }
    ready.push_back(index);
  }
  refuse_joined(ready, outcome);
  arrange_loose(ready, outcome);
}

std::string Negotiator::describe_mismatch(const Told& told) const {
  std::vector<std::pair<const RequestSpec*, std::vector<std::size_t>>> variants;
  for (std::size_t rank = 0; rank < told.by_rank.size(); ++rank) {
    const RequestSpec* spec = told.by_rank[rank].get();
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

/// If every rank has confirmed that it waits for something that the others did not submit, nobody will ever go on.
void Negotiator::hear_waits(const std::vector<News>& all, Outcome& outcome) {
  const bool confirmed = std::none_of(all.begin(), all.end(), [](const News& news) { return news.waits_for.empty(); });
  if (!confirmed || has_happened_) return;
  std::string text = "every rank waits for a name that the others have not submitted:";
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    const auto& names = all[rank].waits_for;
    const std::size_t shown = std::min(names.size(), kNamesShown);
    text += fmt::format(" {} for '{}'{};", names_[rank],
                        fmt::join(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(shown), "', '"),
                        names.size() > shown ? ", …" : "");
  }
  told_.clear();
  for (const std::string& name : told_waits_) {
    outcome.failed.push_back({pending_.at(name).ticket, {ErrorKind::kMismatch, text + " no data was touched"}});
    give_up(name);
  }
}

/// The slot is free again; what this rank has pending in it is told by name.
void Negotiator::retire(int index) {
  Slot& own = slot(index);
  if (own.bucket >= 0) break_up(own.bucket);
  if (own.pending != nullptr) {
    Pending& pending = *own.pending;
    tell_later(pending);
  }
  slot_of_.erase(own.spec->name);
  own = {};
  byte(index) = 0;
  free_slots_.push_back(index);
}

int Negotiator::new_slot(SharedSpec spec) {
  if (free_slots_.empty() && slots_.size() >= limits_.slots) {
    const auto least = std::min_element(slots_.begin(), slots_.end(),
                                        [](const Slot& a, const Slot& b) { return a.last_round < b.last_round; });
    // What came in this round is in use; then the table grows all the same.
    if (least->last_round < counters_.rounds) retire(static_cast<int>(least - slots_.begin()));
  }
  int index = static_cast<int>(slots_.size());
  if (free_slots_.empty()) {
    slots_.emplace_back();
    bytes_.push_back(0);
  } else {
    index = free_slots_.back();
    free_slots_.pop_back();
  }
  slot_of_[spec->name] = index;
  slot(index).spec = std::move(spec);
  slot(index).last_round = counters_.rounds;
  return index;
}

}  // namespace farandole
