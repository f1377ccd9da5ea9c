// SPDX-License-Identifier: Apache-2.0
// The part of the verifier that runs all ranks' schedules together, on symbols instead of data.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "schedule/verifier_contract.h"

namespace farandole::verification {

/// Symbolic contents of a piece: the contributions of some ranks to one piece of the vector.
struct Value {
  std::uint64_t contributions = 0;  ///< set of ranks, see Simulation::weight
  int piece = -1;                   ///< -1: the piece has not been written
  int finished = 0;                 ///< how often the final scale has been applied
};

/// Runs all ranks' schedules on symbols, in one order of the steps. One order is enough: every other permitted order
/// gives the same result, because channels are first-in-first-out and conflicting steps of a rank are ordered.
class Simulation {
 public:
  Simulation(Collective collective, const std::vector<Schedule>& schedules)
      : collective_(collective), schedules_(schedules), size_(static_cast<int>(schedules.size())) {
    first_step_.push_back(0);
    for (const Schedule& schedule : schedules_) {
      first_step_.push_back(first_step_.back() + static_cast<int>(schedule.steps.size()));
    }
    match_messages();
  }

  /// Runs the schedules once; a barrier once per window of 64 ranks, following the contributions of these ranks as
  /// bits. In a barrier a rank may be counted twice, so sums of random numbers cannot represent the sets.
  void run() {
    const int windows = collective_ == Collective::kBarrier ? (size_ + 63) / 64 : 1;
    for (window_ = 0; window_ < windows; ++window_) {
      run_window();
    }
  }

 private:
  /// A step of a rank.
  struct At {
    int rank = -1;
    int step = -1;
  };

  std::size_t id(int rank, int step) const { return index(first_step_[index(rank)] + step); }
  std::size_t id(At at) const { return id(at.rank, at.step); }
  const Schedule& schedule(At at) const { return schedules_[index(at.rank)]; }
  const Step& step(At at) const { return schedule(at).steps[index(at.step)]; }
  /// True if sets of contributions are bit masks, false if they are sums of random numbers.
  bool exact() const { return size_ <= 64 || collective_ == Collective::kBarrier; }

  /// Contribution of one rank: a bit, or with more than 64 ranks a random number. The sum of the contributions of a set
  /// of ranks represents the set.
  std::uint64_t weight(int rank) const {
    if (exact()) return rank / 64 == window_ ? std::uint64_t{1} << (rank % 64) : 0;
    std::uint64_t hash = (static_cast<std::uint64_t>(rank) + 1) * 0x9e3779b97f4a7c15U;  // splitmix64
    hash = (hash ^ (hash >> 30)) * 0xbf58476d1ce4e5b9U;
    hash = (hash ^ (hash >> 27)) * 0x94d049bb133111ebU;
    return hash ^ (hash >> 31);
  }
  std::uint64_t merge(std::uint64_t a, std::uint64_t b) const { return exact() ? a | b : a + b; }

  void run_window();
  void match_messages();
  void check_pair(At send, At recv) const;
  void prepare();
  void start(At at);
  void complete(At at);
  void release(At at);
  Value& slot(int rank, const Region& region, int offset);
  Value read(At at, const Region& region, int offset);
  Value reduce(At at, int piece, const Value& a, const Value& b) const;
  void run_local(At at);
  void run_message(At send, At recv);
  void check_progress() const;
  void check_results();
  void check_result(const Schedule& schedule, int piece);

