// SPDX-License-Identifier: Apache-2.0
#include "faults/straggler_queries.h"

#include <fmt/format.h>

#include <algorithm>

namespace farandole {

StragglerQueries::StragglerQueries(const Topology& topology, int process, Entered entered)
    : topology_(topology),
      process_(process),
      entered_(std::move(entered)),
      left_(static_cast<std::size_t>(topology.size())) {}

std::vector<int> StragglerQueries::ask(std::uint32_t communicator, std::uint64_t sequence, std::span<const int> awaited,
                                       std::span<const int> others) {
  const std::lock_guard lock(mutex_);
  Question& question = questions_[communicator];
  if (question.sequence != sequence) {
    question.sequence = sequence;
    question.ranks.clear();
    question.named.clear();
    // Communicator ids are recycled: an old answer may be about an earlier communicator of this id.
    std::erase_if(answers_, [&](const auto& answer) { return answer.first.second == communicator; });
  }
  std::set<int> asked;
  std::vector<int> targets;
  const auto consider = [&](int rank) {
    const int target = topology_.rank(rank).process;
    if (target == process_ || (asked.size() >= kMaxAsked && asked.count(target) == 0)) return;
    asked.insert(target);
    question.ranks.insert(rank);
    if (question.open_processes.insert(target).second) targets.push_back(target);
  };
  std::for_each(awaited.begin(), awaited.end(), consider);
  std::for_each(question.named.begin(), question.named.end(), consider);
  std::for_each(others.begin(), others.end(), consider);
  return targets;
}

void StragglerQueries::answered(int rank, std::uint32_t communicator, std::uint64_t sequence) {
  const std::lock_guard lock(mutex_);
  answers_[{rank, communicator}] = sequence;
  questions_[communicator].open_processes.erase(topology_.rank(rank).process);
}

void StragglerQueries::named(int rank, std::uint32_t communicator) {
  const std::lock_guard lock(mutex_);
  questions_[communicator].named.insert(rank);
}

std::vector<int> StragglerQueries::missing(std::uint32_t communicator) const {
  const std::lock_guard lock(mutex_);
  std::vector<int> ranks;
  const auto found = questions_.find(communicator);
  if (found == questions_.end()) return ranks;
  for (const int rank : found->second.ranks) {
    if (ranks.size() < kMaxNamed && is_missing(rank, communicator, found->second.sequence)) ranks.push_back(rank);
  }
  return ranks;
}

std::optional<std::uint64_t> StragglerQueries::progress_of(int rank, std::uint32_t communicator) const {
  if (is_here(rank)) return entered_(rank, communicator);
  const auto answer = answers_.find({rank, communicator});
  return answer == answers_.end() ? std::nullopt : std::optional(answer->second);
}

bool StragglerQueries::is_missing(int rank, std::uint32_t communicator, std::uint64_t sequence) const {
  const auto entered = progress_of(rank, communicator);
  return !entered || *entered < sequence;
}

std::vector<int> StragglerQueries::missing(std::uint32_t communicator, std::uint64_t sequence,
                                           std::span<const int> members) const {
  const std::lock_guard lock(mutex_);
  const auto question = questions_.find(communicator);
  std::vector<int> ranks, named, silent;
  for (const int member : members) {
    if (!is_missing(member, communicator, sequence)) continue;
    if (progress_of(member, communicator)) {
      ranks.push_back(member);
    } else if (question != questions_.end() && question->second.named.count(member) != 0) {
      named.push_back(member);
    } else if (question != questions_.end() && question->second.ranks.count(member) != 0) {
      silent.push_back(member);
    }
  }
  ranks.insert(ranks.end(), named.begin(), named.end());
  ranks.insert(ranks.end(), silent.begin(), silent.end());
  if (ranks.size() > kMaxAsked) ranks.resize(kMaxAsked);
  return ranks;
}

std::string StragglerQueries::describe_missing(std::uint32_t communicator, std::uint64_t sequence,
                                               std::span<const int> members) const {
  const std::lock_guard lock(mutex_);
  const auto question = questions_.find(communicator);
  const auto was_asked = [&](int rank) {
    return question != questions_.end() && question->second.sequence == sequence &&
           question->second.ranks.count(rank) != 0;
  };
  std::string text;
  std::size_t unknown = 0;
  for (const int member : members) {
    const auto entered = progress_of(member, communicator);
    if (entered && *entered >= sequence) continue;
    const bool has_left = left_[static_cast<std::size_t>(member)].has_value();
    if (!entered && !has_left && !was_asked(member)) {
      ++unknown;
      continue;
    }
    if (!text.empty()) text += "; ";
    text += topology_.describe(member);
    if (has_left) {
      text += " has left the job";
    } else if (entered) {
      text += fmt::format(" has entered only collective {}", *entered);
    } else {
      text += " does not answer: it computes, is stopped, or is gone";
    }
  }
  if (unknown == 0) return text;
  return text.empty() ? fmt::format("none of those that were asked; {} ranks were not", unknown)
                      : fmt::format("{}; {} ranks were not asked", text, unknown);
}

void StragglerQueries::set_has_left(int rank, bool left) {
  const std::lock_guard lock(mutex_);
  left_[static_cast<std::size_t>(rank)] = left ? std::optional(Clock::now()) : std::nullopt;
}

void StragglerQueries::process_has_left(int process) {
  const std::lock_guard lock(mutex_);
  const int first = topology_.first_rank_of(process);
  for (int rank = first; rank < first + topology_.process(process).replicas; ++rank) {
    auto& left = left_[static_cast<std::size_t>(rank)];
    if (!left) left = Clock::now();
  }
  for (auto& [communicator, question] : questions_) question.open_processes.erase(process);
}

bool StragglerQueries::has_left(int rank, Seconds ago) const {
  const std::lock_guard lock(mutex_);
  const auto& left = left_[static_cast<std::size_t>(rank)];
  return left && Clock::now() - *left >= ago;
}

}  // namespace farandole
