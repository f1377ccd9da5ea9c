// SPDX-License-Identifier: Apache-2.0
// Schedules cut for streams: running all ranks' programs on numbers gives the same results as running the schedules
// step by step.
#include "schedule/stream_program.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "farandole/collectives/algorithms.h"
#include "farandole/core/error.h"

namespace farandole {
namespace {

using Values = std::vector<std::uint64_t>;  // one for each piece
using Cell = std::tuple<Space, int, int>;   // space, slot, piece

/// One rank's memory. In place: the data initially holds the input.
struct Memory {
  Values data;
  std::vector<Values> scratch;

  std::uint64_t& at(const Region& region, int offset) {
    const auto piece = static_cast<std::size_t>(region.first + offset);
    return region.space == Space::kScratch ? scratch[static_cast<std::size_t>(region.slot)][piece] : data[piece];
  }
  Values read(const Region& region) {
    Values values;
    for (int i = 0; i < region.count; ++i) values.push_back(at(region, i));
    return values;
  }
  void write(const Region& region, const Values& values) {
    for (int i = 0; i < region.count; ++i) at(region, i) = values[static_cast<std::size_t>(i)];
  }
};

/// Tells orders and repetitions apart, unlike a sum.
std::uint64_t combine(std::uint64_t left, std::uint64_t right) {
  return left * 1000003 + right * 7 + 1;
}

void reduce(Memory& memory, const Step& step, const Values& right) {
  Values values = memory.read(step.operand);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = combine(values[i], right[i]);
  memory.write(step.target, values);
}

void run_locally(Memory& memory, const Step& step) {
  if (step.kind == StepKind::kReduce) {
    reduce(memory, step, memory.read(step.other));
  } else {
    memory.write(step.target, memory.read(step.operand));
  }
}

class Job {
 public:
  Job(const Algorithm& algorithm, int size, int segments) {
    for (int rank = 0; rank < size; ++rank) {
      schedules_.push_back(algorithm.make({rank, size, 0}, segments));
      const auto pieces = static_cast<std::size_t>(schedules_.back().pieces());
      Memory memory;
      for (std::size_t piece = 0; piece < pieces; ++piece) {
        memory.data.push_back(static_cast<std::uint64_t>(rank + 1) * 1000 + piece);
      }
      memory.scratch.assign(static_cast<std::size_t>(schedules_.back().scratch_slots), Values(pieces, 0));
      start_.push_back(std::move(memory));
    }
  }

  /// Each rank takes its steps in program order; messages wait in channels.
  std::vector<Values> step_by_step() const {
    std::vector<Memory> ranks = start_;
    std::vector<std::size_t> next(ranks.size(), 0);
    std::map<std::pair<int, int>, std::deque<Values>> channels;
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
        const Schedule& schedule = schedules_[rank];
        for (; next[rank] < schedule.steps.size(); ++next[rank], moved = true) {
          const Step& step = schedule.steps[next[rank]];
          const int self = static_cast<int>(rank);
          if (step.kind == StepKind::kSend) {
            channels[{self, step.peer}].push_back(ranks[rank].read(step.operand));
          } else if (step.kind == StepKind::kRecv || step.kind == StepKind::kRecvReduce) {
            auto& channel = channels[{step.peer, self}];
            if (channel.empty()) break;
            receive(ranks[rank], step, channel.front());
            channel.pop_front();
          } else {
            run_locally(ranks[rank], step);
          }
        }
      }
    }
    return results(ranks);
  }

