// SPDX-License-Identifier: Apache-2.0
#include "farandole/collectives/verifier.h"

#include <fmt/format.h>

#include <algorithm>

#include "schedule/verifier_rank.h"
#include "schedule/verifier_simulation.h"

namespace farandole {
namespace {

void count_cost(const std::vector<Schedule>& schedules, Verdict& verdict) {
  for (const Schedule& schedule : schedules) {
    for (const Step& step : schedule.steps) {
      verdict.max_dependencies = std::max(verdict.max_dependencies, static_cast<int>(step.after.size()));
      if (step.is_message()) verdict.rounds = std::max(verdict.rounds, step.round + 1);
      if (step.kind == StepKind::kSend) {
        ++verdict.messages;
        verdict.pieces_sent += step.operand.count;
      }
      if (step.kind == StepKind::kRecvReduce || step.kind == StepKind::kReduce) {
        verdict.pieces_reduced += step.target.count;
      }
    }
  }
}

}  // namespace

Verdict verify(Collective collective, const std::vector<Schedule>& schedules) {
  Verdict verdict;
  try {
    for (std::size_t rank = 0; rank < schedules.size(); ++rank) {
      if (schedules[rank].place.size != static_cast<int>(schedules.size())) {
        throw verification::Fault(fmt::format("rank {}: its schedule is for {} ranks, not {}", rank,
                                              schedules[rank].place.size, schedules.size()));
      }
      verification::check_rank(collective, schedules[rank], schedules.front(), static_cast<int>(rank));
    }
    verification::Simulation(collective, schedules).run();
  } catch (const verification::Fault& fault) {
    verdict.correct = false;
    verdict.fault = fault.what();
  }
  count_cost(schedules, verdict);
  return verdict;
}

Verdict verify(const Algorithm& algorithm, int size, int root, int segments) {
  std::vector<Schedule> schedules;
  schedules.reserve(static_cast<std::size_t>(size));
  for (int rank = 0; rank < size; ++rank) {
    schedules.push_back(algorithm.make({rank, size, root}, segments));
  }
  Verdict verdict = verify(algorithm.collective, schedules);
  const AlgorithmCost cost = algorithm.cost({0, size, root}, segments);
  if (!verdict.correct) return verdict;
  if (schedules.front().chunks != algorithm.chunks(size)) {
    verdict.fault =
        fmt::format("the schedule has {} chunks, the table says {}", schedules.front().chunks, algorithm.chunks(size));
  } else if (verdict.rounds != cost.rounds || verdict.messages != cost.messages ||
             verdict.pieces_sent != cost.pieces_sent || verdict.pieces_reduced != cost.pieces_reduced) {
    verdict.fault =
        fmt::format("{} rounds, {} messages, {} pieces sent and {} reduced; the formula says {}, {}, {} and {}",
                    verdict.rounds, verdict.messages, verdict.pieces_sent, verdict.pieces_reduced, cost.rounds,
                    cost.messages, cost.pieces_sent, cost.pieces_reduced);
  }
  verdict.correct = verdict.fault.empty();
  return verdict;
}

}  // namespace farandole
