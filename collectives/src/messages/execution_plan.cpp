// SPDX-License-Identifier: Apache-2.0
#include "messages/execution_plan.h"

#include <algorithm>

namespace farandole {
namespace {

using Memory = ExecutionPlan::Memory;

class Planner {
 public:
  Planner(const Call& call, const Selection& selection, int rank, int size)
      : call_(call),
        rank_(rank),
        size_(size),
        element_bytes_(size_in_bytes(call.input.dtype)),
        granularity_(std::max<std::size_t>(1, 64 / element_bytes_)) {
    const Place place{rank, size, std::max(call.root, 0)};
    plan_.space = space_of(call);
    plan_.prepared = ScheduleCache::of_process().get(*selection.algorithm, place, selection.segments);
  }

  ExecutionPlan plan() {
    switch (call_.collective) {
      case Collective::kBarrier:
        plan_barrier();
        break;
      case Collective::kAllreduce:
      case Collective::kBroadcast:
      case Collective::kReduce:
        plan_vector();
        break;
      case Collective::kAllgather:
      case Collective::kGather:
        plan_gathered();
        break;
      case Collective::kReduceScatter:
      case Collective::kScatter:
        plan_scattered();
        break;
      case Collective::kAlltoall:
        plan_alltoall();
    }
    return std::move(plan_);
  }

 private:
  const Schedule& schedule() const { return plan_.prepared->schedule; }
  std::size_t byte_of(int piece) const { return plan_.offsets[static_cast<std::size_t>(piece)] * element_bytes_; }

  /// The messages of a barrier carry one byte of any value.
  void plan_barrier() {
    plan_.offsets = offsets_of(std::vector<std::size_t>{1}, 1, 1);
    plan_.staged_bytes = 1;
    plan_.input = plan_.data = {Memory::kStaged, 0};
  }

  void plan_vector() {
    plan_.offsets = balanced_offsets(call_.input.count, schedule().chunks, schedule().segments, granularity_);
    place_input();
    const bool has_result = call_.collective != Collective::kReduce || rank_ == call_.root;
    place_result(0, has_result ? schedule().pieces() : 0);
  }

  /// Allgather and gather: chunk r is the input of rank r.
  void plan_gathered() {
    plan_.offsets = offsets_of(parts_of(call_, size_).to_vector(), schedule().segments, granularity_);
    const int own = rank_ * schedule().segments;
    place_input();
    plan_.input.first_byte = byte_of(own);
    const bool has_result = call_.collective == Collective::kAllgather || rank_ == call_.root;
    place_result(0, has_result ? schedule().pieces() : 0);
    plan_.first_result = own;
    plan_.result_pieces = has_result ? schedule().segments : 0;
  }

  /// Reduce_scatter and scatter: chunk r is the output of rank r.
  void plan_scattered() {
    plan_.offsets = offsets_of(parts_of(call_, size_).to_vector(), schedule().segments, granularity_);
    if (call_.collective == Collective::kReduceScatter || rank_ == call_.root) place_input();
    place_result(rank_ * schedule().segments, schedule().segments);
  }

  /// The first P chunks are sent (chunk r to rank r), the next P chunks are received (from rank r).
  void plan_alltoall() {
    std::vector<std::size_t> counts = parts_of(call_, size_).to_vector();
    const std::vector<std::size_t> recv_counts = recv_parts_of(call_, size_).to_vector();
    counts.insert(counts.end(), recv_counts.begin(), recv_counts.end());
    plan_.offsets = offsets_of(counts, schedule().segments, granularity_);
    place_input();
    const int half = schedule().pieces() / 2;
    place_result(half, half);
    plan_.result_pieces = 0;
  }

  /// Lets the schedule read the caller's input. If the input is scaled or overwritten, the prologue makes a copy, and
  /// the schedule reads the copy.
  void place_input() {
    const bool is_overwritten = call_.collective == Collective::kAlltoall && call_.input.data == call_.output.data;
    plan_.has_prologue = call_.prescale != 1.0 || is_overwritten;
    if (!plan_.has_prologue) return;
    plan_.prologue_target = call_.collective == Collective::kAllreduce ? Memory::kOutput : Memory::kStaged;
    if (plan_.prologue_target == Memory::kStaged) plan_.staged_bytes = call_.input.size_in_bytes();
    plan_.input.memory = plan_.prologue_target;
  }

  /// Lets the schedule write the output directly if it writes pieces of the result only. Otherwise the schedule writes
  /// to Memory::kFullVector, and the epilogue copies the result to the output.
  void place_result(int first_piece, int pieces) {
    const PreparedSchedule& prepared = *plan_.prepared;
    const int end_piece = first_piece + pieces;
    plan_.first_result = first_piece;
    plan_.result_pieces = pieces;
    const bool writes_nothing = prepared.end_written == prepared.first_written;
    if (writes_nothing || (prepared.first_written >= first_piece && prepared.end_written <= end_piece)) {
      plan_.data = {Memory::kOutput, byte_of(first_piece)};
      return;
    }
    plan_.full_vector_bytes = plan_.offsets.back() * element_bytes_;
    plan_.data = {Memory::kFullVector, 0};
    plan_.result_byte = byte_of(first_piece);
    plan_.delivered_bytes = byte_of(end_piece) - plan_.result_byte;
  }

  const Call& call_;
  const int rank_, size_;
  const std::size_t element_bytes_;
  const std::size_t granularity_;  // elements in a cache line
  ExecutionPlan plan_;
};

}  // namespace

ExecutionPlan plan_execution(const Call& call, const Selection& selection, int rank, int size) {
  return Planner(call, selection, rank, size).plan();
}

}  // namespace farandole
