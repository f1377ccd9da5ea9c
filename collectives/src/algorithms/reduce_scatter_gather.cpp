// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "algorithms/families.h"
#include "algorithms/phases.h"

namespace farandole {
namespace {

AlgorithmCost reduce_scatter_gather_cost(const Place& at, int segments) {
  return with_reduction(circulant_cost(at, segments)) + binomial_gather_cost(at, segments);
}

/// Reduce of a long vector. All ranks reduce-scatter the vector over a circulant graph (circulant.cpp), which leaves
/// rank r with chunk r, fully reduced; then the root gathers the chunks along a binomial tree (binomial.cpp). All ranks
/// share the additions, and the root receives the vector about twice, instead of ⌈log₂P⌉ times as in the binomial
/// reduce. Rabenseifner's reduce, for any P.
/// Rounds: 2⌈log₂P⌉.  Sent per rank: up to N(P-1)/P + N/2.
/// Source: Rabenseifner, ICCS 2004; Träff, arXiv 2410.14234, 2024.
Schedule reduce_scatter_gather_reduce(const Place& at, int segments) {
  ScheduleBuilder schedule(at, /*chunks=*/at.size, segments);
  circulant_reduce_scatter_phase(schedule, at, segments, 0);
  binomial_gather_phase(schedule, at, segments, ceil_log2(at.size));
  return std::move(schedule).build();
}

}  // namespace

std::span<const Algorithm> reduce_scatter_gather_family() {
  static constexpr Algorithm kRows[] = {
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
