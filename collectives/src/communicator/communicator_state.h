// SPDX-License-Identifier: Apache-2.0
// What the copies of a Communicator share.
#pragma once

#include <algorithm>
#include <array>
#include <exception>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <utility>

#include "communicator/work_queue.h"
#include "farandole/collectives/communicator.h"
#include "operation/group.h"
#include "selection/selection.h"

namespace farandole {

/// `group_` is const after construction; `choices_` belongs to the one thread that uses the communicator.
class Communicator::State {
 public:
  explicit State(Group group);
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State();

  // Everything goes through these three, or through a call of the queue that looks whether the job is at fault.
  /// @throws InvalidArgument  in a forked child
  const Group& group() const {
    group_.endpoint->check_process();
    return group_;
  }
  WorkQueue& queue() {
    queue_->check_process();
    return *queue_;
  }
  /// For who looks after faults itself.
  Endpoint& endpoint() const { return *group_.endpoint; }

  /// One slow link sets the pace of all, and ranks of other processes share one transport: that, if there are any.
  Transport& message_route() const {
    const Topology& topology = group_.endpoint->topology();
    const int here = topology.rank(group_.endpoint->rank()).process;
    const auto other = std::find_if(group_.members.begin(), group_.members.end(),
                                    [&](int member) { return topology.rank(member).process != here; });
    return group_.endpoint->route(other == group_.members.end() ? group_.endpoint->rank() : *other);
  }

  Choice choose(const Question& question) {
    const bool free = question.forced.empty() && question.segments == 0;
    if (free && question.bytes < shared_memory_below_[static_cast<std::size_t>(question.collective)]) {
      return {Choice::Kind::kSharedMemory, nullptr, 1};
    }
    const Key key(question.collective, question.bytes, std::string(question.forced), question.segments,
                  question.table_may_say_vendor);
    const auto found = choices_.find(key);
    if (found != choices_.end()) return found->second;
    constexpr std::size_t kRemembered = 1024;
    if (choices_.size() >= kRemembered) choices_.clear();
    return choices_[key] = farandole::choose(question, group_.endpoint->settings());
  }

  Question question(Collective collective, std::size_t bytes) const {
    Question question;
    question.collective = collective;
    question.bytes = bytes;
    question.size = group_.size();
    question.link = link_;
    question.shares_memory = queue_->shares_memory();
    question.has_two_levels = queue_->has_two_levels();
    question.table = group_.table_fits ? group_.table.get() : nullptr;
    return question;
  }

  std::pair<Choice, std::string> prepare(const Call& call);
  void run(Call&& call) {
    auto [choice, refusal] = prepare(call);
    queue_->run(std::move(call), choice, std::move(refusal));
  }
  /// False if that can not be done, or not now; then nothing has happened.
  bool run_at_once(const ShortCall& call) {
    const std::size_t bytes = total_count(call, group_.size()) * size_in_bytes(call.input.dtype);
    return bytes < shared_memory_below_[static_cast<std::size_t>(call.collective)] && queue_->run_at_once(call);
  }
  Work start(Call&& call) {
    auto [choice, refusal] = prepare(call);
    Work work(queue_->submit(std::move(call), choice, std::move(refusal)));
    queue_->advance();
    if (in_background_) group_.endpoint->wake_progress();
    return work;
  }
  void advance_in_calls_only() { in_background_ = false; }

 private:
  const Group group_;
  const int exceptions_at_start_ = std::uncaught_exceptions();
  const std::shared_ptr<WorkQueue> queue_;
  bool in_background_ = true;
  const LinkCost link_ = message_route().cost();
  std::array<std::size_t, kCollectiveCount> find_shared_memory_below() const;
  /// Smaller vectors need no search for what to choose.
  const std::array<std::size_t, kCollectiveCount> shared_memory_below_ = find_shared_memory_below();
  using Key = std::tuple<Collective, std::size_t, std::string, int, bool>;
  std::map<Key, Choice> choices_;
};

inline Communicator::State& Communicator::state() const {
  if (state_ == nullptr) throw_empty();
  return *state_;
}

}  // namespace farandole
