// SPDX-License-Identifier: Apache-2.0
// Plans of hierarchical collectives, simulated on numbers for all ranks together: every rank ends with its result, and
// no more than necessary crosses hosts. No operation runs.
#include "messages/hierarchical_plan.h"

#include <fmt/core.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "operation/call.h"

namespace farandole {
namespace {

using PlanMemory = PlanPlace::Memory;
using Values = std::vector<std::int64_t>;
using PartCounts = std::vector<std::size_t>;

constexpr std::int64_t kUnwritten = -1;

std::size_t total_of(const PartCounts& counts, std::size_t end) {
  return std::accumulate(counts.begin(), counts.begin() + static_cast<std::ptrdiff_t>(end), std::size_t{0});
}
std::size_t total_of(const PartCounts& counts) {
  return total_of(counts, counts.size());
}

/// Element `index` of the input of `rank`.
std::int64_t number(int rank, std::size_t index) {
  return 1'000'000 * (rank + 1) + static_cast<std::int64_t>(index);
}

/// A collective as the standard has it: from the inputs of all ranks to the outputs of all. Ranks without an output are
/// left alone.
void run_reference(const HierarchicalPhase& phase, const std::vector<Values>& inputs, std::vector<Values>& outputs,
                   const std::vector<PartCounts>& sent) {
  const std::size_t size = inputs.size();
  const auto root = static_cast<std::size_t>(std::max(phase.root, 0));
  const PartCounts& counts = phase.counts;
  Values added = inputs.front();
  if (reduces(phase.collective)) {
    for (std::size_t from = 1; from < size; ++from) {
      ASSERT_EQ(inputs[from].size(), added.size());
      for (std::size_t i = 0; i < added.size(); ++i) added[i] += inputs[from][i];
    }
  }
  Values joined;
  for (const Values& input : inputs) joined.insert(joined.end(), input.begin(), input.end());
  for (std::size_t to = 0; to < size; ++to) {
    const auto part = [&](const Values& of) {
      const auto first = of.begin() + static_cast<std::ptrdiff_t>(total_of(counts, to));
      return Values(first, first + static_cast<std::ptrdiff_t>(counts[to]));
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

/// All ranks of a collective.
class PlannedRanks {
 public:
  PlannedRanks(const HierarchicalQuery& query, const std::vector<int>& host_of_rank) : query_(query) {
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

  /// Runs whatever can run, until nothing can. False: some rank is not at its end.
  bool run() {
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

  /// The first wrong element of any rank, or nothing.
  std::string difference() const {
    for (int rank = 0; rank < size(); ++rank) {
      const Values& output = at(rank).output;
      const Values wanted = expected(rank);
      if (output.size() != wanted.size()) return fmt::format("rank {} has {} elements", rank, output.size());
      for (std::size_t i = 0; i < output.size(); ++i) {
        if (output[i] != wanted[i])
          return fmt::format("rank {}: element {} is {}, not {}", rank, i, output[i], wanted[i]);
      }
    }
    return {};
  }

  /// Elements that `from`'s ranks have for the ranks of host `to`, in all phases across; where blocks move.
  std::size_t crossed(int from, int to) const {
    const auto found = crossed_.find({from, to});
    return found == crossed_.end() ? 0 : found->second;
  }
  /// The same, of the whole vector, where vectors move.
  std::size_t crossed_by_parts() const { return crossed_by_parts_; }
  std::size_t most_inside_phases() const {
    std::size_t most = 0;
    for (const Side& side : sides_) {
      const auto is_inside = [](const auto& phase) { return phase.where == HierarchicalPhase::Where::kInside; };
      const auto& phases = side.plan.phases;
      most = std::max(most, static_cast<std::size_t>(std::count_if(phases.begin(), phases.end(), is_inside)));
    }
    return most;
  }

 private:
  struct Side {
    Hierarchy hierarchy;
    HierarchicalPlan plan;
    Values input, output, scratch;
    std::vector<bool> is_complete;
  };
  int size() const { return static_cast<int>(sides_.size()); }
  Side& at(int rank) { return sides_[static_cast<std::size_t>(rank)]; }
  const Side& at(int rank) const { return sides_[static_cast<std::size_t>(rank)]; }

  std::size_t input_count(int rank, std::size_t size) const {
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
  std::size_t output_count(int rank) const {
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
  Values expected(int rank) const {
    Values all;
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

  /// The index of the rank's next phase of that kind; -1: none, or it waits for one of the other kind.
  int next_phase(int rank, HierarchicalPhase::Where where) const {
    const Side& side = at(rank);
    for (std::size_t i = 0; i < side.plan.phases.size(); ++i) {
      const HierarchicalPhase& phase = side.plan.phases[i];
      if (side.is_complete[i] || phase.where != where) continue;
      const bool may_begin = phase.after < 0 || side.is_complete[static_cast<std::size_t>(phase.after)];
      return may_begin ? static_cast<int>(i) : -1;
    }
    return -1;
  }
  Values& memory(int rank, PlanMemory which) {
    return which == PlanMemory::kInput    ? at(rank).input
           : which == PlanMemory::kOutput ? at(rank).output
                                          : at(rank).scratch;
  }
  Values read(int rank, const PlanPlace& place, std::size_t count) {
    if (count == 0) return {};
    const Values& from = memory(rank, place.memory);
    EXPECT_LE(place.first + count, from.size());
    const auto first = from.begin() + static_cast<std::ptrdiff_t>(place.first);
    Values values(first, first + static_cast<std::ptrdiff_t>(count));
    EXPECT_EQ(std::count(values.begin(), values.end(), kUnwritten), 0) << "rank " << rank << " reads what is not there";
    return values;
  }
  void write(int rank, const PlanPlace& place, const Values& values) {
    if (values.empty()) return;
    ASSERT_NE(place.memory, PlanMemory::kInput);
    ASSERT_NE(place.memory, PlanMemory::kNone);
    Values& to = memory(rank, place.memory);
    ASSERT_LE(place.first + values.size(), to.size());
    std::copy(values.begin(), values.end(), to.begin() + static_cast<std::ptrdiff_t>(place.first));
  }
  void copy(int rank, const std::vector<PlanCopy>& copies) {
    for (const PlanCopy& one : copies) write(rank, one.to, read(rank, one.from, one.count));
  }

  /// True if the ranks that take part with this one were all ready for it.
  bool run_phase_of(int rank, HierarchicalPhase::Where where) {
    const Side& side = at(rank);
    const bool is_inside = where == HierarchicalPhase::Where::kInside;
    const std::vector<int> members = is_inside ? side.hierarchy.ranks_of(side.hierarchy.host) : side.plan.across;
    std::vector<int> indices;
    for (const int member : members) indices.push_back(next_phase(member, where));
    if (indices.empty() || std::count(indices.begin(), indices.end(), -1) > 0) return false;
    std::vector<Values> inputs, outputs;
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
      inputs.push_back(has_input ? read(members[i], phase.input, phase.input_count) : Values());
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
      if (std::count(outputs[i].begin(), outputs[i].end(), kUnwritten) == 0)
        write(members[i], phase.output, outputs[i]);
      copy(members[i], phase.results);
      other.is_complete[static_cast<std::size_t>(indices[i])] = true;
    }
    return true;
  }
  void note_crossing(const std::vector<int>& members, int index, const HierarchicalPhase& phase,
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

  const HierarchicalQuery query_;
  std::vector<Side> sides_;
  std::map<std::pair<int, int>, std::size_t> crossed_;
  std::size_t crossed_by_parts_ = 0;
};

std::string text_of(const HierarchicalQuery& query, const std::vector<int>& hosts) {
  return fmt::format("{} on hosts {}, {} elements or counts {}, root {}, {} carriers, {} slices",
                     name(query.collective), hosts, query.count, query.counts, query.root, query.carriers,
                     query.slices);
}

/// Elements that must cross from one host to another, of a collective that moves blocks.
std::size_t necessary(const HierarchicalQuery& query, const Hierarchy& hierarchy, int from, int to) {
  const auto blocks = [&](int host) {
    std::size_t total = 0;
    for (const int rank : hierarchy.ranks_of(host)) total += query.counts[static_cast<std::size_t>(rank)];
    return total;
  };
  const int root_host = is_rooted(query.collective) ? hierarchy.place_of(query.root).host : -1;
  switch (query.collective) {
    case Collective::kAllgather:
      return blocks(from);
    case Collective::kGather:
      return to == root_host ? blocks(from) : 0;
    case Collective::kScatter:
      return from == root_host ? blocks(to) : 0;
    default:
      return static_cast<std::size_t>(hierarchy.local_size(from)) * blocks(to);
  }
}

void expect_right(const HierarchicalQuery& query, const std::vector<int>& hosts) {
  SCOPED_TRACE(text_of(query, hosts));
  PlannedRanks ranks(query, hosts);
  ASSERT_TRUE(ranks.run()) << "ranks wait for each other";
  ASSERT_EQ(ranks.difference(), "");
  EXPECT_LE(ranks.most_inside_phases(), static_cast<std::size_t>(kMaxInsidePhases));
  const Hierarchy hierarchy = Hierarchy::of(hosts, 0);
  if (!query.counts.empty() && query.collective != Collective::kReduceScatter) {
    for (int from = 0; from < hierarchy.host_count(); ++from) {
      for (int to = 0; to < hierarchy.host_count(); ++to) {
        if (from == to) continue;
        EXPECT_EQ(ranks.crossed(from, to), necessary(query, hierarchy, from, to)) << "from " << from << " to " << to;
      }
    }
  } else {
    EXPECT_EQ(ranks.crossed_by_parts(), query.counts.empty() ? query.count : total_of(query.counts))
        << "one vector per host is what crosses";
  }
}

constexpr Collective kCollectives[] = {Collective::kAllreduce, Collective::kBroadcast,     Collective::kReduce,
                                       Collective::kAllgather, Collective::kReduceScatter, Collective::kGather,
                                       Collective::kScatter,   Collective::kAlltoall,      Collective::kBarrier};

HierarchicalQuery query_of(Collective collective, int size, std::mt19937& random) {
  HierarchicalQuery query;
  query.collective = collective;
  const auto draw = [&](std::size_t most) { return random() % (most + 1); };
  if (is_rooted(collective)) query.root = static_cast<int>(draw(static_cast<std::size_t>(size) - 1));
  switch (collective) {
    case Collective::kAllreduce:
    case Collective::kBroadcast:
    case Collective::kReduce:
      query.count = draw(1) == 0 ? draw(10) : draw(300);
      break;
    case Collective::kBarrier:
      break;
    default: {
      const bool is_even = collective == Collective::kAlltoall || draw(1) == 0;
      const std::size_t each = draw(12);
      for (int rank = 0; rank < size; ++rank) query.counts.push_back(is_even ? each : draw(2) * draw(20));
    }
  }
  query.granularity = std::size_t{1} << draw(5);
  query.slices =
      collective == Collective::kAlltoall || collective == Collective::kBarrier ? 1 : 1 + static_cast<int>(draw(3));
  return query;
}

TEST(HierarchicalPlan, GivesEveryResultAndCrossesHostsOnce) {
  const std::vector<std::vector<int>> layouts{{0, 0, 1, 1},    {0, 0, 0, 1},      {0, 1, 1, 2, 2, 2}, {0, 1, 0, 1},
                                              {1, 0, 0},       {0, 0, 1, 1, 1},   {0, 1, 1, 0, 2, 2}, {0, 0, 1, 0, 1},
                                              {2, 0, 1, 1, 0}, {0, 1, 0, 1, 0, 0}};
  std::mt19937 random(7);
  for (const std::vector<int>& hosts : layouts) {
    for (const Collective collective : kCollectives) {
      for (int carriers = 1; carriers <= Hierarchy::of(hosts, 0).min_local_size(); ++carriers) {
        for (int draw = 0; draw < 12; ++draw) {
          HierarchicalQuery query = query_of(collective, static_cast<int>(hosts.size()), random);
          query.carriers = carriers;
          expect_right(query, hosts);
          if (HasFailure()) return;
        }
      }
    }
  }
}

TEST(HierarchicalPlan, HoldsForRandomHosts) {
  const unsigned seed = std::random_device{}();
  std::mt19937 random(seed);
  SCOPED_TRACE(fmt::format("seed {}", seed));
  for (int draw = 0; draw < 600; ++draw) {
    const auto count = 2 + random() % 4;
    std::vector<int> hosts(count);
    std::iota(hosts.begin(), hosts.end(), 0);
    for (auto more = 1 + random() % 9; more > 0; --more) hosts.push_back(static_cast<int>(random() % count));
    std::shuffle(hosts.begin(), hosts.end(), random);
    HierarchicalQuery query =
        query_of(kCollectives[random() % std::size(kCollectives)], static_cast<int>(hosts.size()), random);
    const auto least = static_cast<unsigned>(Hierarchy::of(hosts, 0).min_local_size());
    query.carriers = 1 + static_cast<int>(random() % least);
    expect_right(query, hosts);
    if (HasFailure()) return;
  }
}

/// Long vectors go by connections of their own.
TEST(HierarchicalPlan, AlltoallReportsTheBytesBetweenHosts) {
  const auto total_across = [](const std::vector<int>& hosts, int rank) {
    HierarchicalQuery query;
    query.collective = Collective::kAlltoall;
    query.counts.assign(hosts.size(), 1000);
    query.carriers = Hierarchy::of(hosts, rank).min_local_size();
    for (const HierarchicalPhase& phase : plan_hierarchical(query, Hierarchy::of(hosts, rank)).phases) {
      if (phase.where == HierarchicalPhase::Where::kAcross) return phase.total;
    }
    return std::size_t{0};
  };
  EXPECT_EQ(total_across({0, 0, 1, 1}, 1), 4000U) << "for two ranks of each host, from two";
  EXPECT_EQ(total_across({0, 0, 0, 1}, 0), 8000U) << "a leader has 12000, the other one 4000";
}

TEST(HierarchicalPlan, CarriersOfTheirOwnBlocksDoNotGather) {
  HierarchicalQuery query;
  query.collective = Collective::kAllgather;
  query.counts = {3, 3, 3, 3};
  query.carriers = 2;
  // Round-robin: the carriers' blocks are already in the order of the output.
  const HierarchicalPlan plan = plan_hierarchical(query, Hierarchy::of({0, 1, 0, 1}, 1));
  ASSERT_EQ(plan.phases.size(), 2U);
  EXPECT_EQ(plan.across, (std::vector<int>{0, 1}));
  EXPECT_EQ(plan.phases[0].input, (PlanPlace{PlanMemory::kInput, 0}));
  EXPECT_EQ(plan.phases[1].output, (PlanPlace{PlanMemory::kOutput, 0}));
  EXPECT_TRUE(plan.phases[1].results.empty());
}

TEST(HierarchicalPlan, BlocksInOutputOrderAreReceivedInPlace) {
  HierarchicalQuery query;
  query.collective = Collective::kAllgather;
  query.counts = {3, 4, 0, 5};
  query.carriers = 2;
  const HierarchicalPlan first = plan_hierarchical(query, Hierarchy::of({0, 1, 0, 1}, 1));
  EXPECT_EQ(first.scratch_count, 0U);
  EXPECT_EQ(first.phases[0].output, (PlanPlace{PlanMemory::kOutput, 0}));
  const HierarchicalPlan second = plan_hierarchical(query, Hierarchy::of({0, 1, 0, 1}, 2));
  EXPECT_EQ(second.scratch_count, 0U);
  EXPECT_EQ(second.phases[0].output, (PlanPlace{PlanMemory::kOutput, 7}));
  EXPECT_EQ(second.phases[1].input, (PlanPlace{PlanMemory::kOutput, 7}));
  // The output cannot serve as scratch memory if the carriers' blocks lie in another order.
  query.counts = {3, 4, 1, 5};
  EXPECT_EQ(plan_hierarchical(query, Hierarchy::of({0, 1, 1, 0}, 0)).phases[0].output.memory, PlanMemory::kScratch);
}

TEST(HierarchicalPlan, BlocksOfThisHostDoNotWaitForOtherHosts) {
  HierarchicalQuery query;
  query.collective = Collective::kAllgather;
  query.counts = {3, 3, 3, 3};
  query.carriers = 2;
  const HierarchicalPlan plan = plan_hierarchical(query, Hierarchy::of({0, 0, 1, 1}, 2));
  ASSERT_EQ(plan.phases.size(), 3U);
  EXPECT_EQ(plan.scratch_count, 6U) << "what comes across, and no more";
  int free = 0;
  for (const HierarchicalPhase& phase : plan.phases) {
    EXPECT_TRUE(phase.before.empty() && phase.results.empty()) << "nothing is copied beside the phases";
    if (phase.where == HierarchicalPhase::Where::kAcross || phase.after >= 0) continue;
    ++free;
    EXPECT_EQ(phase.output, (PlanPlace{PlanMemory::kOutput, 6}));
  }
  EXPECT_EQ(free, 1);
}

TEST(HierarchicalPlan, RootSendsAcrossBeforeItsHostHasTheVector) {
  HierarchicalQuery query;
  query.collective = Collective::kBroadcast;
  query.root = 2;
  query.count = 80;
  query.carriers = 2;
  for (int rank = 0; rank < 4; ++rank) {
    const HierarchicalPlan plan = plan_hierarchical(query, Hierarchy::of({0, 0, 1, 1}, rank));
    for (const HierarchicalPhase& phase : plan.phases) {
      if (phase.where == HierarchicalPhase::Where::kInside) continue;
      EXPECT_EQ(phase.after, rank == 3 ? 0 : -1) << rank;
    }
  }
}

TEST(HierarchicalPlan, ASliceIsAcrossWhileTheNextIsInside) {
  HierarchicalQuery query;
  query.collective = Collective::kAllreduce;
  query.count = 80;
  query.carriers = 2;
  query.slices = 4;
  const HierarchicalPlan plan = plan_hierarchical(query, Hierarchy::of({0, 0, 1, 1}, 0));
  int inside = 0;  // phases that begin before the first slice's part across must be complete
  for (const HierarchicalPhase& phase : plan.phases) {
    if (phase.where == HierarchicalPhase::Where::kAcross) continue;
    if (phase.collective == Collective::kAllgather) break;
    ++inside;
  }
  EXPECT_EQ(inside, 2);
}

}  // namespace
}  // namespace farandole
