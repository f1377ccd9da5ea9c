// SPDX-License-Identifier: Apache-2.0
// The part of the verifier that checks the schedule of one rank: its regions, the order of its steps, and its rounds.
#pragma once

#include <algorithm>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "schedule/verifier_contract.h"

namespace farandole::verification {

inline void check_region(const Schedule& schedule, int step, const Region& region, int pieces) {
  if (region.first < 0 || region.count < 1 || region.first + region.count > schedule.pieces()) {
    throw_fault(schedule, step, fmt::format("names pieces that do not exist; there are {}", schedule.pieces()));
  }
  if (region.space == Space::kScratch && (region.slot < 0 || region.slot >= schedule.scratch_slots)) {
    throw_fault(schedule, step, fmt::format("names scratch slot {} of {}", region.slot, schedule.scratch_slots));
  }
  if (region.count != pieces) throw_fault(schedule, step, "its regions have different numbers of pieces");
}

inline void check_regions(Collective collective, const Schedule& schedule, int number) {
  const Step& step = schedule.steps[index(number)];
  const bool sends = step.kind == StepKind::kSend;
  const int pieces = sends ? step.operand.count : step.target.count;
  const auto check = [&](const Region& region, bool used) {
    if (used) {
      check_region(schedule, number, region, pieces);
    } else if (region.count != 0) {
      throw_fault(schedule, number, "has a region that steps of its kind do not have");
    }
  };
  check(step.target, !sends);
  check(step.operand, step.kind != StepKind::kRecv);
  check(step.other, step.kind == StepKind::kReduce);
  if (!sends && step.target.space == Space::kInput) throw_fault(schedule, number, "writes to the input");
  if (step.is_message() && (step.peer < 0 || step.peer >= schedule.place.size || step.peer == schedule.place.rank)) {
    throw_fault(schedule, number, "its peer must be another rank");
  }
  const bool moves = step.kind == StepKind::kCopy && collective == Collective::kAlltoall;
  const auto misplaced = [&](const Region& region) {
    return !sends && region.count > 0 && region.first != step.target.first &&
           !(moves && same_elements(collective, schedule, region.first, schedule, step.target.first));
  };
  if (misplaced(step.operand) || misplaced(step.other)) {
    throw_fault(schedule, number, "its regions are not the same pieces");
  }
}

/// Checks two rules. Along a dependency or a channel the round never decreases. And a message waits for no other
/// message of its own round, neither directly nor through local steps, so that all messages of a round can be posted
/// together. A receive-and-reduce is exempt from the second rule, because its message can be received into other memory
/// and be reduced after the round.
inline void check_rounds(const Schedule& schedule) {
  std::vector<bool> late(schedule.steps.size(), false);  // by step: waits for a message of its own round
  for (int i = 0; i < static_cast<int>(schedule.steps.size()); ++i) {
    const Step& step = schedule.steps[index(i)];
    if (step.round < 0 || step.round >= schedule.rounds) {
      throw_fault(schedule, i, fmt::format("its round does not exist; there are {}", schedule.rounds));
    }
    for (const int before : step.after) {
      const Step& other = schedule.steps[index(before)];
      if (other.round > step.round) {
        throw_fault(schedule, i, "waits for a later round, that of " + describe(schedule, before));
      }
      late[index(i)] = late[index(i)] || (other.round == step.round && (other.is_message() || late[index(before)]));
    }
    if (step.posted_after >= 0 && schedule.steps[index(step.posted_after)].round > step.round) {
      throw_fault(schedule, i, "is posted after a later round, that of " + describe(schedule, step.posted_after));
    }
    if (late[index(i)] && (step.kind == StepKind::kSend || step.kind == StepKind::kRecv)) {
      throw_fault(schedule, i, "waits for another message of its own round");
    }
  }
}

/// Transitive closure of `after`: tells whether one step of a rank is always complete before another step starts.
class CompletionOrder {
 public:
  explicit CompletionOrder(const Schedule& schedule) : schedule_(schedule), words_((schedule.steps.size() + 63) / 64) {}

  bool ordered(int earlier, int later) {
    const std::vector<int>& after = schedule_.steps[index(later)].after;
    if (std::find(after.begin(), after.end(), earlier) != after.end()) return true;
    if (ancestors_.empty()) close();
    return (ancestors_[index(later) * words_ + index(earlier) / 64] >> (earlier % 64) & 1) != 0;
  }

