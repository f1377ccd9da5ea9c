// SPDX-License-Identifier: Apache-2.0
#include "set_engine.h"

#include <algorithm>
#include <array>
#include <utility>

#include "farandole/internal/communicator_access.h"

namespace farandole {
namespace {

std::vector<std::string> names_of(const Communicator& communicator) {
  std::vector<std::string> names;
  for (int rank = 0; rank < communicator.size(); ++rank) names.push_back(communicator.describe(rank));
  return names;
}

/// Labels in the timeline, by RequestKind.
constexpr std::array kActivities{"ALLREDUCE", "ALLGATHER",       "BROADCAST",          "ALLTOALL", "REDUCESCATTER",
                                 "BARRIER",   "ADD_PROCESS_SET", "REMOVE_PROCESS_SET", "REFUSED"};
static_assert(kActivities.size() == static_cast<std::size_t>(RequestKind::kRefused) + 1);

/// Tensors of this size or more are not copied into a fusion buffer. On a device the two copies of 4 MiB take some 10
/// us at 1.5 TB/s: about as long as the fixed cost of a separate collective.
constexpr std::size_t kUnfusedBytes = 128 << 10;
constexpr std::size_t kUnfusedDeviceBytes = 4 << 20;

BucketPlanner::Limits fusion_limits(const Settings& settings) {
  const auto fusion_bytes = static_cast<std::size_t>(settings.engine.fusion_bytes);
  return {fusion_bytes, std::min(kUnfusedBytes, fusion_bytes), std::min(kUnfusedDeviceBytes, fusion_bytes)};
}

}  // namespace

std::string activity_of(const RequestSpec& spec) {
  return spec.adasum ? "ADASUM" : kActivities[static_cast<std::size_t>(spec.kind)];
}

std::string collective_activity_of(const RequestSpec& spec) {
  return "FARANDOLE_" + activity_of(spec);
}

SetEngine::SetEngine(std::vector<int> ranks, Communicator control, const Communicator& data, Timeline& timeline)
    : ranks_(std::move(ranks)),
      context_{data,
               FusionBuffers(data),
               DeviceLane(data),
               fusion_limits(internals(data).settings()),
               {},
               {},
               timeline,
               internals(data).enqueues_directly()},
      negotiator_(data.rank(), names_of(data), {context_.limits}),
      exchange_(std::move(control), context_.communicator) {}

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
  for (LocalTensor& tensor : request.tensors) due_.completions.push_back({std::move(tensor), error, {}, {}});
}

void SetEngine::join(void* context, JoinCallback done) {
  waiting_joins_.push_back({context, done, std::nullopt, -1});
  if (const auto refused = negotiator_.join()) finish_joins(refused, -1);
}

void SetEngine::fail(const RequestError& error) {
  for (const auto& batch : batches_) batch->fail(error, due_.completions);
  batches_.clear();
  started_ = 0;
  negotiator_.fail_all(error);
  for (auto& [ticket, request] : local_) finish(*request, error);
  local_.clear();
  for (const SetChange& change : set_changes_) finish(*change.entry.local, error);
  set_changes_.clear();
  finish_joins(error, -1);
  exchange_.give_up();
}

bool SetEngine::is_active() const {
  return !exchange_.is_idle() || !batches_.empty() || !set_changes_.empty() ||
         (negotiator_.must_answer() && !all_left_);
}

Clock::time_point SetEngine::next_wakeup() const {
  return exchange_.is_idle() ? negotiator_.next_wakeup() : Clock::time_point::max();
}

std::optional<Clock::time_point> SetEngine::waits_since() const {
  if (negotiator_.only_refuses()) return std::nullopt;
  const auto oldest = negotiator_.oldest();
  const auto negotiation = exchange_.since();
  return negotiation ? std::min(oldest.value_or(*negotiation), *negotiation) : oldest;
}

std::string SetEngine::describe_waiting() {
  std::string text = negotiator_.describe_waiting();
  if (text.empty()) text = "what other ranks have submitted";
  // A negotiation may also wait for ranks that do not answer because they have announced nothing.
  const std::string missing = exchange_.describe_missing();
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
  const DeviceCounters device = context_.device.counters();
  sum.device_buckets += device.buckets;
  sum.device_kernels += device.kernels;
  sum.host_waits += device.host_waits;
}

bool SetEngine::advance(bool blocked, Clock::time_point now) {
  bool moved = false;
  while (advance_negotiation(blocked, now)) moved = true;
  return advance_batches() || moved;
}

bool SetEngine::advance_negotiation(bool blocked, Clock::time_point now) {
  if (exchange_.is_idle()) {
    const bool wanted = negotiator_.next_wakeup() <= now;
    if (!wanted && (!negotiator_.must_answer() || all_left_ || !exchange_.peer_has_begun())) return false;
    context_.timeline.mark_cycle(now);
    exchange_.begin(negotiator_.open(blocked, now), now);
    return true;
  }
  const auto outcome = exchange_.advance(negotiator_, now);
  if (outcome) apply(*outcome);
  return outcome.has_value();
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
      context_.is_direct = false;  // with several sets, collectives on devices have no common order of their own
      [[fallthrough]];
    case RequestKind::kRemoveSet:
      set_changes_.push_back({std::move(entries.front()), made_, false, nullptr});
      break;
    case RequestKind::kAllreduce:
    case RequestKind::kBroadcast:
      add(first.adasum ? make_adasum_batch(context_, std::move(entries.front()))
                       : make_same_shape_batch(context_, std::move(entries)));
      break;
    default:
      add(make_new_shape_batch(context_, std::move(entries.front())));
  }
}

void SetEngine::add(std::unique_ptr<Batch> batch) {
  batches_.push_back(std::move(batch));
  ++made_;
}

void SetEngine::finish_joins(const std::optional<RequestError>& error, int last_rank) {
  for (JoinCompletion& join : std::exchange(waiting_joins_, {})) {
    due_.joined.push_back({join.context, join.done, error, last_rank});
  }
}

void SetEngine::take_due(DueCallbacks& to) {
  due_.memory.swap(context_.requested_memory);
  to.take(due_);
}

std::optional<BatchEntry> SetEngine::next_set_change() {
  if (set_changes_.empty()) return std::nullopt;
  const std::uint64_t waiting = batches_.size() - started_;
  SetChange& first = set_changes_.front();
  if (made_ - waiting < first.after) return std::nullopt;
  if (first.entry.spec->kind == RequestKind::kAddSet) {
    if (!std::exchange(first.is_recorded, true)) first.end = context_.device.record_end();
    if (first.end != nullptr && !first.end->is_complete()) return std::nullopt;
  }
  std::optional<BatchEntry> next(std::move(set_changes_.front().entry));
  set_changes_.pop_front();
  return next;
}

bool SetEngine::advance_batches() {
  const std::size_t before = due_.completions.size();
  const std::size_t in_flight = batches_.size();
  while (started_ < batches_.size() && batches_[started_]->start()) ++started_;
  while (!batches_.empty()) {
    if (!batches_.front()->finish(due_.completions)) break;
    batches_.pop_front();
    --started_;
  }
  return due_.completions.size() != before || batches_.size() != in_flight;
}

}  // namespace farandole
