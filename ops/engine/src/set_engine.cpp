// SPDX-License-Identifier: Apache-2.0
#include "set_engine.h"

#include <fmt/core.h>

#include <algorithm>
#include <numeric>
#include <utility>

namespace farandole {
namespace {

std::vector<std::string> names_of(const Communicator& communicator) {
  std::vector<std::string> names;
  for (int rank = 0; rank < communicator.size(); ++rank) names.push_back(communicator.describe(rank));
  return names;
}

/// Tensors from this size on are not worth a copy into a fusion buffer.
constexpr std::size_t kAloneBytes = 128 << 10;

std::size_t fusion_bytes(const Settings& settings) {
  return static_cast<std::size_t>(settings.fusion_bytes);
}

std::size_t min_unfused_bytes(const Settings& settings) {
  return std::min(kAloneBytes, fusion_bytes(settings));
}

}  // namespace

std::string activity_of(const RequestSpec& spec) {
  if (spec.adasum) return "ADASUM";
  switch (spec.kind) {
    case RequestKind::kAllreduce:
      return "ALLREDUCE";
    case RequestKind::kAllgather:
      return "ALLGATHER";
    case RequestKind::kBroadcast:
      return "BROADCAST";
    case RequestKind::kAlltoall:
      return "ALLTOALL";
    case RequestKind::kReduceScatter:
      return "REDUCESCATTER";
    case RequestKind::kBarrier:
      return "BARRIER";
    case RequestKind::kAddSet:
      return "ADD_PROCESS_SET";
    case RequestKind::kRemoveSet:
      return "REMOVE_PROCESS_SET";
    case RequestKind::kRefused:
      break;
  }
  return "REFUSED";
}

std::string collective_activity_of(const RequestSpec& spec) {
  return "FARANDOLE_" + activity_of(spec);
}

SetEngine::SetEngine(std::vector<int> ranks, Communicator control, const Communicator& data, Timeline& timeline)
    : ranks_(std::move(ranks)),
      control_(std::move(control)),
      // The vendor's allreduce would not let ranks know that it has begun.
      algorithm_(control_.settings().allreduce == "vendor" ? "recursive_doubling" : ""),
      context_{data,
               FusionBuffers(data),
               fusion_bytes(control_.settings()),
               min_unfused_bytes(control_.settings()),
               {},
               {},
               timeline},
      negotiator_(control_.rank(), names_of(control_), {context_.fusion_bytes, context_.min_unfused_bytes}) {
  // A control communicator knows that it is called from its first collective on. Nothing watches that collective, so
  // the ranks meet on the other communicator before.
  context_.communicator.barrier();
  bits_ = {1};
  control_.allreduce(bits_, ReduceOp::kMin, {.algorithm = algorithm_});
}

void SetEngine::submit(std::unique_ptr<LocalRequest> request, Clock::time_point now) {
  const auto ticket = request->ticket;
  Negotiator::Submission submission{ticket, request->spec, request->waiting, request->generation};
  if (context_.timeline.is_on()) {
    context_.timeline.begin(request->spec.name, "NEGOTIATE_" + activity_of(request->spec), now);
  }
  local_[ticket] = std::move(request);
  const auto refused = negotiator_.submit(std::move(submission), now);
  if (!refused) return;
  const auto own = take(ticket);
  finish(*own, refused);
}

void SetEngine::finish(LocalRequest& request, const std::optional<RequestError>& error) {
  if (context_.timeline.is_on()) context_.timeline.end(request.spec.name, Clock::now());
  for (LocalTensor& tensor : request.tensors) completions.push_back({std::move(tensor), error, {}, {}});
}

void SetEngine::join(void* context, JoinCallback done) {
  waiting_joins_.push_back({context, done, std::nullopt, -1});
  if (const auto refused = negotiator_.join()) finish_joins(refused, -1);
}

void SetEngine::leave(Departure departure) {
  negotiator_.leave(departure);
}

void SetEngine::fail(const RequestError& error) {
  for (const auto& batch : batches_) batch->fail(error, completions);
  batches_.clear();
  started_ = 0;
  negotiator_.fail_all(error);
  for (auto& [ticket, request] : local_) finish(*request, error);
  local_.clear();
  for (const BatchEntry& change : set_changes) finish(*change.local, error);
  set_changes.clear();
  finish_joins(error, -1);
  phase_ = Phase::kIdle;
  exchange_ = {};
}

bool SetEngine::is_active() const {
  return phase_ != Phase::kIdle || !batches_.empty() || (negotiator_.must_answer() && !all_left_);
}

Clock::time_point SetEngine::next_wakeup() const {
  return phase_ == Phase::kIdle ? negotiator_.next_wakeup() : Clock::time_point::max();
}

std::optional<Clock::time_point> SetEngine::waits_since() const {
  const auto oldest = negotiator_.oldest();
  if (negotiator_.only_refuses()) return std::nullopt;
  return phase_ == Phase::kIdle ? oldest : std::min(oldest.value_or(negotiation_since_), negotiation_since_);
}

std::string SetEngine::describe_waiting() {
  std::string text = negotiator_.describe_waiting();
  if (text.empty()) text = "what other ranks have submitted";
  // A rank with nothing to announce stays out of the negotiation.
  const std::string missing = phase_ == Phase::kIdle ? std::string() : control_.describe_missing();
  if (!missing.empty()) text += "; not there yet: " + missing;
  return text;
}

void SetEngine::add_counters(farandole_counters& sum) const {
  const Negotiator::Counters& negotiations = negotiator_.counters();
  sum.negotiations += negotiations.negotiations;
  sum.named += negotiations.named;
  sum.broken_buckets += negotiations.broken_buckets;
  const BatchCounters& batches = context_.counters;
  sum.buckets += batches.collectives;
  sum.packed_tensors += batches.packed_tensors;
  sum.packed_bytes += batches.packed_bytes;
  sum.reduced_bytes += batches.reduced_bytes;
}

bool SetEngine::advance(bool blocked, Clock::time_point now) {
  bool moved = false;
  while (advance_negotiation(blocked, now)) moved = true;
  return advance_batches() || moved;
}

bool SetEngine::advance_negotiation(bool blocked, Clock::time_point now) {
  if (phase_ == Phase::kIdle) {
    const bool wanted = negotiator_.next_wakeup() <= now;
    if (!wanted && (!negotiator_.must_answer() || all_left_ || !control_.peer_has_started_next())) return false;
    context_.timeline.mark_cycle(now);
    const auto bits = negotiator_.open(blocked, now);
    bits_.assign(bits.begin(), bits.end());
    exchange_ = control_.allreduce_async(bits_, ReduceOp::kMin, {.algorithm = algorithm_});
    phase_ = Phase::kBits;
    negotiation_since_ = now;
    return true;
  }
  if (!exchange_.test()) return false;
  exchange_.wait();
  switch (phase_) {
    case Phase::kBits: {
      auto outcome = negotiator_.receive(bits_, now);
      phase_ = Phase::kIdle;
      if (outcome.needs_announcements) begin_announcements();
      apply(outcome);
      break;
    }
    case Phase::kLengths:
      begin_announcement_exchange();
      break;
    default:
      phase_ = Phase::kIdle;
      apply(negotiator_.receive_announcements(gathered_announcements(), now));
  }
  return true;
}

void SetEngine::begin_announcements() {
  announcements_ = negotiator_.announcements();
  announcement_bytes_ = {static_cast<std::int64_t>(announcements_.size())};
  all_announcement_bytes_.assign(ranks_.size(), 0);
  exchange_ = control_.allgather_async(announcement_bytes_, all_announcement_bytes_);
  phase_ = Phase::kLengths;
}

void SetEngine::begin_announcement_exchange() {
  const auto wrong = std::find_if(all_announcement_bytes_.begin(), all_announcement_bytes_.end(),
                                  [](std::int64_t bytes) { return bytes < 0 || bytes > Announcements::kMostBytes; });
  if (wrong != all_announcement_bytes_.end()) {
    throw TransportError(fmt::format("{} announces {} bytes about its requests; at most {} are possible",
                                     control_.describe(static_cast<int>(wrong - all_announcement_bytes_.begin())),
                                     *wrong, Announcements::kMostBytes));
  }
  announcement_counts_.assign(all_announcement_bytes_.begin(), all_announcement_bytes_.end());
  all_announcements_.resize(std::accumulate(announcement_counts_.begin(), announcement_counts_.end(), std::size_t{0}));
  exchange_ = control_.allgather_async(ConstBufferView(announcements_.data(), announcements_.size(), DType::kU8),
                                       BufferView(all_announcements_.data(), all_announcements_.size(), DType::kU8),
                                       announcement_counts_);
  phase_ = Phase::kAnnouncements;
}

std::vector<std::string> SetEngine::gathered_announcements() const {
  std::vector<std::string> announcements;
  std::size_t first = 0;
  for (const std::size_t bytes : announcement_counts_) {
    announcements.push_back(all_announcements_.substr(first, bytes));
    first += bytes;
  }
  return announcements;
}

std::unique_ptr<LocalRequest> SetEngine::take(Negotiator::Ticket ticket) {
  const auto found = local_.find(ticket);
  if (found == local_.end()) return nullptr;
  auto request = std::move(found->second);
  local_.erase(found);
  return request;
}

void SetEngine::apply(const Negotiator::Outcome& outcome) {
  for (const auto& [ticket, error] : outcome.failed) {
    finish(*take(ticket), error);
  }
  for (const auto& bucket : outcome.buckets) run(bucket);
  if (outcome.all_joined) finish_joins(std::nullopt, ranks_[static_cast<std::size_t>(*outcome.all_joined)]);
  if (outcome.departed) finish_joins(outcome.departed, -1);
  all_left_ = all_left_ || outcome.all_left;
}

void SetEngine::run(const std::vector<Negotiator::Agreed>& bucket) {
  std::vector<BatchEntry> entries;
  const auto now = context_.timeline.now();
  for (auto& [spec, ticket] : bucket) {
    entries.push_back({spec, take(ticket)});
    context_.timeline.end(spec->name, now);
    if (context_.timeline.is_on()) context_.timeline.begin(spec->name, activity_of(*spec), now);
  }
  const RequestSpec& first = *entries.front().spec;
  switch (first.kind) {
    case RequestKind::kBarrier:
    case RequestKind::kRefused:
      if (entries.front().local) finish(*entries.front().local, std::nullopt);
      break;
    case RequestKind::kAddSet:
    case RequestKind::kRemoveSet:
      set_changes.push_back(std::move(entries.front()));
      break;
    case RequestKind::kAllreduce:
    case RequestKind::kBroadcast:
      batches_.push_back(first.adasum ? make_adasum_batch(context_, std::move(entries.front()))
                                      : make_same_shape_batch(context_, std::move(entries)));
      break;
    default:
      batches_.push_back(make_new_shape_batch(context_, std::move(entries.front())));
  }
}

void SetEngine::finish_joins(const std::optional<RequestError>& error, int last_rank) {
  for (Joined& join : std::exchange(waiting_joins_, {})) {
    joined.push_back({join.context, join.done, error, last_rank});
  }
}

bool SetEngine::advance_batches() {
  const std::size_t before = completions.size();
  const std::size_t in_flight = batches_.size();
  while (started_ < batches_.size() && batches_[started_]->start()) ++started_;
  while (!batches_.empty()) {
    if (!batches_.front()->finish(completions)) break;
    batches_.pop_front();
    --started_;
  }
  return completions.size() != before || batches_.size() != in_flight;
}

}  // namespace farandole