  /// Each rank's stream, stage by stage: batches, then the messages of all ranks together.
  std::vector<Values> by_streams() const {
    std::vector<Memory> ranks = start_;
    std::vector<StreamProgram> programs;
    std::size_t most = 0;
    for (const Schedule& schedule : schedules_) {
      programs.push_back(make_stream_program(schedule));
      most = std::max(most, programs.back().stages.size());
    }
    // A rank may be in fewer rounds than others.
    for (StreamProgram& program : programs) program.stages.resize(most);
    std::vector<std::map<int, Values>> bounces(ranks.size());
    for (std::size_t stage = 0; stage < most; ++stage) {
      std::map<std::pair<int, int>, std::deque<Values>> channels;
      for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
        for (const auto& batch : programs[rank].stages[stage].batches)
          run_batch(rank, batch, ranks[rank], bounces[rank]);
        bounces[rank].clear();
        check_group(rank, programs[rank], stage);
        for (const int index : programs[rank].stages[stage].messages) {
          const Step& step = step_of(rank, index);
          if (step.kind == StepKind::kSend) {
            channels[{static_cast<int>(rank), step.peer}].push_back(ranks[rank].read(step.operand));
          }
        }
      }
      for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
        for (const int index : programs[rank].stages[stage].messages) {
          const Step& step = step_of(rank, index);
          if (step.kind == StepKind::kSend) continue;
          auto& channel = channels[{step.peer, static_cast<int>(rank)}];
          EXPECT_FALSE(channel.empty()) << describe(schedules_[rank], index) << " meets no send of its round";
          if (channel.empty()) continue;
          if (programs[rank].is_bounced[static_cast<std::size_t>(index)]) {
            bounces[rank][index] = channel.front();
          } else {
            ranks[rank].write(step.target, channel.front());
          }
          channel.pop_front();
        }
      }
    }
    return results(ranks);
  }

 private:
  static std::vector<Values> results(const std::vector<Memory>& ranks) {
    std::vector<Values> results;
    for (const Memory& memory : ranks) results.push_back(memory.data);
    return results;
  }
  static void receive(Memory& memory, const Step& step, const Values& values) {
    if (step.kind == StepKind::kRecvReduce) {
      reduce(memory, step, values);
    } else {
      memory.write(step.target, values);
    }
  }
  const Step& step_of(std::size_t rank, int index) const {
    return schedules_[rank].steps[static_cast<std::size_t>(index)];
  }

  static std::set<Cell> cells(const Region& region) {
    std::set<Cell> found;
    const Space space = region.space == Space::kInput ? Space::kData : region.space;
    for (int i = 0; i < region.count; ++i) found.insert({space, region.slot, region.first + i});
    return found;
  }

  void run_batch(std::size_t rank, const StreamProgram::Batch& batch, Memory& memory,
                 const std::map<int, Values>& bounces) const {
    std::set<Cell> written, read;
    for (const int index : batch) {
      const Step& step = step_of(rank, index);
      if (step.kind == StepKind::kRecv || step.kind == StepKind::kRecvReduce) {
        receive(memory, step, bounces.at(index));
      } else {
        run_locally(memory, step);
      }
      // No other task of the launch may read or write the cells that this task writes.
      for (const Cell& cell : cells(step.target)) {
        EXPECT_TRUE(written.insert(cell).second) << describe(schedules_[rank], index);
      }
      std::set<Cell> own = cells(step.target);
      for (const Region* region : {&step.operand, &step.other}) {
        for (const Cell& cell : cells(*region)) {
          if (!own.contains(cell)) read.insert(cell);
        }
      }
    }
    for (const Cell& cell : read) EXPECT_FALSE(written.contains(cell)) << "rank " << rank;
  }

  /// Nothing that a group receives lies where it sends from, or where it receives something else.
  void check_group(std::size_t rank, const StreamProgram& program, std::size_t stage) const {
    std::set<Cell> sent, received;
    for (const int index : program.stages[stage].messages) {
      const Step& step = step_of(rank, index);
      EXPECT_EQ(step.round, static_cast<int>(stage));
      if (step.kind == StepKind::kSend) sent.merge(cells(step.operand));
    }
    for (const int index : program.stages[stage].messages) {
      const Step& step = step_of(rank, index);
      if (step.kind == StepKind::kSend || program.is_bounced[static_cast<std::size_t>(index)]) continue;
      for (const Cell& cell : cells(step.target)) {
        EXPECT_FALSE(sent.contains(cell)) << describe(schedules_[rank], index);
        EXPECT_TRUE(received.insert(cell).second) << describe(schedules_[rank], index);
      }
    }
  }

  std::vector<Schedule> schedules_;
  std::vector<Memory> start_;
};

TEST(StreamProgram, EveryAlgorithmMatchesItsStepsOneByOne) {
  for (const Algorithm& algorithm : algorithms()) {
    for (int size = 1; size <= 17; ++size) {
      if (!algorithm.supports(size)) continue;
      for (const int segments : {1, 3}) {
        SCOPED_TRACE(testing::Message() << name(algorithm.collective) << ' ' << algorithm.name << ", size " << size
                                        << ", segments " << segments);
        const Job job(algorithm, size, segments);
        ASSERT_EQ(job.by_streams(), job.step_by_step());
        if (testing::Test::HasFailure()) return;
      }
    }
  }
}

TEST(StreamProgram, TheRingHasOneLaunchAndOneGroupInEachRound) {
  const Algorithm* ring = find_algorithm(Collective::kAllreduce, "ring");
  const StreamProgram program = make_stream_program(ring->make({1, 4, 0}, 1));
  ASSERT_EQ(program.stages.size(), 7U);
  for (std::size_t stage = 0; stage < 6; ++stage) EXPECT_EQ(program.stages[stage].messages.size(), 2U);
  EXPECT_TRUE(program.stages[0].batches.empty());
  for (std::size_t stage = 1; stage <= 3; ++stage) EXPECT_LE(program.stages[stage].batches.size(), 2U);
  EXPECT_TRUE(program.stages[6].messages.empty());
}

TEST(StreamProgram, RefusesToSendDataReceivedInTheSameRound) {
  ScheduleBuilder builder({0, 3, 0}, 1, 1);
  builder.round(0);
  builder.recv(1, {0, 0});
  builder.send(2, {0, 0});
  const Schedule schedule = std::move(builder).build();
  EXPECT_THROW(make_stream_program(schedule), InternalError);
}

TEST(StreamProgram, ReceiveIntoMemoryBeingSentIsBounced) {
  ScheduleBuilder builder({0, 2, 0}, 1, 1);
  builder.round(0);
  builder.send(1, {0, 0});
  builder.recv(1, {0, 0});
  const StreamProgram program = make_stream_program(std::move(builder).build());
  EXPECT_TRUE(program.is_bounced[1]);
  EXPECT_EQ(program.stages[1].batches.size(), 1U);
}

}  // namespace
}  // namespace farandole
