// SPDX-License-Identifier: Apache-2.0
// Phases that several algorithms are made of. Each one appends its steps to a builder, from round `first_round` on.
#pragma once

#include <vector>

#include "farandole/collectives/schedule.h"

namespace farandole {

/// ⌈log₂ size⌉: how often a distance doubles until it spans `size` ranks.
int ceil_log2(int size);

/// How many chunks a rank holds before, between and after the rounds of a circulant phase: 1, …, size.
using Holdings = std::vector<int>;
/// Träff's: each is the half, rounded up, of the next one.
Holdings halving_holdings(int size);
/// Bruck's: 1, 2, 4, …, size.
Holdings doubling_holdings(int size);

/// Chunks = size. Chunk r of all ranks ends, reduced and finished, on rank r. Rounds: P-1, bytes sent per rank:
/// N(P-1)/P.
void ring_reduce_scatter_phase(ScheduleBuilder& schedule, const Place& at, int segments, int first_round);
/// Chunks = size. From chunk r on rank r to all chunks on all. Rounds: P-1, bytes sent per rank: N(P-1)/P.
void ring_allgather_phase(ScheduleBuilder& schedule, const Place& at, int segments, int first_round);

/// The same two in ⌈log₂P⌉ rounds for any size, over the edges of a circulant graph.
/// Source: Träff, "Optimal, Non-pipelined Reduce-scatter and Allreduce Algorithms", arXiv 2410.14234, 2024;
/// Bruck et al., IEEE TPDS 8(11), 1997.
void circulant_reduce_scatter_phase(ScheduleBuilder& schedule, const Place& at, int segments, int first_round);
void circulant_allgather_phase(ScheduleBuilder& schedule, const Place& at, int segments, int first_round,
                               const Holdings& holdings);

/// Chunks = 1. Reduces to the root, where the segments are finished. Rounds: ⌈log₂P⌉ + segments - 1.
void binomial_reduce_phase(ScheduleBuilder& schedule, const Place& at, int segments, int first_round);
/// Chunks = 1. Rounds: ⌈log₂P⌉ + segments - 1.
void binomial_broadcast_phase(ScheduleBuilder& schedule, const Place& at, int segments, int first_round);

/// Chunks = size. Chunk r goes from rank r to the root, each rank forwarding its subtree's. Rounds: ⌈log₂P⌉.
void binomial_gather_phase(ScheduleBuilder& schedule, const Place& at, int segments, int first_round);
/// The reverse: chunk r goes from the root to rank r.
void binomial_scatter_phase(ScheduleBuilder& schedule, const Place& at, int segments, int first_round);

}  // namespace farandole
