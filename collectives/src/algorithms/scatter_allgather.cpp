// SPDX-License-Identifier: Apache-2.0
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
/// half. Inner ranks of the tree hold more than their own chunk after the scatter and receive these chunks again: the
/// allgather treats all ranks alike.
/// Rounds: 2⌈log₂P⌉.  Sent per rank: up to 2N(P-1)/P (the root).
/// Source: van de Geijn's scatter-allgather as in Thakur, Rabenseifner & Gropp, IJHPCA 19(1), 2005, with the allgather
/// of Träff, arXiv 2410.14234, 2024.
Schedule scatter_allgather_broadcast(const Place& at, int segments) {
  ScheduleBuilder schedule(at, /*chunks=*/at.size, segments);
  binomial_scatter_phase(schedule, at, segments, 0);
  circulant_allgather_phase(schedule, at, segments, ceil_log2(at.size));
  return std::move(schedule).build();
}

}  // namespace

std::span<const Algorithm> scatter_allgather_family() {
  static constexpr Algorithm kRows[] = {
      {.collective = Collective::kBroadcast,
       .name = "scatter_allgather",
       .title = "Binomial scatter, circulant allgather",
       .make = scatter_allgather_broadcast,
       .cost = scatter_allgather_cost,
       .logarithmic = true},
  };
  return kRows;
}

}  // namespace farandole