 private:
  void close() {
    ancestors_.assign(schedule_.steps.size() * words_, 0);
    for (std::size_t i = 0; i < schedule_.steps.size(); ++i) {
      for (const int before : schedule_.steps[i].after) {
        for (std::size_t word = 0; word < words_; ++word) {
          ancestors_[i * words_ + word] |= ancestors_[index(before) * words_ + word];
        }
        ancestors_[i * words_ + index(before) / 64] |= std::uint64_t{1} << (before % 64);
      }
    }
  }

  const Schedule& schedule_;
  std::size_t words_;
  std::vector<std::uint64_t> ancestors_;
};

/// Requires that each access to a piece is ordered after the last conflicting access to the piece. Visits the steps in
/// program order. Input and result count as the same memory, because a call may be in place.
class HazardScan {
 public:
  explicit HazardScan(const Schedule& schedule)
      : schedule_(schedule),
        order_(schedule),
        accesses_(index(schedule.pieces()) * (index(schedule.scratch_slots) + 1)) {}

  void run() {
    for (int i = 0; i < static_cast<int>(schedule_.steps.size()); ++i) {
      const Step& step = schedule_.steps[index(i)];
      for (const Region* region : {&step.operand, &step.other}) {
        for (int offset = 0; offset < region->count; ++offset) {
          check_read(i, *region, offset);
        }
      }
      for (int offset = 0; offset < step.target.count; ++offset) {
        check_write(i, step.target, offset);
      }
      for (const Region* region : {&step.operand, &step.other}) {
        for (int offset = 0; offset < region->count; ++offset) {
          access(*region, offset).reads.push_back(i);
        }
      }
      for (int offset = 0; offset < step.target.count; ++offset) {
        access(step.target, offset) = {i, {}};
      }
    }
  }

 private:
  struct PieceAccess {
    int last_write = -1;
    std::vector<int> reads;  // since the last write
  };

  PieceAccess& access(const Region& region, int offset) {
    const int slot = region.space == Space::kScratch ? region.slot + 1 : 0;
    return accesses_[index(slot * schedule_.pieces() + region.first + offset)];
  }

  void require(int earlier, int later, const Region& region, int offset) {
    if (!order_.ordered(earlier, later)) {
      throw_fault(schedule_, later,
                  fmt::format("touches {} without waiting for {}", piece_text(schedule_, region.first + offset),
                              describe(schedule_, earlier)));
    }
  }

  void check_read(int step, const Region& region, int offset) {
    const PieceAccess& last = access(region, offset);
    if (last.last_write < 0) return;
    if (region.space == Space::kInput) {
      throw_fault(schedule_, step,
                  fmt::format("reads the input of {}, which {} has overwritten in a call that is in place",
                              piece_text(schedule_, region.first + offset), describe(schedule_, last.last_write)));
    }
    require(last.last_write, step, region, offset);
  }

  void check_write(int step, const Region& region, int offset) {
    const PieceAccess& last = access(region, offset);
    for (const int read : last.reads) {
      require(read, step, region, offset);
    }
    if (last.last_write >= 0) require(last.last_write, step, region, offset);
  }

  const Schedule& schedule_;
  CompletionOrder order_;
  std::vector<PieceAccess> accesses_;
};

/// Checks the schedule of one rank. @param first  schedule of rank 0, whose shape this schedule must have
inline void check_rank(Collective collective, const Schedule& schedule, const Schedule& first, int rank) {
  const Place& at = schedule.place;
  if (at.rank != rank || at.size != first.place.size || at.root != first.place.root ||
      schedule.chunks != first.chunks || schedule.segments != first.segments ||
      schedule.chunks != chunks_of(collective, schedule) || schedule.segments < 1 ||
      schedule.untouched.size() != index(schedule.pieces())) {
    throw Fault(fmt::format("rank {}: its schedule is for rank {} of {} with root {}, {} chunks and {} segments", rank,
                            at.rank, at.size, at.root, schedule.chunks, schedule.segments));
  }
  std::unordered_map<int, int> last_send, last_recv;
  for (int i = 0; i < static_cast<int>(schedule.steps.size()); ++i) {
    const Step& step = schedule.steps[index(i)];
    for (const int before : step.after) {
      if (before < 0 || before >= i) {
        throw_fault(schedule, i, fmt::format("waits for step {}, which does not come before it", before));
      }
    }
    check_regions(collective, schedule, i);
    if (step.is_message()) {
      auto& last = step.kind == StepKind::kSend ? last_send : last_recv;
      const auto [entry, is_first] = last.try_emplace(step.peer, i);
      if (step.posted_after != (is_first ? -1 : entry->second)) {
        throw_fault(schedule, i, "is not posted after the previous message of its direction and peer");
      }
      entry->second = i;
    }
  }
  HazardScan(schedule).run();
  check_rounds(schedule);
}

}  // namespace farandole::verification
