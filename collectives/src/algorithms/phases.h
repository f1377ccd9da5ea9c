// SPDX-License-Identifier: Apache-2.0
// Phases that more than one family of algorithms uses, and helpers of all families.
//
// A phase is a part of an algorithm that is a collective by itself, for example the reduce-scatter inside an allreduce.
// A phase appends its steps to a schedule under construction; `first_round` is the phase's first round.
#pragma once

#include <algorithm>
#include <bit>

#include "farandole/collectives/algorithms.h"
#include "farandole/collectives/schedule.h"

namespace farandole {

/// ⌈log₂ size⌉: number of doublings from 1 until `size` is reached.
inline int ceil_log2(int size) {
  return std::bit_width(static_cast<unsigned>(size) - 1U);
}

/// `Algorithm::chunks` of algorithms that do not cut the vector into chunks.
inline int one_chunk(int) {
  return 1;
}

/// `Algorithm::chunks` of algorithms with a chunk for each rank.
inline int chunk_per_rank(int size) {
  return size;
}

/// Appends the steps of a phase to a schedule; `first_round` is the phase's first round.
using Phase = void(ScheduleBuilder& schedule, const Place& at, int segments, int first_round);

/// `Algorithm::make` of an algorithm that consists of a single phase.
template <Phase* phase, int (*chunks)(int size) = chunk_per_rank>
Schedule single_phase(const Place& at, int segments) {
  ScheduleBuilder schedule(at, chunks(at.size), segments);
  phase(schedule, at, segments, 0);
  return std::move(schedule).build();
}

/// Rounds of a pipeline of `levels` levels: the first segment takes `levels` rounds, each further segment one more.
inline int pipeline_rounds(int levels, int segments) {
  return levels == 0 ? 0 : levels + segments - 1;
}

/// Cost of two phases, one after the other.
inline AlgorithmCost operator+(const AlgorithmCost& a, const AlgorithmCost& b) {
  return {a.rounds + b.rounds, a.messages + b.messages, a.pieces_sent + b.pieces_sent,
          a.pieces_reduced + b.pieces_reduced};
}

/// Adds to the cost of a phase that every received piece is reduced.
inline AlgorithmCost with_reduction(AlgorithmCost cost) {
  cost.pieces_reduced = cost.pieces_sent;
  return cost;
}

/// Calls act(first piece, number of pieces) for `count` chunks from `first` on, counted modulo P: once, or twice if the
/// range wraps round the last chunk. Sender and receiver pass the same chunks, so both split the range into the same
/// messages.
template <typename Act>
void for_each_range(const Place& at, int first, int count, int segments, const Act& act) {
  const int start = (first % at.size + at.size) % at.size;
  const int before_end = std::min(count, at.size - start);
  act(Piece{start, 0}, before_end * segments);
  if (before_end < count) act(Piece{0, 0}, (count - before_end) * segments);
}

// ---- binomial.cpp. Chunks: P. Rounds: ⌈log₂P⌉.

/// Moves chunk r from rank r to the root, for every r. Each rank forwards the chunks of its subtree together.
void binomial_gather_phase(ScheduleBuilder& schedule, const Place& at, int segments, int first_round);
/// Moves chunk r from the root to rank r, for every r: the gather in reverse.
void binomial_scatter_phase(ScheduleBuilder& schedule, const Place& at, int segments, int first_round);
/// Cost of either phase.
AlgorithmCost binomial_gather_cost(const Place& at, int segments);

// ---- circulant.cpp. Chunks: P. Rounds: ⌈log₂P⌉. Sent per rank: N(P-1)/P.

/// Leaves chunk r, reduced over all ranks and finished, on rank r.
void circulant_reduce_scatter_phase(ScheduleBuilder& schedule, const Place& at, int segments, int first_round);
/// Begins with chunk r on rank r; leaves all chunks on all ranks.
void circulant_allgather_phase(ScheduleBuilder& schedule, const Place& at, int segments, int first_round);
/// Cost of the allgather phase; the reduce-scatter phase also reduces every piece.
AlgorithmCost circulant_cost(const Place& at, int segments);

}  // namespace farandole
