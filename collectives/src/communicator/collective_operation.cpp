// SPDX-License-Identifier: Apache-2.0
#include "communicator/collective_operation.h"

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <numeric>
#include <utility>

#include "farandole/core/reduce.h"
#include "messages/call_comparison.h"
#include "messages/hierarchical_allreduce.h"
#include "shared_memory/shm_operation.h"

namespace farandole {
namespace {

std::uintptr_t address(const void* memory) {
  return reinterpret_cast<std::uintptr_t>(memory);
}

}  // namespace

CollectiveOperation::CollectiveOperation(const Group& group, const ShmContext& host, const Call& call,
                                         Selection selection, std::uint64_t sequence, VendorSlot& vendor, bool check,
                                         std::string validation_error, bool arrived)
    : group_(group),
      host_(host),
      call_(call),
      selection_(selection),
      sequence_(sequence),
      lane_(static_cast<std::uint8_t>(sequence % kLanes)),
      vendor_(vendor),
      check_(check && group.size() > 1),
      arrived_(arrived),
      validation_error_(std::move(validation_error)),
      descriptor_(describe_call(call_, selection_, group.size(), validation_error_.empty())) {
  if (selection_.is_vendor()) vendor_.waiting.insert(sequence_);
  phase_ = selection_.uses_shared_memory() ? Phase::kSharedMemory : check_ ? Phase::kCheck : Phase::kRun;
}

CollectiveOperation::~CollectiveOperation() {
  // Messages are withdrawn before the memory that they use goes.
  running_.reset();
  vendor_transfer_.reset();
  leave_communicator();
}

void CollectiveOperation::leave_communicator() {
  if (host_.group) host_.group->withdraw(2 * sequence_);
  if (selection_.is_vendor()) vendor_.waiting.erase(sequence_);
}

Aftermath CollectiveOperation::withdraw() {
  auto worst = running_ ? running_->withdraw() : Aftermath::kNone;
  if (vendor_transfer_) worst = std::max(worst, vendor_transfer_->withdraw());
  // It will not be destroyed.
  if (worst != Aftermath::kNone) leave_communicator();
  return worst;
}

Operation::State CollectiveOperation::advance() {
  bool moved = false;
  while (phase_ != Phase::kDone) {
    const State state = advance_phase();
    moved = moved || state != State::kWaiting;
    if (state != State::kDone) return moved ? State::kMoved : State::kWaiting;
  }
  return State::kDone;
}

/// kDone: the phase has ended, and another one has begun.
Operation::State CollectiveOperation::advance_phase() {
  if (phase_ == Phase::kVendor) {
    if (!vendor_transfer_) begin_vendor();
    if (!vendor_transfer_ || !vendor_transfer_->test()) return State::kWaiting;
    const double factor = final_scale(call_, group_.size());
    if (factor != 1.0) scale(call_.output.data, call_.output.data, call_.output.count, call_.output.dtype, factor);
    phase_ = Phase::kDone;
    return State::kDone;
  }
  if (!running_) {
    if (phase_ == Phase::kExchangeCounts) begin_count_exchange();
    if (phase_ == Phase::kCheck || phase_ == Phase::kCheckCounts) begin_check();
    if (phase_ == Phase::kSharedMemory) begin_shared_memory();
    if (phase_ == Phase::kRun) begin_run();
    if (phase_ == Phase::kVendor) return State::kDone;
  }
  const State state = running_->advance();
  if (state != State::kDone) return state;
  running_.reset();
  end_phase();
  return State::kDone;
}

void CollectiveOperation::end_phase() {
  switch (phase_) {
    case Phase::kCheck:
      // Comparing descriptors is a dissemination among all ranks, which is all that a barrier needs.
      if (call_.collective == Collective::kBarrier) {
        phase_ = Phase::kDone;
      } else {
        phase_ = call_.collective == Collective::kAlltoall && call_.is_uneven() ? Phase::kExchangeCounts : Phase::kRun;
      }
      break;
    case Phase::kExchangeCounts:
      end_count_exchange();
      phase_ = Phase::kCheckCounts;
      break;
    case Phase::kCheckCounts:
      phase_ = Phase::kRun;
      break;
    default:
      deliver();
      phase_ = Phase::kDone;
  }
}

void CollectiveOperation::begin_count_exchange() {
  const std::vector<std::size_t> counts = parts_of(call_, group_.size()).to_vector();
  sent_counts_.assign(counts.begin(), counts.end());
  received_counts_.assign(counts.size(), 0);
  Execution execution;
  execution.prepared = ScheduleCache::of_process().get(*selection_.algorithm, {group_.rank, group_.size(), 0}, 1);
  execution.offsets.resize(2 * counts.size() + 1);
  std::iota(execution.offsets.begin(), execution.offsets.end(), std::size_t{0});
  execution.dtype = DType::kI64;
  execution.lane = lane_;
  execution.input = address(sent_counts_.data());
  execution.data = address(received_counts_.data()) - counts.size() * sizeof(std::uint64_t);
  running_ = std::make_unique<Executor>(group_, std::move(execution));
}

void CollectiveOperation::end_count_exchange() {
  const Parts expected = recv_parts_of(call_, group_.size());
  for (std::size_t peer = 0; peer < received_counts_.size(); ++peer) {
    if (received_counts_[peer] == expected[peer]) continue;
    disagreement_ = fmt::format("alltoall: rank {} sends {} elements to rank {}, which expects {}; no data was touched",
                                peer, received_counts_[peer], group_.rank, expected[peer]);
    descriptor_.algorithm = Descriptor::kRefused;
    return;
  }
}

void CollectiveOperation::begin_shared_memory() {
  running_ = std::make_unique<ShmOperation>(group_, *host_.whole(), call_, descriptor_, 2 * sequence_,
                                            ShmOperation::Purpose::kCollective, arrived_);
}

/// Through the host's memory where there is some: ranks that chose different algorithms must meet in the same place.
std::unique_ptr<Operation> CollectiveOperation::make_comparison() {
  if (host_.whole() == nullptr) return std::make_unique<CallComparison>(group_, lane_, sequence_, descriptor_);
  const std::uint64_t number = 2 * sequence_ + static_cast<std::uint64_t>(comparisons_++);
  auto comparison = std::make_unique<ShmOperation>(group_, *host_.whole(), call_, descriptor_, number,
                                                   ShmOperation::Purpose::kComparison);
  // Of the counts, once they have been exchanged.
  const bool is_followed = call_.collective == Collective::kAlltoall && call_.is_uneven() && comparisons_ == 1;
  if (is_followed) comparison->set_followed_by(number + 1);
  return comparison;
}

void CollectiveOperation::begin_check() {
  // Checks by messages end in any order, and what follows in shared memory then begins in that order.
  if (selection_.is_hierarchical() && host_.group) host_.group->announce(2 * sequence_);
  auto comparison = make_comparison();
  if (validation_error_.empty() && disagreement_.empty()) {
    running_ = std::move(comparison);
  } else {
    refuse_after(std::move(comparison));
  }
}

/// This rank has its own error to raise, but compares first, so that its peers learn of it.
void CollectiveOperation::refuse_after(std::unique_ptr<Operation> comparison) {
  class Refusing final : public Operation {
   public:
    Refusing(std::unique_ptr<Operation> check, const std::string& validation_error, const std::string& disagreement)
        : check_(std::move(check)), validation_error_(validation_error), disagreement_(disagreement) {}
    State advance() override {
      State state = State::kDone;
      try {
        state = check_->advance();
      } catch (const Mismatch&) {
        state = State::kDone;  // what follows says more
      }
      if (state != State::kDone) return state;
      if (!validation_error_.empty()) throw InvalidArgument(validation_error_);
      throw Mismatch(disagreement_);
    }
    std::vector<int> waits_for() const override { return check_->waits_for(); }
    Aftermath withdraw() override { return check_->withdraw(); }

   private:
    std::unique_ptr<Operation> check_;
    const std::string &validation_error_, &disagreement_;
  };
  running_ = std::make_unique<Refusing>(std::move(comparison), validation_error_, disagreement_);
}

void CollectiveOperation::begin_run() {
  if (!validation_error_.empty()) throw InvalidArgument(validation_error_);
  if (selection_.is_vendor()) {
    phase_ = Phase::kVendor;
    return;
  }
  if (selection_.is_hierarchical()) {
    running_ = std::make_unique<HierarchicalAllreduce>(group_, *host_.hierarchy, host_.group.get(), call_, descriptor_,
                                                       sequence_);
    return;
  }
  running_ = std::make_unique<Executor>(group_, plan());
}

void CollectiveOperation::begin_vendor() {
  if (*vendor_.waiting.begin() != sequence_) return;  // an earlier one has not started yet
  VendorCollectives* const vendor = vendor_.collectives();
  if (vendor == nullptr) return;
  vendor_.waiting.erase(sequence_);
  if (!vendor->supports(call_.input.dtype, call_.op)) {
    throw Unsupported(fmt::format("the vendor's allreduce does not support {} of {}; choose another algorithm",
                                  name(call_.op), name(call_.input.dtype)));
  }
  const void* input = call_.input.data;
  if (call_.prescale != 1.0) {
    scale(call_.output.data, input, call_.input.count, call_.input.dtype, call_.prescale);
    input = call_.output.data;
  }
  vendor_transfer_ = vendor->allreduce(input, call_.output.data, call_.input.count, call_.input.dtype, call_.op);
}

Execution CollectiveOperation::plan() {
  Execution execution;
  const Place place{group_.rank, group_.size(), std::max(call_.root, 0)};
  execution.prepared = ScheduleCache::of_process().get(*selection_.algorithm, place, selection_.segments);
  execution.dtype = call_.input.dtype;
  execution.op = call_.op;
  execution.final_scale = final_scale(call_, group_.size());
  execution.lane = lane_;
  const Schedule& schedule = execution.prepared->schedule;
  const std::size_t granularity = std::max<std::size_t>(1, 64 / size_in_bytes(call_.input.dtype));
  switch (call_.collective) {
    case Collective::kBarrier:
      execution.offsets = offsets_of(std::vector<std::size_t>{1}, 1, 1);
      execution.input = execution.data = address(&token_);
      break;
    case Collective::kAllreduce:
    case Collective::kBroadcast:
    case Collective::kReduce: {
      execution.offsets = balanced_offsets(call_.input.count, schedule.chunks, schedule.segments, granularity);
      stage_input(execution);
      const bool has_result = call_.collective != Collective::kReduce || group_.rank == call_.root;
      place_data(execution, has_result ? call_.output.data : nullptr, 0, has_result ? schedule.pieces() : 0);
      break;
    }
    case Collective::kAllgather:
    case Collective::kGather:
    case Collective::kReduceScatter:
    case Collective::kScatter:
      execution.offsets = offsets_of(parts_of(call_, group_.size()).to_vector(), schedule.segments, granularity);
      plan_chunk_result(execution, call_.collective != Collective::kScatter || group_.rank == call_.root);
      break;
    case Collective::kAlltoall: {
      std::vector<std::size_t> counts = parts_of(call_, group_.size()).to_vector();
      const std::vector<std::size_t> recv_counts = recv_parts_of(call_, group_.size()).to_vector();
      counts.insert(counts.end(), recv_counts.begin(), recv_counts.end());
      execution.offsets = offsets_of(counts, schedule.segments, granularity);
      stage_input(execution);
      const int half = schedule.pieces() / 2;
      place_data(execution, call_.output.data, half, half);
      break;
    }
  }
  return execution;
}

/// The collectives in which a rank owns one chunk, on one side or the other.
void CollectiveOperation::plan_chunk_result(Execution& execution, bool has_input) {
  const Schedule& schedule = execution.prepared->schedule;
  const int own = group_.rank * schedule.segments;
  const std::size_t own_bytes = execution.offsets[static_cast<std::size_t>(own)] * size_in_bytes(call_.input.dtype);
  const bool gathers = call_.collective == Collective::kAllgather || call_.collective == Collective::kGather;
  if (has_input) stage_input(execution);
  if (gathers) {
    execution.input -= own_bytes;
    const bool has_result = call_.collective == Collective::kAllgather || group_.rank == call_.root;
    place_data(execution, has_result ? call_.output.data : nullptr, 0, has_result ? schedule.pieces() : 0);
    execution.first_result = own;
    execution.result_pieces = has_result ? schedule.segments : 0;
  } else {
    place_data(execution, call_.output.data, own, schedule.segments);
  }
}

/// Lets the result's pieces lie at `memory`, or, where the schedule writes others too, all of them in memory of the
/// operation, from which the result is delivered at the end.
void CollectiveOperation::place_data(Execution& execution, void* memory, int first_piece, int pieces) {
  const PreparedSchedule& prepared = *execution.prepared;
  const std::size_t element = size_in_bytes(call_.input.dtype);
  const std::size_t first_byte = execution.offsets[static_cast<std::size_t>(first_piece)] * element;
  const int end_piece = first_piece + pieces;
  const std::size_t end_byte = execution.offsets[static_cast<std::size_t>(end_piece)] * element;
  execution.first_result = first_piece;
  execution.result_pieces = call_.collective == Collective::kAlltoall ? 0 : pieces;
  const bool writes_nothing = prepared.end_written == prepared.first_written;
  if (writes_nothing || (prepared.first_written >= first_piece && prepared.end_written <= end_piece)) {
    execution.data = address(memory) - first_byte;
    return;
  }
  whole_ = Scratch(execution.offsets.back() * element);
  execution.data = address(whole_.data());
  delivery_ = {whole_.data() + first_byte, end_byte - first_byte};
}

void CollectiveOperation::stage_input(Execution& execution) {
  const ConstBufferView& input = call_.input;
  execution.input = address(input.data);
  const bool overwritten = call_.collective == Collective::kAlltoall && input.data == call_.output.data;
  if (call_.prescale == 1.0 && !overwritten) return;
  if (call_.collective == Collective::kAllreduce) {
    scale(call_.output.data, input.data, input.count, input.dtype, call_.prescale);
    execution.input = address(call_.output.data);
    return;
  }
  staged_ = Scratch(input.size_in_bytes());
  if (overwritten) {
    if (staged_.size() > 0) std::memcpy(staged_.data(), input.data, staged_.size());
  } else {
    scale(staged_.data(), input.data, input.count, input.dtype, call_.prescale);
  }
  execution.input = address(staged_.data());
}

void CollectiveOperation::deliver() {
  if (delivery_.bytes > 0) std::memcpy(call_.output.data, delivery_.from, delivery_.bytes);
}

std::vector<int> CollectiveOperation::waits_for() const {
  if (running_) return running_->waits_for();
  return phase_ == Phase::kVendor ? group_.members : std::vector<int>{};
}

}  // namespace farandole
