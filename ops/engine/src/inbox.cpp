// SPDX-License-Identifier: Apache-2.0
#include "inbox.h"

#include <fmt/format.h>

#include "farandole/core/error.h"

namespace farandole {

void Inbox::check(const LocalRequest& request) const {
  if (fault_) throw_error(fault_->kind, fault_->text);
  endpoint_.faults().check();
  const auto set = sets_.find(request.process_set);
  if (set == sets_.end()) {
    throw InvalidArgument(fmt::format("{}: there is no process set {}", describe(request.spec), request.process_set));
  }
  if (!set->second.is_member) {
    throw InvalidArgument(fmt::format("{}: rank {} is not in process set {} (ranks {})", describe(request.spec), rank_,
                                      request.process_set, fmt::join(set->second.ranks, ", ")));
  }
  if (request.generation > set->second.generation) {
    throw InvalidArgument(fmt::format(
        "{}: generation {} of its step has not begun; take what farandole_generation returned when the step began",
        describe(request.spec), request.generation));
  }
}

bool Inbox::submit(LocalRequest&& request) {
  const bool caller_waits = request.waiting == Waiting::kCaller;
  const std::lock_guard lock(mutex_);
  check(request);
  const auto self = std::this_thread::get_id();
  if (!submitter_) submitter_ = self;
  if (*submitter_ != self) many_submitters_.store(true);
  auto owned = std::make_unique<LocalRequest>(std::move(request));
  const bool is_first = acquire_name(owned);
  const bool is_only_pending = pending_.fetch_add(1) == 0;
  if (caller_waits) pending_waits_.fetch_add(1);
  if (is_first) hand_over(std::move(owned));
  requests_.fetch_add(1, std::memory_order_relaxed);
  return is_only_pending;
}

bool Inbox::refuse(LocalRequest&& request) {
  const std::lock_guard lock(mutex_);
  const auto set = sets_.find(request.process_set);
  if (request.spec.name.empty() || fault_ || set == sets_.end() || !set->second.is_member) return false;
  if (set->second.ranks.size() == 1 || request.generation > set->second.generation) return false;
  auto owned = std::make_unique<LocalRequest>(std::move(request));
  try {
    if (acquire_name(owned)) hand_over(std::move(owned));
  } catch (const DuplicateName&) {
    return false;  // the ranks compare the pending request of this name instead
  }
  return true;
}

void Inbox::join(const Join& join) {
  const std::lock_guard lock(mutex_);
  if (fault_) throw_error(fault_->kind, fault_->text);
  const auto set = sets_.find(join.process_set);
  if (set == sets_.end() || !set->second.is_member) {
    throw InvalidArgument(fmt::format("join: rank {} is not in process set {}", rank_, join.process_set));
  }
  contents_.joins.push_back(join);
  has_items_.store(true);
}

void Inbox::leave() {
  const std::lock_guard lock(mutex_);
  contents_.leaves = true;
  has_items_.store(true);
}

Inbox::Contents Inbox::take() {
  const std::lock_guard lock(mutex_);
  has_items_.store(false);
  return std::exchange(contents_, {});
}

void Inbox::close(const RequestError& fault) {
  const std::lock_guard lock(mutex_);
  if (!fault_) fault_ = fault;
}

// ---- Names ----------------------------------------------------------------------------------------------------------

/// Registers the request's name. Returns true if the name was free: the caller then hands `request` over. Returns false
/// if `request` was queued behind earlier requests of the name; `request` is then null.
///
/// On each rank, requests of a name keep the order of their calls. A request is done only when all ranks have submitted
/// a request of its name. So the n-th request of a name is matched with the n-th request of every other rank, no matter
/// when each rank notices the end of the previous request.
/// @throws DuplicateName  the name is in use, its latest request is no refusal, and `request` is not `by_order`
bool Inbox::acquire_name(std::unique_ptr<LocalRequest>& request) {
  const auto [entry, is_free] = names_.try_emplace({request->process_set, request->spec.name});
  NameInUse& name = entry->second;
  if (!is_free && !request->spec.by_order && name.latest != RequestKind::kRefused) {
    throw DuplicateName(fmt::format(
        "{}: a request of this name is pending on rank {}; give each a name of its own, or wait for the first",
        describe(request->spec), rank_));
  }
  name.latest = request->spec.kind;
  if (is_free) return true;
  if (request->waiting != Waiting::kNobody) {
    contents_.waited_names.push_back({entry->first, request->waiting});
    has_items_.store(true);
  }
  name.next.push_back(std::move(request));
  return false;
}

void Inbox::hand_over(std::unique_ptr<LocalRequest> request) {
  const std::shared_ptr<void> registration(nullptr, [this, name = Name(request->process_set, request->spec.name),
                                                     counts = request->spec.kind != RequestKind::kRefused,
                                                     waits = request->waiting == Waiting::kCaller](void*) {
    const std::lock_guard lock(mutex_);
    if (counts) pending_.fetch_sub(1);
    if (waits) pending_waits_.fetch_sub(1);
    release_name(name);
  });
  for (LocalTensor& tensor : request->tensors) tensor.registration = registration;
  request->ticket = next_ticket_++;
  request->since = Clock::now();
  contents_.requests.push_back(std::move(request));
  has_items_.store(true);
}

/// Ends the current request of this name: hands over the next request, or frees the name.
void Inbox::release_name(const Name& name) {
  const auto found = names_.find(name);
  if (found->second.next.empty()) {
    names_.erase(found);
    return;
  }
  auto next = std::move(found->second.next.front());
  found->second.next.pop_front();
  hand_over(std::move(next));
}

// ---- Process sets ---------------------------------------------------------------------------------------------------

void Inbox::add_set(int process_set, SetInfo info) {
  const std::lock_guard lock(mutex_);
  sets_[process_set] = std::move(info);
}

void Inbox::remove_set(int process_set) {
  const std::lock_guard lock(mutex_);
  sets_.erase(process_set);
}

void Inbox::set_generation(int process_set, Negotiator::Generation generation) {
  const std::lock_guard lock(mutex_);
  const auto found = sets_.find(process_set);
  if (found != sets_.end()) found->second.generation = generation;
}

std::optional<int> Inbox::find_set(const std::vector<int>& ranks) const {
  const std::lock_guard lock(mutex_);
  for (const auto& [process_set, info] : sets_) {
    if (info.ranks == ranks) return process_set;
  }
  return std::nullopt;
}

std::optional<std::vector<int>> Inbox::ranks_of(int process_set) const {
  const std::lock_guard lock(mutex_);
  const auto found = sets_.find(process_set);
  return found == sets_.end() ? std::nullopt : std::optional(found->second.ranks);
}

std::vector<int> Inbox::process_sets() const {
  const std::lock_guard lock(mutex_);
  std::vector<int> ids;
  for (const auto& [process_set, info] : sets_) ids.push_back(process_set);
  return ids;
}

Negotiator::Generation Inbox::generation(int process_set) const {
  const std::lock_guard lock(mutex_);
  const auto found = sets_.find(process_set);
  return found == sets_.end() ? Negotiator::kNoStep : found->second.generation;
}

}  // namespace farandole
