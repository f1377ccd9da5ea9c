// SPDX-License-Identifier: Apache-2.0
// Broadcast and reduce of a long vector in two phases, in which all ranks share the work.
#include <utility>

#include "algorithms/families.h"
#include "algorithms/phases.h"

namespace farandole {
namespace {

AlgorithmCost scatter_allgather_cost(const Place& at, int segments) {
  return binomial_gather_cost(at, segments) + circulant_cost(at, segments);
}

/// Broadcast of a long vector. The root scatters the P chunks of the vector along a binomial tree (binomial.cpp), so
/// that rank r gets chunk r; then all ranks allgather the chunks over a circulant graph (circulant.cpp). The root sends
/// the vector about twice, instead of ⌈log₂P⌉ times as in the binomial broadcast, and all links work in the second
/// half. After the scatter the inner ranks of the tree hold more than their own chunk. They receive the other chunks
/// again, because the allgather treats all ranks alike.
/// Rounds: 2⌈log₂P⌉.  Sent per rank: up to 2N(P-1)/P (the root).
/// Source: van de Geijn's scatter-allgather as in Thakur, Rabenseifner & Gropp, IJHPCA 19(1), 2005, with the allgather
/// of Träff, arXiv 2410.14234, 2024.
Schedule scatter_allgather_broadcast(const Place& at, int segments) {
  ScheduleBuilder schedule(at, /*chunks=*/at.size, segments);
  binomial_scatter_phase(schedule, at, segments, 0);
  circulant_allgather_phase(schedule, at, segments, ceil_log2(at.size));
  return std::move(schedule).build();
}

AlgorithmCost reduce_scatter_gather_cost(const Place& at, int segments) {
  return with_reduction(circulant_cost(at, segments)) + binomial_gather_cost(at, segments);
}

/// Reduce of a long vector. All ranks reduce-scatter the vector over a circulant graph (circulant.cpp), which leaves
/// rank r with chunk r, fully reduced; then the root gathers the chunks along a binomial tree (binomial.cpp). All ranks
/// share the additions, and the root receives the vector about twice, instead of ⌈log₂P⌉ times as in the binomial
/// reduce. This is Rabenseifner's reduce, extended to any P.
/// Rounds: 2⌈log₂P⌉.  Sent per rank: up to N(P-1)/P + N/2.
/// Source: Rabenseifner, ICCS 2004; Träff, arXiv 2410.14234, 2024.
Schedule reduce_scatter_gather_reduce(const Place& at, int segments) {
  ScheduleBuilder schedule(at, /*chunks=*/at.size, segments);
  circulant_reduce_scatter_phase(schedule, at, segments, 0);
  binomial_gather_phase(schedule, at, segments, ceil_log2(at.size));
  return std::move(schedule).build();
}

}  // namespace

std::span<const Algorithm> two_phase_family() {
  static constexpr Algorithm kRows[] = {
      {.collective = Collective::kBroadcast,
       .name = "scatter_allgather",
       .title = "Binomial scatter, circulant allgather",
       .make = scatter_allgather_broadcast,
       .cost = scatter_allgather_cost,
       .logarithmic = true},
      {.collective = Collective::kReduce,
       .name = "reduce_scatter_gather",
       .title = "Circulant reduce-scatter, binomial gather",
       .make = reduce_scatter_gather_reduce,
       .cost = reduce_scatter_gather_cost,
       .logarithmic = true},
  };
  return kRows;
}

}  // namespace farandole
