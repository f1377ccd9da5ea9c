// SPDX-License-Identifier: Apache-2.0
#include "farandole/collectives/schedule.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "farandole/core/error.h"
#include "farandole/internal/choice.h"

namespace farandole {

std::string_view name(StepKind kind) {
  static constexpr Words<6> kNames{"send", "recv", "recv_reduce", "reduce", "copy", "finish"};
  return word_of(kind, kNames);
}

std::string describe(const Schedule& schedule, const Region& region) {
  const int last = region.first + region.count - 1;
  const bool one = region.count == 1;
  if (schedule.segments == 1) {
    return one ? fmt::format("chunk {}", region.first) : fmt::format("chunks {}-{}", region.first, last);
  }
  const auto piece = [&](int index) {
    return fmt::format("{}.{}", index / schedule.segments, index % schedule.segments);
  };
  return one ? "chunk " + piece(region.first) : fmt::format("chunks {}-{}", piece(region.first), piece(last));
}

std::string describe(const Schedule& schedule, int step_index) {
  const Step& step = schedule.steps[static_cast<std::size_t>(step_index)];
  std::string peer;
  if (step.kind == StepKind::kSend) {
    peer = fmt::format(" to rank {}", step.peer);
  } else if (step.kind == StepKind::kRecv || step.kind == StepKind::kRecvReduce) {
    peer = fmt::format(" from rank {}", step.peer);
  }
  const Region& region = step.kind == StepKind::kSend ? step.operand : step.target;
  return fmt::format("step {} ({}{}, round {}, {})", step_index, name(step.kind), peer, step.round,
                     describe(schedule, region));
}

namespace {

/// Removes duplicates, and dependencies that another dependency of the same step already implies.
void prune(std::vector<int>& after, const std::vector<Step>& steps) {
  std::sort(after.begin(), after.end());
  after.erase(std::unique(after.begin(), after.end()), after.end());
  const std::vector<int> all = after;
  const auto implied = [&](int earlier) {
    return std::any_of(all.begin(), all.end(), [&](int later) {
      const std::vector<int>& before = steps[static_cast<std::size_t>(later)].after;
      return std::binary_search(before.begin(), before.end(), earlier);
    });
  };
  after.erase(std::remove_if(after.begin(), after.end(), implied), after.end());
}

}  // namespace

ScheduleBuilder::ScheduleBuilder(const Place& place, int chunks, int segments) {
  if (place.size < 1 || place.rank < 0 || place.rank >= place.size || place.root < 0 || place.root >= place.size) {
    throw InvalidArgument(
        fmt::format("A schedule was asked for rank {} of {} with root {}; rank and root must be in 0-{}.", place.rank,
                    place.size, place.root, place.size - 1));
  }
  if (chunks < 1 || segments < 1) {
    throw InvalidArgument(
        fmt::format("A schedule was asked for {} chunks of {} segments; both must be at least 1.", chunks, segments));
  }
  schedule_.place = place;
  schedule_.chunks = chunks;
  schedule_.segments = segments;
  const auto pieces = static_cast<std::size_t>(schedule_.pieces());
  data_accesses_.resize(pieces);
  written_.resize(pieces, false);
  last_send_to_.resize(static_cast<std::size_t>(place.size), -1);
  last_recv_from_.resize(static_cast<std::size_t>(place.size), -1);
}

void ScheduleBuilder::round(int number) {
  round_ = number;
}

void ScheduleBuilder::send(int peer, Piece first, int count) {
  add_message(StepKind::kSend, peer, {}, read_region(first, count));
}

void ScheduleBuilder::recv(int peer, Piece first, int count) {
  add_message(StepKind::kRecv, peer, data_region(first, count), {});
}

void ScheduleBuilder::recv_reduce(int peer, Piece first, int count) {
  add_message(StepKind::kRecvReduce, peer, data_region(first, count), read_region(first, count));
}

void ScheduleBuilder::recv_scratch(int peer, int slot, Piece first, int count) {
  add_message(StepKind::kRecv, peer, scratch_region(slot, first, count), {});
}

void ScheduleBuilder::send_scratch(int peer, int slot, Piece first, int count) {
  add_message(StepKind::kSend, peer, {}, scratch_region(slot, first, count));
}

void ScheduleBuilder::reduce_scratch(int slot, Piece first, int count) {
  Step step;
  step.kind = StepKind::kReduce;
  step.target = data_region(first, count);
  step.operand = read_region(first, count);
  step.other = scratch_region(slot, first, count);
  add(std::move(step));
}

void ScheduleBuilder::copy_scratch(int slot, Piece first, int count) {
  Step step;
  step.kind = StepKind::kCopy;
  step.target = data_region(first, count);
  step.operand = scratch_region(slot, first, count);
  add(std::move(step));
}

void ScheduleBuilder::copy(Piece from, Piece to, int count) {
  Step step;
  step.kind = StepKind::kCopy;
  step.target = data_region(to, count);
  step.operand = read_region(from, count);
  add(std::move(step));
}

void ScheduleBuilder::finish(Piece first, int count) {
  Step step;
  step.kind = StepKind::kFinish;
  step.target = data_region(first, count);
  step.operand = read_region(first, count);
  add(std::move(step));
}

Schedule ScheduleBuilder::build() && {
  for (const Step& step : schedule_.steps) {
    schedule_.rounds = std::max(schedule_.rounds, step.round + 1);
  }
  schedule_.scratch_slots = static_cast<int>(scratch_accesses_.size());
  schedule_.untouched.resize(written_.size());
  std::transform(written_.begin(), written_.end(), schedule_.untouched.begin(), [](bool written) { return !written; });
  return std::move(schedule_);
}

void ScheduleBuilder::add(Step step) {
  const int index = static_cast<int>(schedule_.steps.size());
  step.round = round_;
  depend_on_reads_and_writes(step, index);
  if (step.target.space == Space::kData) std::fill_n(written_.begin() + step.target.first, step.target.count, true);
  schedule_.steps.push_back(std::move(step));
}

void ScheduleBuilder::add_message(StepKind kind, int peer, const Region& target, const Region& operand) {
  const Place& place = schedule_.place;
  if (peer < 0 || peer >= place.size || peer == place.rank) {
    throw InvalidArgument(
        fmt::format("The schedule of rank {} of {} has a message with rank {}; it must be another rank in 0-{}.",
                    place.rank, place.size, peer, place.size - 1));
  }
  const int index = static_cast<int>(schedule_.steps.size());
  int& previous = (kind == StepKind::kSend ? last_send_to_ : last_recv_from_)[static_cast<std::size_t>(peer)];
  Step step;
  step.kind = kind;
  step.peer = peer;
  step.target = target;
  step.operand = operand;
  step.posted_after = std::exchange(previous, index);
  add(std::move(step));
}

std::vector<ScheduleBuilder::PieceAccess>& ScheduleBuilder::accesses(const Region& region) {
  // Input and result may be the same memory, so they share their accesses.
  return region.space == Space::kScratch ? scratch_accesses_[static_cast<std::size_t>(region.slot)] : data_accesses_;
}

Region ScheduleBuilder::data_region(Piece first, int count) const {
  const int index = schedule_.piece_of(first);
  if (first.segment < 0 || first.segment >= schedule_.segments || first.chunk < 0 || count < 1 ||
      index + count > schedule_.pieces()) {
    throw InvalidArgument(fmt::format(
        "The schedule of rank {} names {} pieces from chunk {} segment {}, but there are {} chunks of {} segments.",
        schedule_.place.rank, count, first.chunk, first.segment, schedule_.chunks, schedule_.segments));
  }
  return {Space::kData, 0, index, count};
}

Region ScheduleBuilder::read_region(Piece first, int count) {
  Region region = data_region(first, count);
  const auto begin = written_.begin() + region.first;
  const auto end = begin + count;
  if (std::find(begin, end, true) == end) {
    region.space = Space::kInput;
    return region;
  }
  for (auto from = std::find(begin, end, false); from != end; from = std::find(from, end, false)) {
    const auto to = std::find(from, end, true);
    Step step;
    step.kind = StepKind::kCopy;
    step.target = {Space::kData, 0, static_cast<int>(from - written_.begin()), static_cast<int>(to - from)};
    step.operand = step.target;
    step.operand.space = Space::kInput;
    add(std::move(step));
  }
  return region;
}

Region ScheduleBuilder::scratch_region(int slot, Piece first, int count) {
  if (slot < 0) {
    throw InvalidArgument(fmt::format("The schedule of rank {} names scratch slot {}.", schedule_.place.rank, slot));
  }
  while (scratch_accesses_.size() <= static_cast<std::size_t>(slot)) {
    scratch_accesses_.emplace_back(static_cast<std::size_t>(schedule_.pieces()));
  }
  Region region = data_region(first, count);
  region.space = Space::kScratch;
  region.slot = slot;
  return region;
}

void ScheduleBuilder::depend_on_reads_and_writes(Step& step, int index) {
  const auto access_of = [&](const Region& region, int offset) -> PieceAccess& {
    const int piece = region.first + offset;
    return accesses(region)[static_cast<std::size_t>(piece)];
  };
  for (const Region* read : {&step.operand, &step.other}) {
    for (int i = 0; i < read->count; ++i) {
      const PieceAccess& access = access_of(*read, i);
      if (access.last_write >= 0) step.after.push_back(access.last_write);
    }
  }
  for (int i = 0; i < step.target.count; ++i) {
    const PieceAccess& access = access_of(step.target, i);
    // Every read since the last write depends on that write, so waiting for the reads is enough.
    if (!access.reads.empty()) {
      step.after.insert(step.after.end(), access.reads.begin(), access.reads.end());
    } else if (access.last_write >= 0) {
      step.after.push_back(access.last_write);
    }
  }
  prune(step.after, schedule_.steps);
  for (const Region* read : {&step.operand, &step.other}) {
    for (int i = 0; i < read->count; ++i) {
      access_of(*read, i).reads.push_back(index);
    }
  }
  for (int i = 0; i < step.target.count; ++i) {
    PieceAccess& access = access_of(step.target, i);
    access.last_write = index;
    access.reads.clear();
  }
}

}  // namespace farandole
