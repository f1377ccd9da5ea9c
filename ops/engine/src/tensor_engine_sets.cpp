// SPDX-License-Identifier: Apache-2.0
// Process sets of an engine: they come and go by requests of the set of all ranks.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "tensor_engine.h"

namespace farandole {
namespace {

/// Ids are 32 bits wide in the C header.
constexpr int kNoMoreSets = std::numeric_limits<std::int32_t>::max();
/// One name for all: ranks that add or remove different sets get a Mismatch.
constexpr const char* kSetChanges = "process sets";

}  // namespace

bool TensorEngine::change_sets() {
  SetEngine& global = *sets_.at(FARANDOLE_GLOBAL_SET);
  bool changed = false;
  while (auto next = global.next_set_change()) {
    change_set(std::move(*next));
    changed = true;
  }
  return changed;
}

void TensorEngine::change_set(BatchEntry entry) {
  if (entry.spec->kind == RequestKind::kAddSet) {
    try {
      const int id = make_set(entry.spec->arguments);
      answer(std::move(entry), id, std::nullopt);
    } catch (const InvalidArgument& error) {
      answer(std::move(entry), -1, as_request_error(error));
    } catch (const std::exception& error) {
      answer(std::move(entry), -1, as_request_error(error));
      throw;
    }
    return;
  }
  const int id = static_cast<int>(entry.spec->arguments.front());
  {
    const std::lock_guard lock(inbox_mutex_);
    set_infos_.erase(id);
  }
  const auto found = sets_.find(id);
  if (found != sets_.end()) found->second->leave(Departure::kSetRemoved);
  removals_.push_back({id, std::move(entry)});
}

void TensorEngine::answer(BatchEntry entry, std::int64_t process_set, const std::optional<RequestError>& error) {
  for (LocalTensor& tensor : entry.local->tensors) {
    due_.completions.push_back({std::move(tensor), error, {process_set}, {}});
  }
}

/// A set goes when all its ranks have left it: peers may wait in negotiations and collectives that need this rank.
/// What was submitted to it before its removal has been taken from the inbox by then.
bool TensorEngine::end_removals() {
  bool ended = false;
  for (auto removal = removals_.begin(); removal != removals_.end();) {
    const auto set = sets_.find(removal->process_set);
    if (set != sets_.end()) {
      if (!set->second->has_left()) {
        ++removal;
        continue;
      }
      set->second->take_due(due_);
      set->second->add_counters(removed_counters_);
      sets_.erase(set);
    }
    answer(std::move(removal->entry), removal->process_set, std::nullopt);
    removal = removals_.erase(removal);
    ended = true;
  }
  return ended;
}

/// All ranks of the job do this at the same point of what they have agreed on, so the ids are the same.
/// @throws InvalidArgument  on all ranks: there are too many communicators on one
int TensorEngine::make_set(const std::vector<std::int64_t>& wanted) {
  const std::vector<int> ranks(wanted.begin(), wanted.end());
  {
    const std::lock_guard lock(inbox_mutex_);
    for (const auto& [id, info] : set_infos_) {
      if (info.ranks == ranks) return id;
    }
  }
  // A request that is late must not meet another set of the same id.
  if (next_set_ == kNoMoreSets) {
    throw InvalidArgument(
        fmt::format("the process set of ranks [{}] can not be made: {} have been in this job, and "
                    "there are no ids for more; keep sets instead of making them anew",
                    fmt::join(ranks, ", "), kNoMoreSets - 1));
  }
  const bool is_member = std::find(ranks.begin(), ranks.end(), communicator_.rank()) != ranks.end();
  std::string problem;
  const auto split = [&](const CommunicatorOptions& options) {
    try {
      return communicator_.split(is_member ? 0 : -1, communicator_.rank(), options);
    } catch (const InvalidArgument& error) {
      problem = error.what();
      return Communicator();
    }
  };
  Communicator control = split(SetEngine::kControl);
  Communicator data = split(SetEngine::kData);
  // Only members see it.
  std::vector<std::uint8_t> is_made{problem.empty() ? std::uint8_t{1} : std::uint8_t{0}};
  communicator_.allreduce(is_made, ReduceOp::kMin);
  if (is_made.front() == 0) {
    throw InvalidArgument(fmt::format("the process set of ranks [{}] can not be made: {}", fmt::join(ranks, ", "),
                                      problem.empty() ? "its members have no room for it" : problem));
  }
  const int id = next_set_++;
  if (is_member) {
    sets_[id] = std::make_unique<SetEngine>(ranks, std::move(control), data, timeline_);
    if (left_) sets_[id]->leave(Departure::kLeavesJob);  // agreed on before the other ranks knew of it
  }
  const std::lock_guard lock(inbox_mutex_);
  set_infos_[id] = {ranks, is_member, Negotiator::kFirstGeneration};
  return id;
}

std::int64_t TensorEngine::run_set_request(RequestSpec&& spec) {
  struct Answer {
    std::atomic<bool> done{false};
    std::int64_t id = -1;
    std::optional<RequestError> error;
  } answer;
  LocalRequest request;
  request.spec = std::move(spec);
  LocalTensor& tensor = request.tensors.emplace_back();
  tensor.context = &answer;
  tensor.done = [](void* context, const farandole_result* result) {
    auto& to = *static_cast<Answer*>(context);
    if (result->error != nullptr) to.error = RequestError{result->error->kind, result->error->text};
    if (result->dimensions > 0) to.id = result->shape[0];
    to.done.store(true);
  };
  request.waiting = Waiting::kCaller;
  submit(std::move(request));
  wait_until([&] { return answer.done.load(); });
  if (answer.error) throw_error(answer.error->kind, answer.error->text);
  return answer.id;
}

void TensorEngine::refuse_set_change(const std::string& why) {
  LocalRequest refusal;
  refusal.spec.name = kSetChanges;
  refusal.spec.kind = RequestKind::kRefused;
  refusal.spec.about = why;
  refusal.tensors.emplace_back();
  refuse(std::move(refusal));
  throw InvalidArgument(why);
}

int TensorEngine::add_process_set(std::vector<int> ranks) {
  std::sort(ranks.begin(), ranks.end());
  const bool fits = !ranks.empty() && ranks.front() >= 0 && ranks.back() < communicator_.size() &&
                    std::adjacent_find(ranks.begin(), ranks.end()) == ranks.end();
  if (!fits) {
    refuse_set_change(fmt::format("a process set needs different ranks between 0 and {}; these are [{}]",
                                  communicator_.size() - 1, fmt::join(ranks, ", ")));
  }
  RequestSpec spec;
  spec.kind = RequestKind::kAddSet;
  spec.arguments.assign(ranks.begin(), ranks.end());
  spec.name = kSetChanges;
  return static_cast<int>(run_set_request(std::move(spec)));
}

void TensorEngine::remove_process_set(int process_set) {
  if (process_set == FARANDOLE_GLOBAL_SET || !ranks_of(process_set)) {
    refuse_set_change(fmt::format("process set {} can not be removed: {}", process_set,
                                  process_set == FARANDOLE_GLOBAL_SET ? "it is that of all ranks" : "there is none"));
  }
  RequestSpec spec;
  spec.kind = RequestKind::kRemoveSet;
  spec.name = kSetChanges;
  spec.arguments = {process_set};
  (void)run_set_request(std::move(spec));
}

std::optional<std::vector<int>> TensorEngine::ranks_of(int process_set) {
  const std::lock_guard lock(inbox_mutex_);
  const auto found = set_infos_.find(process_set);
  if (found == set_infos_.end()) return std::nullopt;
  return found->second.ranks;
}

std::uint64_t TensorEngine::generation(int process_set) {
  const std::lock_guard lock(inbox_mutex_);
  const auto found = set_infos_.find(process_set);
  return found == set_infos_.end() ? Negotiator::kNoStep : found->second.generation;
}

std::vector<int> TensorEngine::process_sets() {
  const std::lock_guard lock(inbox_mutex_);
  std::vector<int> ids;
  for (const auto& [id, info] : set_infos_) ids.push_back(id);
  return ids;
}

}  // namespace farandole
