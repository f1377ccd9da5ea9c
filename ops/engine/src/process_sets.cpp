// SPDX-License-Identifier: Apache-2.0
#include "process_sets.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <string>
#include <utility>

#include "farandole/core/error.h"

namespace farandole {
namespace {

/// Limit of ids, which are 32 bits wide in the C header.
constexpr int kNoMoreSets = std::numeric_limits<std::int32_t>::max();

std::vector<int> all_ranks(int size) {
  std::vector<int> ranks(static_cast<std::size_t>(size));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

/// The two communicators of a set.
struct SetCommunicators {
  Communicator control, data;
};

/// Makes the communicators of a set; empty if this rank is not a member. Collective over `all`.
/// @throws InvalidArgument  on all ranks, if a member has no ids left for more communicators
SetCommunicators split(Communicator& all, const std::vector<int>& ranks, bool is_member) {
  std::string problem;
  const auto split_one = [&](const CommunicatorOptions& options) {
    try {
      return all.split(is_member ? 0 : -1, all.rank(), options);
    } catch (const InvalidArgument& error) {
      problem = error.message();
      return Communicator();
    }
  };
  SetCommunicators made{split_one(SetEngine::kControl), split_one(SetEngine::kData)};
  // Only members notice a problem; the allreduce reports it to all ranks.
  std::vector<std::uint8_t> is_made{problem.empty() ? std::uint8_t{1} : std::uint8_t{0}};
  all.allreduce(is_made, ReduceOp::kMin);
  if (is_made.front() == 0) {
    throw InvalidArgument(fmt::format("the process set of ranks [{}] cannot be made: {}", fmt::join(ranks, ", "),
                                      problem.empty() ? "its members have no room for it" : problem));
  }
  return made;
}

}  // namespace

ProcessSets::ProcessSets(Communicator& communicator, Inbox& inbox, Timeline& timeline, int first_set)
    : communicator_(communicator), inbox_(inbox), timeline_(timeline), next_set_(first_set) {
  const std::vector<int> ranks = all_ranks(communicator_.size());
  inbox_.add_set(FARANDOLE_GLOBAL_SET, {ranks, true});
  sets_[FARANDOLE_GLOBAL_SET] = std::make_unique<SetEngine>(ranks, communicator_.duplicate(SetEngine::kControl),
                                                            communicator_.duplicate(SetEngine::kDataOfAll), timeline_);
}

void ProcessSets::take_inbox(Clock::time_point now) {
  Inbox::Contents contents = inbox_.take();
  for (auto& request : contents.requests) {
    const auto set = sets_.find(request->process_set);
    if (set != sets_.end()) {
      set->second->submit(std::move(request), now);
    } else {
      // The request was queued behind an earlier request of the name, and the set has been removed meanwhile.
      finish(request->tensors, RequestError{ErrorKind::kInvalidArgument, "the process set has been removed"});
    }
  }
  for (const auto& [name, waiting] : contents.waited_names) {
    const auto set = sets_.find(name.first);
    if (set != sets_.end()) set->second->wait_for(name.second, waiting);
  }
  for (const auto& join : contents.joins) sets_.at(join.process_set)->join(join.context, join.done);
  if (contents.leaves && !std::exchange(leaves_, true)) {
    for (const auto& [id, set] : sets_) set->leave(Departure::kLeavesJob);
  }
}

bool ProcessSets::advance(bool blocked, Clock::time_point now) {
  bool moved = false;
  for (const auto& [id, set] : sets_) {
    const auto generation = set->negotiator().generation();
    moved = set->advance(blocked, now) || moved;
    // Update the inbox before callbacks run: a step that begins after the callback of a failed step has the new
    // generation.
    if (set->negotiator().generation() != generation) inbox_.set_generation(id, set->negotiator().generation());
  }
  moved = end_removals() || moved;
  return change_sets() || moved;
}

void ProcessSets::fail(const RequestError& error) {
  fault_ = error;
  inbox_.close(error);
  take_inbox(Clock::now());
  for (const auto& [id, set] : sets_) set->fail(error);
  for (Removal& removal : std::exchange(removals_, {})) finish(removal.entry.local->tensors, error, {-1});
}

void ProcessSets::take_due(DueCallbacks& to) {
  for (const auto& [id, set] : sets_) set->take_due(to);
  to.take(due_);
}

ProcessSets::Status ProcessSets::status() const {
  Status status{.has_left = leaves_};
  for (const auto& [id, set] : sets_) {
    status.is_active = status.is_active || set->is_active();
    status.has_left = status.has_left && set->has_left();
    status.next_wakeup = std::min(status.next_wakeup, set->next_wakeup());
  }
  return status;
}

std::optional<ProcessSets::LongestWait> ProcessSets::longest_waiting() const {
  std::optional<LongestWait> longest;
  for (const auto& [id, set] : sets_) {
    const auto since = set->waits_since();
    if (since && (!longest || *since < longest->since)) longest = LongestWait{id, set.get(), *since};
  }
  return longest;
}

bool ProcessSets::waits_for_peers() const {
  const auto is_waited_for = [](const auto& entry) { return entry.second->negotiator().is_waited_for(); };
  const auto has_batches = [](const auto& entry) { return entry.second->has_batches(); };
  return std::any_of(sets_.begin(), sets_.end(), is_waited_for) &&
         std::none_of(sets_.begin(), sets_.end(), has_batches);
}

void ProcessSets::announce_idle() {
  for (const auto& [id, set] : sets_) set->announce_idle();
}

farandole_counters ProcessSets::counters() const {
  farandole_counters sum = removed_counters_;
  for (const auto& [id, set] : sets_) set->add_counters(sum);
  return sum;
}

// ---- Sets come and go -----------------------------------------------------------------------------------------------

void ProcessSets::finish(std::vector<LocalTensor>& tensors, const std::optional<RequestError>& error,
                         const std::vector<std::int64_t>& shape) {
  for (LocalTensor& tensor : tensors) due_.completions.push_back({std::move(tensor), error, shape, {}});
}

bool ProcessSets::change_sets() {
  SetEngine& global = *sets_.at(FARANDOLE_GLOBAL_SET);
  bool changed = false;
  while (auto next = global.next_set_change()) {
    change_set(std::move(*next));
    changed = true;
  }
  return changed;
}

void ProcessSets::change_set(BatchEntry entry) {
  const std::vector<std::int64_t>& arguments = entry.spec->arguments;
  if (entry.spec->kind == RequestKind::kAddSet) {
    try {
      const int id = add_set({arguments.begin(), arguments.end()});
      finish(entry.local->tensors, std::nullopt, {id});
    } catch (const std::exception& error) {
      const RequestError failure = as_request_error(error);
      finish(entry.local->tensors, failure, {-1});
      if (failure.kind != ErrorKind::kInvalidArgument) throw;
    }
    return;
  }
  const int id = static_cast<int>(arguments.front());
  inbox_.remove_set(id);
  const auto found = sets_.find(id);
  if (found != sets_.end()) found->second->leave(Departure::kSetRemoved);
  removals_.push_back({id, std::move(entry)});
}

/// Removes sets that all ranks have left; earlier, peers may wait in negotiations and collectives that need this rank.
/// Requests that were submitted to a set before its removal are no longer in the inbox at this time.
bool ProcessSets::end_removals() {
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
    finish(removal->entry.local->tensors, std::nullopt, {removal->process_set});
    removal = removals_.erase(removal);
    ended = true;
  }
  return ended;
}

/// Makes the set, or finds the set of the same ranks; returns the id. All ranks call this at the same point of the
/// agreed order of requests, so they use the same id. @throws InvalidArgument  on all ranks
int ProcessSets::add_set(const std::vector<int>& ranks) {
  if (const auto same = inbox_.find_set(ranks)) return *same;
  // Ids are not reused: a late request must not reach another set of the same id.
  if (next_set_ == kNoMoreSets) {
    throw InvalidArgument(
        fmt::format("the process set of ranks [{}] cannot be made: {} have been in this job, and "
                    "there are no ids for more; keep sets instead of making them anew",
                    fmt::join(ranks, ", "), kNoMoreSets - 1));
  }
  const bool is_member = std::find(ranks.begin(), ranks.end(), communicator_.rank()) != ranks.end();
  SetCommunicators communicators = split(communicator_, ranks, is_member);
  const int id = next_set_++;
  if (is_member) {
    auto set = std::make_unique<SetEngine>(ranks, std::move(communicators.control), communicators.data, timeline_);
    // The ranks agreed on this change before this rank announced that it leaves the job.
    if (leaves_) set->leave(Departure::kLeavesJob);
    sets_[id] = std::move(set);
  }
  inbox_.add_set(id, {ranks, is_member});
  return id;
}

}  // namespace farandole
