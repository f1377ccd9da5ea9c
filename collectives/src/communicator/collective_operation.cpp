// SPDX-License-Identifier: Apache-2.0
#include "communicator/collective_operation.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "messages/call_comparison.h"
#include "messages/scheduled_collective.h"
#include "operation/average.h"
#include "shared_memory/shm_operation.h"

namespace farandole {
namespace {

/// Comparison by a rank that refuses its own call. The peers learn of the refusal by the comparison; then this rank
/// throws its own error.
class RefusedComparison final : public Operation {
 public:
  RefusedComparison(std::unique_ptr<Operation> check, const std::string& validation_error,
                    const std::string& disagreement)
      : check_(std::move(check)), validation_error_(validation_error), disagreement_(disagreement) {}
  State advance() override {
    State state = State::kDone;
    try {
      state = check_->advance();
    } catch (const Mismatch&) {
      state = State::kDone;  // the error below is more specific
    }
    if (state != State::kDone) return state;
    if (!validation_error_.empty()) throw InvalidArgument(validation_error_);
    throw Mismatch(disagreement_);
  }
  std::vector<int> waits_for() const override { return check_->waits_for(); }
  BufferHazard withdraw() override { return check_->withdraw(); }

 private:
  std::unique_ptr<Operation> check_;
  const std::string &validation_error_, &disagreement_;
};

}  // namespace

CollectiveOperation::CollectiveOperation(const Group& group, const ShmContext& host, const PreparedCall& prepared,
                                         std::uint64_t sequence, VendorSlots slots, bool has_arrived)
    : group_(group),
      host_(host),
      call_(prepared.call),
      prepared_(prepared, call_),
      sequence_(sequence),
      slots_(slots),
      has_arrived_(has_arrived),
      phase_(group.compares && group.size() > 1 && !prepared_.selection.method->compares_calls ? Phase::kCheck
                                                                                               : Phase::kRun) {
  const Method& method = *prepared_.selection.method;
  if (method.created_before_comparison) created_early_ = method.make(inputs());
}

CollectiveOperation::~CollectiveOperation() {
  // Operations withdraw their messages before the memory of the messages is freed.
  running_.reset();
  created_early_.reset();
  leave_communicator();
}

void CollectiveOperation::leave_communicator() {
  if (host_.group) host_.group->ledger().withdraw(LaneLedger::first_number(sequence_));
  slots_.vendor.withdraw(sequence_);
}

BufferHazard CollectiveOperation::withdraw() {
  const BufferHazard worst = running_ ? running_->withdraw() : BufferHazard::kNone;
  // A transport may still use this operation's memory. So the queue keeps the operation until exit, and its destructor
  // does not run.
  if (worst != BufferHazard::kNone) leave_communicator();
  return worst;
}

Operation::State CollectiveOperation::advance() {
  bool moved = false;
  while (phase_ != Phase::kDone) {
    if (!running_) begin_phase();
    const State state = running_->advance();
    moved = moved || state != State::kWaiting;
    if (state != State::kDone) return moved ? State::kMoved : State::kWaiting;
    running_.reset();
    end_phase();
  }
  return State::kDone;
}

void CollectiveOperation::begin_phase() {
  const Method& method = *prepared_.selection.method;
  if (!is_announced_ && method.announce != nullptr) method.announce(inputs());
  is_announced_ = true;
  switch (phase_) {
    case Phase::kCheck:
    case Phase::kCheckCounts:
      return begin_check();
    case Phase::kExchangeCounts:
      return begin_count_exchange();
    default:
      return begin_run();
  }
}

void CollectiveOperation::end_phase() {
  switch (phase_) {
    case Phase::kCheck:
      // No rank completes the comparison before every rank has begun it: a barrier needs nothing more.
      if (call_.collective == Collective::kBarrier) {
        phase_ = Phase::kDone;
      } else {
        phase_ = call_.exchanges_counts() ? Phase::kExchangeCounts : Phase::kRun;
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
      phase_ = Phase::kDone;
  }
}

MethodInputs CollectiveOperation::inputs() const {
  return {group_,         host_.group.get(), host_.hosts(), host_.plans.get(), slots_.vendor,
          slots_.devices, prepared_,         sequence_,     has_arrived_};
}

void CollectiveOperation::begin_run() {
  if (!prepared_.is_valid()) throw InvalidArgument(prepared_.validation_error);
  running_ = created_early_ ? std::move(created_early_) : make_running();
}

std::unique_ptr<Operation> CollectiveOperation::make_running() {
  const Method& method = *prepared_.selection.method;
  // Methods on devices convert averages themselves.
  const bool sends_sums = method.memory == MemoryKind::kHost && !method.sends_no_partial_sums;
  if (call_.op != ReduceOp::kAverage || !sends_sums) return method.make(inputs());
  const AverageWay way = average_way(call_, group_);
  if (way == AverageWay::kUnchanged) return method.make(inputs());
  return std::make_unique<AverageOperation>(inputs(), way);
}

/// Exchanges the send counts of an uneven alltoall, by an alltoall of one number per rank with the same algorithm.
void CollectiveOperation::begin_count_exchange() {
  const std::vector<std::size_t> counts = prepared_.parts.to_vector();
  counts_.sent.assign(counts.begin(), counts.end());
  counts_.received.assign(counts.size(), 0);
  Call exchange;
  exchange.collective = Collective::kAlltoall;
  exchange.input = {counts_.sent.data(), counts.size(), DType::kI64};
  exchange.output = {counts_.received.data(), counts.size(), DType::kI64};
  running_ = std::make_unique<ScheduledCollective>(group_, exchange, PreparedCall(exchange, group_.size()).bytes,
                                                   Selection::schedule(*prepared_.selection.algorithm, 1), sequence_);
}

void CollectiveOperation::end_count_exchange() {
  const Parts& expected = prepared_.recv_parts;
  for (std::size_t peer = 0; peer < counts_.received.size(); ++peer) {
    if (counts_.received[peer] == expected[peer]) continue;
    counts_.disagreement =
        fmt::format("alltoall: rank {} sends {} elements to rank {}, which expects {}; no data was touched", peer,
                    counts_.received[peer], group_.rank, expected[peer]);
    prepared_.descriptor.algorithm = Descriptor::kRefused;
    return;
  }
}

void CollectiveOperation::begin_check() {
  running_ = make_comparison();
  if (prepared_.is_valid() && counts_.disagreement.empty()) return;
  running_ = std::make_unique<RefusedComparison>(std::move(running_), prepared_.validation_error, counts_.disagreement);
}

/// Compares through shared memory if all ranks share memory, whichever algorithm this rank has selected: ranks that
/// selected different algorithms must find each other's descriptors in the same place.
std::unique_ptr<Operation> CollectiveOperation::make_comparison() {
  const std::uint64_t number = LaneLedger::first_number(sequence_) + static_cast<std::uint64_t>(comparisons_++);
  if (host_.group_of_all() == nullptr) {
    return CallComparison::make(group_, host_.hosts(), host_.group.get(), number, prepared_.descriptor);
  }
  auto comparison = std::make_unique<ShmOperation>(group_, *host_.group_of_all(), prepared_, number,
                                                   ShmOperation::Purpose::kComparison);
  // The comparison of the exchanged counts follows.
  if (call_.exchanges_counts() && comparisons_ == 1) comparison->set_followed_by(number + 1);
  return comparison;
}

std::vector<int> CollectiveOperation::waits_for() const {
  return running_ ? running_->waits_for() : std::vector<int>{};
}

}  // namespace farandole