  Collective collective_;
  const std::vector<Schedule>& schedules_;
  int window_ = 0;  ///< if exact(): the ranks 64 * window_ … 64 * window_ + 63 have bits
  int size_;
  std::uint64_t full_ = 0;       ///< all ranks' contributions
  std::vector<int> first_step_;  ///< by rank: index of its first step in the vectors below
  std::vector<At> partner_;      ///< by step: the other end of the message
  std::vector<int> pending_;     ///< by step: number of unmet dependencies
  std::vector<bool> started_, completed_;
  std::vector<std::vector<int>> on_completion_;  ///< by step: steps of the same rank that wait for its completion
  std::vector<int> on_start_;                    ///< by step: the message that waits for its start, or -1
  std::vector<At> ready_;
  std::vector<std::vector<Value>> values_;  ///< by rank: pieces of the result, then pieces of each scratch slot
};

inline void Simulation::run_window() {
  prepare();
  for (int rank = 0; rank < size_; ++rank) {
    for (int i = 0; i < static_cast<int>(schedules_[index(rank)].steps.size()); ++i) {
      if (pending_[id(rank, i)] == 0) ready_.push_back({rank, i});
    }
  }
  while (!ready_.empty()) {
    const At at = ready_.back();
    ready_.pop_back();
    start(at);
  }
  check_progress();
  check_results();
}

/// The n-th send of a rank to a peer matches the n-th receive of that peer from the rank.
inline void Simulation::match_messages() {
  partner_.resize(index(first_step_.back()));
  std::unordered_map<std::uint64_t, std::vector<At>> sends;
  const auto channel = [](int from, int to) {
    return static_cast<std::uint64_t>(from) << 32 | static_cast<unsigned>(to);
  };
  for (int rank = 0; rank < size_; ++rank) {
    const std::vector<Step>& steps = schedules_[index(rank)].steps;
    for (int i = 0; i < static_cast<int>(steps.size()); ++i) {
      if (steps[index(i)].kind == StepKind::kSend) sends[channel(rank, steps[index(i)].peer)].push_back({rank, i});
    }
  }
  std::unordered_map<std::uint64_t, std::size_t> taken;
  for (int rank = 0; rank < size_; ++rank) {
    const std::vector<Step>& steps = schedules_[index(rank)].steps;
    for (int i = 0; i < static_cast<int>(steps.size()); ++i) {
      const Step& recv = steps[index(i)];
      if (recv.kind != StepKind::kRecv && recv.kind != StepKind::kRecvReduce) continue;
      const std::uint64_t key = channel(recv.peer, rank);
      const auto found = sends.find(key);
      std::size_t& next = taken[key];
      if (found == sends.end() || next == found->second.size()) {
        throw_fault(schedules_[index(rank)], i, fmt::format("rank {} sends no such message", recv.peer));
      }
      const At send = found->second[next++];
      check_pair(send, {rank, i});
      partner_[id(rank, i)] = send;
      partner_[id(send)] = {rank, i};
    }
  }
  for (const auto& [key, messages] : sends) {
    if (taken[key] < messages.size()) {
      const At send = messages[taken[key]];
      throw_fault(schedule(send), send.step, fmt::format("rank {} receives no such message", step(send).peer));
    }
  }
}

inline void Simulation::check_pair(At send, At recv) const {
  const Step& from = step(send);
  const Step& to = step(recv);
  const auto mismatch = [&](const char* what) {
    throw_fault(schedule(send), send.step,
                fmt::format("meets {} of rank {}: {}", describe(schedule(recv), recv.step), recv.rank, what));
  };
  if (from.round != to.round) mismatch("the rounds differ");
  if (from.operand.count != to.target.count) mismatch("the numbers of pieces differ");
  for (int i = 0; i < to.target.count; ++i) {
    if (!same_elements(collective_, schedule(send), from.operand.first + i, schedule(recv), to.target.first + i)) {
      mismatch("the pieces differ");
    }
  }
}

inline void Simulation::prepare() {
  const std::size_t steps = partner_.size();
  pending_.assign(steps, 0);
  started_.assign(steps, false);
  completed_.assign(steps, false);
  on_completion_.assign(steps, {});
  on_start_.assign(steps, -1);
  values_.clear();
  full_ = 0;
  for (int rank = 0; rank < size_; ++rank) {
    const Schedule& schedule = schedules_[index(rank)];
    for (int i = 0; i < static_cast<int>(schedule.steps.size()); ++i) {
      const Step& waiting = schedule.steps[index(i)];
      for (const int before : waiting.after) {
        on_completion_[id(rank, before)].push_back(i);
        ++pending_[id(rank, i)];
      }
      if (waiting.posted_after >= 0) {
        on_start_[id(rank, waiting.posted_after)] = i;
        ++pending_[id(rank, i)];
      }
    }
    full_ = merge(full_, weight(rank));
    values_.emplace_back(index(schedule.pieces()) * (index(schedule.scratch_slots) + 1));
  }
}

inline void Simulation::start(At at) {
  started_[id(at)] = true;
  if (on_start_[id(at)] >= 0) release({at.rank, on_start_[id(at)]});
  if (!step(at).is_message()) {
    run_local(at);
    complete(at);
    return;
  }
  const At other = partner_[id(at)];
  if (started_[id(other)]) {
    step(at).kind == StepKind::kSend ? run_message(at, other) : run_message(other, at);
    complete(at);
    complete(other);
  }
}

inline void Simulation::complete(At at) {
  completed_[id(at)] = true;
  for (const int waiting : on_completion_[id(at)]) {
    release({at.rank, waiting});
  }
}

inline void Simulation::release(At at) {
  if (--pending_[id(at)] == 0) ready_.push_back(at);
}

inline Value& Simulation::slot(int rank, const Region& region, int offset) {
  const int space = region.space == Space::kScratch ? region.slot + 1 : 0;
  return values_[index(rank)][index(space * schedules_[index(rank)].pieces() + region.first + offset)];
}

inline Value Simulation::read(At at, const Region& region, int offset) {
  const int piece = region.first + offset;
  if (region.space == Space::kInput) {
    if (!has_input(collective_, schedule(at).place, piece / schedule(at).segments)) {
      throw_fault(schedule(at), at.step,
                  fmt::format("reads {} of the input, which this rank does not have", piece_text(schedule(at), piece)));
    }
    return {weight(at.rank), piece, 0};
  }
  const Value value = slot(at.rank, region, offset);
  if (value.piece < 0) {
    throw_fault(schedule(at), at.step,
                fmt::format("reads {}, which nothing has written", piece_text(schedule(at), piece)));
  }
  return value;
}

inline Value Simulation::reduce(At at, int piece, const Value& a, const Value& b) const {
  if (a.piece != b.piece || a.finished != 0 || b.finished != 0) {
    throw_fault(schedule(at), at.step,
                fmt::format("reduces {} with {}", piece_text(schedule(at), piece),
                            a.piece != b.piece ? "another piece" : "a value that carries the final scale already"));
  }
  const std::uint64_t both = a.contributions & b.contributions;
  if (exact() && collective_ != Collective::kBarrier && both != 0) {
    throw_fault(schedule(at), at.step,
                fmt::format("counts rank {} twice in {}", std::countr_zero(both), piece_text(schedule(at), piece)));
  }
  return {merge(a.contributions, b.contributions), a.piece, 0};
}

inline void Simulation::run_local(At at) {
  const Step& local = step(at);
  for (int i = 0; i < local.target.count; ++i) {
    Value value = read(at, local.operand, i);
    if (local.kind == StepKind::kReduce) {
      value = reduce(at, local.target.first + i, value, read(at, local.other, i));
    } else if (local.kind == StepKind::kFinish) {
      ++value.finished;
      if (value.finished > 1 || value.contributions != full_) {
        throw_fault(schedule(at), at.step,
                    value.finished > 1 ? "its value is finished already" : "its value is not fully reduced");
      }
    }
    slot(at.rank, local.target, i) = value;
  }
}

inline void Simulation::run_message(At send, At recv) {
  const Step& from = step(send);
  const Step& to = step(recv);
  for (int i = 0; i < to.target.count; ++i) {
    Value value = read(send, from.operand, i);
    if (to.kind == StepKind::kRecvReduce) value = reduce(recv, to.target.first + i, read(recv, to.operand, i), value);
    slot(recv.rank, to.target, i) = value;
  }
}

/// Reports a deadlock: names the first step that cannot complete, for each of the first 8 ranks that are stuck.
inline void Simulation::check_progress() const {
  std::string stuck;
  int ranks = 0;
  for (int rank = 0; rank < size_; ++rank) {
    const auto begin = completed_.begin() + first_step_[index(rank)];
    const auto end = completed_.begin() + first_step_[index(rank) + 1];
    const auto first = std::find(begin, end, false);
    if (first != end && ++ranks <= 8) {
      const At at{rank, static_cast<int>(first - begin)};
      stuck += fmt::format("{}rank {} in {}{}", stuck.empty() ? "" : "; ", rank, describe(schedule(at), at.step),
                           started_[id(at)] ? "" : ", not started");
    }
  }
  if (ranks > 0) throw Fault(fmt::format("deadlock of {} ranks: {}", ranks, stuck));
}

inline void Simulation::check_results() {
  for (const Schedule& schedule : schedules_) {
    for (int piece = 0; piece < schedule.pieces(); ++piece) {
      if (schedule.untouched[index(piece)] != (values_[index(schedule.place.rank)][index(piece)].piece < 0)) {
        throw Fault(fmt::format("rank {}: {} is marked as {}, which it is not", schedule.place.rank,
                                piece_text(schedule, piece),
                                schedule.untouched[index(piece)] ? "never written" : "written"));
      }
      if (must_hold(collective_, schedule.place, piece / schedule.segments)) check_result(schedule, piece);
    }
  }
}

inline void Simulation::check_result(const Schedule& schedule, int piece) {
  const Place& at = schedule.place;
  const int chunk = piece / schedule.segments;
  Value value = values_[index(at.rank)][index(piece)];
  if (value.piece < 0 && has_input(collective_, at, chunk)) value = {weight(at.rank), piece, 0};
  Value expected{full_, piece, reduces(collective_) ? 1 : 0};
  if (collective_ == Collective::kBroadcast || collective_ == Collective::kScatter) {
    expected.contributions = weight(at.root);
  } else if (collective_ == Collective::kAllgather || collective_ == Collective::kGather) {
    expected.contributions = weight(chunk);
  } else if (collective_ == Collective::kAlltoall) {
    expected.contributions = weight(chunk - at.size);
    expected.piece = at.rank * schedule.segments + piece % schedule.segments;
  }
  std::string wrong;
  if (value.piece != expected.piece) {
    wrong = value.piece < 0 ? "nothing" : "another piece";
  } else if (value.contributions != expected.contributions) {
    const std::uint64_t missing = expected.contributions & ~value.contributions;
    wrong = !exact()       ? "the wrong set of contributions"
            : missing != 0 ? fmt::format("a value that misses the contribution of rank {}",
                                         window_ * 64 + std::countr_zero(missing))
                           : "contributions that do not belong there";
  } else if (value.finished != expected.finished) {
    wrong = "a value without the final scale";
  }
  if (!wrong.empty()) {
    throw Fault(fmt::format("rank {} ends with {} in {}", at.rank, wrong, piece_text(schedule, piece)));
  }
}

}  // namespace farandole::verification
