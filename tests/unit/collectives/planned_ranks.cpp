// SPDX-License-Identifier: Apache-2.0
#include "planned_ranks.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "operation/call.h"

namespace farandole {
namespace {

constexpr std::int64_t kUnwritten = -1;

std::size_t total_of(const PartCounts& counts, std::size_t end) {
  return std::accumulate(counts.begin(), counts.begin() + static_cast<std::ptrdiff_t>(end), std::size_t{0});
}

/// Element `index` of the input of `rank`.
std::int64_t number(int rank, std::size_t index) {
  return 1'000'000 * (rank + 1) + static_cast<std::int64_t>(index);
}

/// A collective as the standard has it: from the inputs of all ranks to the outputs of all. Ranks without an output are
/// left alone.
void run_reference(const HierarchicalPhase& phase, const std::vector<Integers>& inputs, std::vector<Integers>& outputs,
                   const std::vector<PartCounts>& sent) {
  const std::size_t size = inputs.size();
  const auto root = static_cast<std::size_t>(std::max(phase.root, 0));
  const PartCounts& counts = phase.counts;
  Integers added = inputs.front();
  if (reduces(phase.collective)) {
    for (std::size_t from = 1; from < size; ++from) {
      ASSERT_EQ(inputs[from].size(), added.size());
      for (std::size_t i = 0; i < added.size(); ++i) added[i] += inputs[from][i];
    }
  }
  Integers joined;
  for (const Integers& input : inputs) joined.insert(joined.end(), input.begin(), input.end());
  for (std::size_t to = 0; to < size; ++to) {
    const auto part = [&](const Integers& of) {
      const auto first = of.begin() + static_cast<std::ptrdiff_t>(total_of(counts, to));
      return Integers(first, first + static_cast<std::ptrdiff_t>(counts[to]));
    };
    switch (phase.collective) {
      case Collective::kAllreduce:
        outputs[to] = added;
        break;
      case Collective::kReduce:
        if (to == root) outputs[to] = added;
        break;
      case Collective::kReduceScatter:
        outputs[to] = part(added);
        break;
      case Collective::kBroadcast:
        outputs[to] = inputs[root];
        break;
      case Collective::kScatter:
        outputs[to] = part(inputs[root]);
        break;
      case Collective::kGather:
        if (to == root) outputs[to] = joined;
        break;
      case Collective::kAllgather:
        outputs[to] = joined;
        break;
      case Collective::kAlltoall:
        outputs[to].clear();
        for (std::size_t from = 0; from < size; ++from) {
          const auto first = inputs[from].begin() + static_cast<std::ptrdiff_t>(total_of(sent[from], to));
          outputs[to].insert(outputs[to].end(), first, first + static_cast<std::ptrdiff_t>(sent[from][to]));
        }
        break;
      case Collective::kBarrier:
        break;
    }
  }
}

}  // namespace

std::size_t total_of(const PartCounts& counts) {
  return total_of(counts, counts.size());
}

PlannedRanks::PlannedRanks(const HierarchicalQuery& query, const std::vector<int>& host_of_rank) : query_(query) {
  for (int rank = 0; rank < static_cast<int>(host_of_rank.size()); ++rank) {
    Side side;
    side.hierarchy = Hierarchy::of(host_of_rank, rank);
    side.plan = plan_hierarchical(query, side.hierarchy);
    side.input.resize(input_count(rank, host_of_rank.size()));
    for (std::size_t i = 0; i < side.input.size(); ++i) side.input[i] = number(rank, i);
    side.output.assign(output_count(rank), kUnwritten);
    if (query.collective == Collective::kBroadcast) side.output = rank == query.root ? side.input : side.output;
    side.scratch.assign(side.plan.scratch_count, kUnwritten);
    side.is_complete.resize(side.plan.phases.size());
    sides_.push_back(std::move(side));
  }
}

bool PlannedRanks::run() {
  for (bool moved = true; moved && !testing::Test::HasFatalFailure();) {
    moved = false;
    for (int rank = 0; rank < size(); ++rank) {
      for (const auto where : {HierarchicalPhase::Where::kInside, HierarchicalPhase::Where::kAcross}) {
        moved = run_phase_of(rank, where) || moved;
      }
    }
  }
  return std::all_of(sides_.begin(), sides_.end(), [](const Side& side) {
    return std::all_of(side.is_complete.begin(), side.is_complete.end(), [](bool complete) { return complete; });
  });
}

std::string PlannedRanks::difference() const {
  for (int rank = 0; rank < size(); ++rank) {
    const Integers& output = at(rank).output;
    const Integers wanted = expected(rank);
    if (output.size() != wanted.size()) return fmt::format("rank {} has {} elements", rank, output.size());
    for (std::size_t i = 0; i < output.size(); ++i) {
      if (output[i] != wanted[i])
        return fmt::format("rank {}: element {} is {}, not {}", rank, i, output[i], wanted[i]);
    }
  }
  return {};
}

std::size_t PlannedRanks::crossed(int from, int to) const {
  const auto found = crossed_.find({from, to});
  return found == crossed_.end() ? 0 : found->second;
}

std::size_t PlannedRanks::most_inside_phases() const {
  std::size_t most = 0;
  for (const Side& side : sides_) {
    const auto is_inside = [](const auto& phase) { return phase.where == HierarchicalPhase::Where::kInside; };
    const auto& phases = side.plan.phases;
    most = std::max(most, static_cast<std::size_t>(std::count_if(phases.begin(), phases.end(), is_inside)));
  }
  return most;
}

std::size_t PlannedRanks::input_count(int rank, std::size_t size) const {
  const auto own = static_cast<std::size_t>(rank);
  switch (query_.collective) {
    case Collective::kAllgather:
    case Collective::kGather:
      return query_.counts[own];
    case Collective::kScatter:
      return rank == query_.root ? total_of(query_.counts) : 0;
    case Collective::kReduceScatter:
      return total_of(query_.counts);
    case Collective::kAlltoall:
      return size * query_.counts.front();
    default:
      return query_.count;
  }
}

std::size_t PlannedRanks::output_count(int rank) const {
  switch (query_.collective) {
    case Collective::kAllgather:
    case Collective::kAlltoall:
      return total_of(query_.counts);
    case Collective::kGather:
      return rank == query_.root ? total_of(query_.counts) : 0;
    case Collective::kReduce:
      return rank == query_.root ? query_.count : 0;
    case Collective::kScatter:
    case Collective::kReduceScatter:
      return query_.counts[static_cast<std::size_t>(rank)];
    default:
      return query_.count;
  }
}

Integers PlannedRanks::expected(int rank) const {
  Integers all;
  const auto own = static_cast<std::size_t>(rank);
  for (std::size_t i = 0; i < at(rank).output.size(); ++i) {
    std::size_t index = i;
    int from = std::max(query_.root, 0);
    std::int64_t added = 0;
    switch (query_.collective) {
      case Collective::kAllgather:
      case Collective::kGather:
        for (from = 0; index >= query_.counts[static_cast<std::size_t>(from)]; ++from) {
          index -= query_.counts[static_cast<std::size_t>(from)];
        }
        break;
      case Collective::kAlltoall:
        from = static_cast<int>(i / query_.counts.front());
        index = own * query_.counts.front() + i % query_.counts.front();
        break;
      case Collective::kScatter:
      case Collective::kReduceScatter:
        index += total_of(query_.counts, own);
        break;
      default:
        break;
    }
    for (int other = 0; other < size(); ++other) added += number(other, index);
    all.push_back(reduces(query_.collective) ? added : number(from, index));
  }
  return all;
}

int PlannedRanks::next_phase(int rank, HierarchicalPhase::Where where) const {
  const Side& side = at(rank);
  for (std::size_t i = 0; i < side.plan.phases.size(); ++i) {
    const HierarchicalPhase& phase = side.plan.phases[i];
    if (side.is_complete[i] || phase.where != where) continue;
    const bool may_begin = phase.after < 0 || side.is_complete[static_cast<std::size_t>(phase.after)];
    return may_begin ? static_cast<int>(i) : -1;
  }
  return -1;
}

Integers& PlannedRanks::memory(int rank, PlaceMemory which) {
  return which == PlaceMemory::kInput    ? at(rank).input
         : which == PlaceMemory::kOutput ? at(rank).output
                                         : at(rank).scratch;
}

Integers PlannedRanks::read(int rank, const PlanPlace& place, std::size_t count) {
  if (count == 0) return {};
  const Integers& from = memory(rank, place.memory);
  EXPECT_LE(place.first + count, from.size());
  const auto first = from.begin() + static_cast<std::ptrdiff_t>(place.first);
  Integers values(first, first + static_cast<std::ptrdiff_t>(count));
  EXPECT_EQ(std::count(values.begin(), values.end(), kUnwritten), 0) << "rank " << rank << " reads what is not there";
  return values;
}

void PlannedRanks::write(int rank, const PlanPlace& place, const Integers& values) {
  if (values.empty()) return;
  ASSERT_NE(place.memory, PlaceMemory::kInput);
  ASSERT_NE(place.memory, PlaceMemory::kNone);
  Integers& to = memory(rank, place.memory);
  ASSERT_LE(place.first + values.size(), to.size());
  std::copy(values.begin(), values.end(), to.begin() + static_cast<std::ptrdiff_t>(place.first));
}

void PlannedRanks::copy(int rank, const std::vector<PlanCopy>& copies) {
  for (const PlanCopy& one : copies) write(rank, one.to, read(rank, one.from, one.count));
}

bool PlannedRanks::run_phase_of(int rank, HierarchicalPhase::Where where) {
  const Side& side = at(rank);
  const bool is_inside = where == HierarchicalPhase::Where::kInside;
  const std::vector<int> members = is_inside ? side.hierarchy.ranks_of(side.hierarchy.host) : side.plan.across;
  std::vector<int> indices;
  for (const int member : members) indices.push_back(next_phase(member, where));
  if (indices.empty() || std::count(indices.begin(), indices.end(), -1) > 0) return false;
  std::vector<Integers> inputs, outputs;
  std::vector<PartCounts> sent;
  const HierarchicalPhase& first = at(members[0]).plan.phases[static_cast<std::size_t>(indices[0])];
  for (std::size_t i = 0; i < members.size(); ++i) {
    const HierarchicalPhase& phase = at(members[i]).plan.phases[static_cast<std::size_t>(indices[i])];
    copy(members[i], phase.before);
    EXPECT_EQ(phase.collective, first.collective);
    EXPECT_EQ(phase.root, first.root);
    EXPECT_EQ(phase.total, first.total);
    EXPECT_TRUE(phase.counts == first.counts || phase.collective == Collective::kAlltoall);
    // The others' is nobody's concern.
    const bool has_input = (phase.collective != Collective::kBroadcast && phase.collective != Collective::kScatter) ||
                           static_cast<int>(i) == phase.root;
    inputs.push_back(has_input ? read(members[i], phase.input, phase.input_count) : Integers());
    outputs.emplace_back(phase.output_count, kUnwritten);
    const PartCounts equal(members.size(), phase.input_count / members.size());
    sent.push_back(phase.counts.empty() ? equal : phase.counts);
    if (!is_inside) note_crossing(members, static_cast<int>(i), phase, sent.back());
  }
  run_reference(first, inputs, outputs, sent);
  for (std::size_t i = 0; i < members.size(); ++i) {
    Side& other = at(members[i]);
    const HierarchicalPhase& phase = other.plan.phases[static_cast<std::size_t>(indices[i])];
    EXPECT_EQ(outputs[i].size(), phase.output_count) << name(phase.collective);
    if (std::count(outputs[i].begin(), outputs[i].end(), kUnwritten) == 0) write(members[i], phase.output, outputs[i]);
    copy(members[i], phase.results);
    other.is_complete[static_cast<std::size_t>(indices[i])] = true;
  }
  return true;
}

void PlannedRanks::note_crossing(const std::vector<int>& members, int index, const HierarchicalPhase& phase,
                                 const PartCounts& sent) {
  const auto own = static_cast<std::size_t>(index);
  for (int to = 0; to < static_cast<int>(members.size()); ++to) {
    const auto other = static_cast<std::size_t>(to);
    if (to == index) continue;
    if (phase.collective == Collective::kAllgather) crossed_[{index, to}] += sent[own];
    if (phase.collective == Collective::kGather && to == phase.root) crossed_[{index, to}] += sent[own];
    if (phase.collective == Collective::kScatter && index == phase.root) crossed_[{index, to}] += sent[other];
    if (phase.collective == Collective::kAlltoall) crossed_[{index, to}] += sent[other];
  }
  if (index == 0) crossed_by_parts_ += phase.input_count;
}

}  // namespace farandole
