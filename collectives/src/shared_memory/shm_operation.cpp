// SPDX-License-Identifier: Apache-2.0
#include "shared_memory/shm_operation.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "farandole/core/error.h"
#include "farandole/core/reduce.h"
#include "farandole/internal/copy.h"
#include "operation/method_inputs.h"

namespace farandole {
namespace {

bool has_counts(Collective collective) {
  return collective == Collective::kAllgather || collective == Collective::kGather ||
         collective == Collective::kReduceScatter || collective == Collective::kScatter ||
         collective == Collective::kAlltoall;
}

/// How processes read what is in no window.
std::string explain_single_copies(Collective collective, const Group& group) {
  const std::int64_t least = group.endpoint->settings().single_copy_bytes;
  if (reduces(collective) || least == 0) return "";
  if (!group.endpoint->memory().can_copy()) return "; the kernel does not let the processes read each other's memory";
  return fmt::format("; between processes the kernel copies chunks from {} bytes out of other memory", least);
}

std::string explain_shared_memory(Collective collective, std::size_t bytes, const Group& group) {
  return fmt::format("the ranks live on one host and share memory: {}",
                     bytes <= group.one_shot_bytes
                         ? "one shot, every rank reads what it needs of all others"
                         : fmt::format("two shots, in parts of {} bytes; windows are read and written in place{}",
                                       group.slice_bytes, explain_single_copies(collective, group)));
}

}  // namespace

constinit const Method kShmMethod{
    .name = "shared_memory",
    .number = 0xfd,
    .needs = "several ranks, all on one host, and FARANDOLE_SHARED_MEMORY on",
    .is_preferred = true,
    .compares_calls = true,
    .supports = [](Collective) { return true; },
    .fits = [](const TuningShape& shape) { return shape.ranks > 1 && shape.hosts == 1; },
    .is_available = [](const SelectionQuery& query, bool) { return query.shares_memory; },
    .make = [](const MethodInputs& inputs) -> std::unique_ptr<Operation> {
      return std::make_unique<ShmOperation>(inputs.group, *inputs.host, inputs.call, inputs.descriptor,
                                            2 * inputs.sequence, ShmOperation::Purpose::kCollective,
                                            inputs.has_arrived);
    },
    .explain = explain_shared_memory,
};

ShmOperation::ShmOperation(const Group& group, ShmGroup& host, const Call& call, const Descriptor& descriptor,
                           std::uint64_t number, Purpose purpose, bool arrived)
    : group_(group),
      host_(host),
      call_(call),
      purpose_(purpose),
      arrived_(arrived),
      number_(number),
      lane_(host.lane_of(number)),
      element_bytes_(size_in_bytes(call.input.dtype)),
      total_(total_count(call, host.size())),
      descriptor_(descriptor),
      counted_(purpose == Purpose::kCollective && call.collective == Collective::kAlltoall && call.is_uneven()),
      input_(static_cast<const std::byte*>(call.input.data)),
      output_(static_cast<std::byte*>(call.output.data)),
      // Here, because operations are made in the order of their numbers, or were announced in it.
      previous_(host.begin(lane_, number)) {
  // Ranks whose numbers of calls differ find that, too.
  descriptor_.digest = mix(descriptor_.digest, number);
  digest_ = digest_of(descriptor, number);
  if (purpose == Purpose::kComparison) return;
  stages_own_ = reduces(call.collective) && call.prescale != 1.0;
  if (has_counts(call.collective)) firsts_ = parts_of(call, host.size()).offsets();
  if (call.collective == Collective::kAlltoall) recv_firsts_ = recv_parts_of(call, host.size()).offsets();
  if (!counted_ && bytes(total_) <= host.one_shot_bytes()) {
    one_shot_.emplace(host, lane_, call, firsts_);
  }
}

ShmOperation::~ShmOperation() {
  // Given up after a fault: the caller's buffers may go as soon as no rank touches them.
  if (phase_ != Phase::kDone && host_.by_address()) host_.await_hands_off(lane_);
  host_.end(lane_, followed_by_);
}

Operation::State ShmOperation::advance() {
  switch (phase_) {
    case Phase::kConnect:
      if (!host_.connect()) return State::kWaiting;
      phase_ = Phase::kFree;
      [[fallthrough]];
    case Phase::kFree:
      if (!arrived_) {
        if (host_.first_behind(previous_) >= 0) return State::kWaiting;
        enter();
      }
      phase_ = Phase::kEnter;
      [[fallthrough]];
    case Phase::kEnter:
      if (!all_arrived()) return State::kWaiting;
      if (group_.endpoint->settings().check) {
        if (!is_alike()) {
          describe_call();
          phase_ = Phase::kDescribe;
          return State::kMoved;
        }
        if (counted_) compare_counts();
      }
      if (purpose_ == Purpose::kComparison) {
        phase_ = Phase::kDone;
        return State::kDone;
      }
      if (one_shot_) {
        one_shot_->take();
        phase_ = Phase::kDone;
        return State::kDone;
      }
      choose_way();
      phase_ = Phase::kRun;
      [[fallthrough]];
    case Phase::kRun:
      if (taken_ < plan_.steps()) {
        if (!is_ready(step_)) return State::kWaiting;
        if (!run(step_)) return State::kWaiting;
        if (taken_ < plan_.steps() || plan_.touches_buffers()) return State::kMoved;
      }
      phase_ = Phase::kLeave;
      [[fallthrough]];
    case Phase::kLeave:
      if (plan_.steps() > 0 && plan_.touches_buffers() && !all_reached(plan_.steps(), -1)) return State::kWaiting;
      phase_ = Phase::kDone;
      break;
    case Phase::kDescribe:
      if (!all_described()) return State::kWaiting;
      compare();
      break;
    case Phase::kDone:
      break;
  }
  return State::kDone;
}

/// Publishes the call, and where it is small the data with it.
void ShmOperation::enter() {
  ArrivalRecord& mine = arrival(host_.rank());
  mine.digest.store(digest_, std::memory_order_relaxed);
  mine.completed.store(host_.completed(), std::memory_order_relaxed);
  if (one_shot_) {
    one_shot_->show();
  } else if (purpose_ == Purpose::kCollective) {
    const bool readable = !stages_own_ && !is_exchange_in_place();
    const std::uint64_t place = readable ? host_.locate(input_, call_.input.size_in_bytes()) : ShmGroup::kUnreachable;
    mine.input().store(place, std::memory_order_relaxed);
    mine.output().store(host_.locate(output_, call_.output.size_in_bytes()), std::memory_order_relaxed);
    mine.address().store(readable ? reinterpret_cast<std::uintptr_t>(input_) : ShmGroup::kUnreachable,
                         std::memory_order_relaxed);
    if (counted_) {
      auto* counts = reinterpret_cast<std::uint64_t*>(host_.result_slot(host_.rank(), lane_, 0));
      const Parts sent = parts_of(call_, host_.size()), expected = recv_parts_of(call_, host_.size());
      for (std::size_t peer = 0; peer < sent.size(); ++peer) {
        counts[peer] = sent[peer];
        counts[sent.size() + peer] = expected[peer];
      }
    }
    if (place == ShmGroup::kUnreachable && reduces(call_.collective)) stage_first();
  }
  mine.number.store(number_, std::memory_order_seq_cst);
  host_.nudge();
}

/// The first step of every plan in which this input is staged, before anybody is waited for: one wait less, most of the
/// time of short vectors.
void ShmOperation::stage_first() {
  has_staged_ = true;
  granularity_ = granularity(/*staged=*/true);
  copy_in(0);
  host_.lane(host_.rank(), lane_).progress.publish(number_, 1, std::memory_order_relaxed);
}

bool ShmOperation::all_arrived() {
  for (; cursor_ < host_.size(); ++cursor_) {
    if (cursor_ == host_.rank()) continue;
    ArrivalRecord& line = arrival(cursor_);
    if (line.number.load(std::memory_order_acquire) != number_) return false;
    host_.note_completed(cursor_, line.completed.load(std::memory_order_relaxed));
  }
  cursor_ = 0;
  return true;
}

/// True if all ranks called the same, and it can work.
bool ShmOperation::is_alike() const {
  for (int local = 0; local < host_.size(); ++local) {
    if (arrival(local).digest.load(std::memory_order_relaxed) != digest_) return false;
  }
  return descriptor_.algorithm != Descriptor::kRefused;
}

/// Every rank sees the same digests, so all of them come here or none.
void ShmOperation::describe_call() {
  ArrivalRecord& mine = arrival(host_.rank());
  const auto words = std::bit_cast<std::array<std::uint64_t, 3>>(descriptor_);
  for (std::size_t i = 0; i < words.size(); ++i) mine.descriptor[i].store(words[i], std::memory_order_relaxed);
  mine.described.store(number_, std::memory_order_seq_cst);
  host_.nudge();
}

bool ShmOperation::all_described() {
  for (; cursor_ < host_.size(); ++cursor_) {
    if (arrival(cursor_).described.load(std::memory_order_acquire) != number_) return false;
  }
  return true;
}

/// Says which rank called what.
void ShmOperation::compare() const {
  std::vector<Descriptor> called;
  for (int local = 0; local < host_.size(); ++local) {
    std::array<std::uint64_t, 3> words{};
    for (std::size_t i = 0; i < words.size(); ++i) {
      words[i] = arrival(local).descriptor[i].load(std::memory_order_relaxed);
    }
    called.push_back(std::bit_cast<Descriptor>(words));
  }
  for (int local = 1; local < host_.size(); ++local) {
    const Descriptor& other = called[static_cast<std::size_t>(local)];
    if (std::memcmp(&called[0], &other, sizeof other) == 0) continue;
    throw_mismatch(group_, host_.member(0), called[0], host_.member(local), other);
  }
  throw_refused(called[0]);
}

void ShmOperation::compare_counts() const {
  for (int from = 0; from < host_.size(); ++from) {
    const auto sent = counts_of(from, true);
    for (int to = 0; to < host_.size(); ++to) {
      const std::uint64_t sends = sent[static_cast<std::size_t>(to)];
      const std::uint64_t expects = counts_of(to, false)[static_cast<std::size_t>(from)];
      if (sends == expects) continue;
      throw Mismatch(
          fmt::format("alltoall: rank {} sends {} elements to rank {}, which expects {}; no data was touched",
                      host_.member(from), sends, host_.member(to), expects));
    }
  }
}

std::span<const std::uint64_t> ShmOperation::counts_of(int local, bool sent) const {
  const auto size = static_cast<std::size_t>(host_.size());
  const auto* counts = reinterpret_cast<const std::uint64_t*>(host_.result_slot(local, lane_, 0));
  return {counts + (sent ? 0 : size), size};
}

ShmFacts ShmOperation::facts() const {
  ShmFacts facts{call_.collective, host_.size(), call_.root, false, false, false};
  facts.reaches_inputs = facts.reaches_outputs = true;
  facts.copies_inputs = !reduces(call_.collective) && host_.copies(bytes(largest_chunk()));
  const bool input_of_root = call_.collective == Collective::kBroadcast || call_.collective == Collective::kScatter;
  const bool output_of_root = call_.collective == Collective::kReduce || call_.collective == Collective::kGather;
  for (int local = 0; local < host_.size(); ++local) {
    const bool input = arrival(local).input().load(std::memory_order_relaxed) != ShmGroup::kUnreachable;
    const bool output = arrival(local).output().load(std::memory_order_relaxed) != ShmGroup::kUnreachable;
    const bool address = arrival(local).address().load(std::memory_order_relaxed) != ShmGroup::kUnreachable;
    if (!input_of_root || local == call_.root) {
      facts.reaches_inputs = facts.reaches_inputs && input;
      facts.copies_inputs = facts.copies_inputs && address;
    }
    if (!output_of_root || local == call_.root) facts.reaches_outputs = facts.reaches_outputs && output;
  }
  return facts;
}

bool ShmOperation::is_exchange_in_place() const {
  return call_.collective == Collective::kAlltoall && call_.input.data == call_.output.data;
}

void ShmOperation::choose_way() {
  if (counted_ && is_exchange_in_place() && call_.input.count > 0) {
    // A slice of the output may lie where a later slice of the input still is.
    original_ = Scratch(call_.input.size_in_bytes());
    std::memcpy(original_.data(), input_, call_.input.size_in_bytes());
    input_ = original_.data();
  }
  plan_ = ShmPlan(facts());
  // A cache line that one of two ranks wrote, and the other has read and then writes, moves between their cores half as
  // often as two lines that each go one way.
  exchanges_ =
      host_.size() == 2 && reduces(call_.collective) && plan_.uses(ShmStage::kCopyIn) && plan_.uses(ShmStage::kCopyOut);
  cut_into_slices();
}

/// Elements that one rank has for another at most.
std::size_t ShmOperation::largest_chunk() const {
  std::size_t largest = 0;
  for (int owner = 0; owner < host_.size(); ++owner) largest = std::max(largest, chunk(owner).count);
  if (counted_) {
    for (int local = 0; local < host_.size(); ++local) {
      const auto sent = counts_of(local, true);
      largest = std::max(largest, static_cast<std::size_t>(*std::max_element(sent.begin(), sent.end())));
    }
  }
  return largest;
}

/// Elements of a chunk in a slice: where inputs are staged, slices of all chunks share a slot.
std::size_t ShmOperation::granularity(bool staged) const {
  const std::size_t chunks = staged ? static_cast<std::size_t>(host_.size()) : 1;
  return host_.slot_bytes() / chunks / kLineBytes * kLineBytes / element_bytes_;
}

void ShmOperation::cut_into_slices() {
  granularity_ = granularity(plan_.uses(ShmStage::kCopyIn));
  plan_.set_slices((largest_chunk() + granularity_ - 1) / granularity_);
  step_ = plan_.first();
  if (has_staged_) take(step_);
  // In place, the lines of the output are in the caches already.
  const bool is_uncached =
      host_.recent_outputs().note(call_.output.data, bytes(total_) * static_cast<std::size_t>(host_.size()));
  non_temporal_ = is_uncached && call_.input.data != call_.output.data;
}

bool ShmOperation::is_ready(const ShmPlan::Step& step) {
  const auto [stage, slice] = step;
  if (!plan_.is_active(stage, host_.rank())) return true;
  // The memory that this stage writes is free again...
  const auto reader = static_cast<ShmStage>(static_cast<int>(stage) + 1);
  const std::size_t slots = exchanges_ ? ShmGroup::kExchangeSlots : ShmGroup::kSlots;
  const bool reused = stage != ShmStage::kCopyOut && plan_.uses(reader) && slice >= slots;
  if (reused && !all_reached(plan_.done_after(reader, slice - slots), -1)) return false;
  // ...and what it reads has been written.
  if (stage == ShmStage::kCopyIn) return true;
  const auto writer = static_cast<ShmStage>(static_cast<int>(stage) - 1);
  return !plan_.uses(writer) || all_reached(plan_.done_after(writer, slice), plan_.source(stage));
}

/// True once the peers (or the one that `only` names) have taken so many steps.
bool ShmOperation::all_reached(std::uint64_t steps, int only) {
  for (int local = 0; local < host_.size(); ++local) {
    if (local == host_.rank() || (only >= 0 && local != only)) continue;
    if (!host_.lane(local, lane_).progress.has_reached(number_, steps)) {
      cursor_ = local;
      return false;
    }
  }
  return true;
}

/// False after a fault, which this rank may not have read yet: the peers' buffers may be gone.
bool ShmOperation::run(const ShmPlan::Step& step) {
  ShmBlock::Lane& mine = host_.lane(host_.rank(), lane_);
  if (plan_.is_active(step.stage, host_.rank())) {
    const bool touches = plan_.touches_buffers() && host_.by_address();
    if (touches) mine.touching.store(1, std::memory_order_seq_cst);
    const bool is_done = (!touches || !group_.endpoint->has_fault()) && work_on(step);
    if (non_temporal_) complete_non_temporal_stores();
    if (touches) mine.touching.store(0, std::memory_order_release);
    if (!is_done) return false;
  }
  take(step);
  mine.progress.publish(number_, taken_, std::memory_order_seq_cst);
  host_.nudge();
  return true;
}

void ShmOperation::take(const ShmPlan::Step& step) {
  if (++taken_ < plan_.steps()) step_ = plan_.after(step);
}

std::vector<int> ShmOperation::waits_for() const {
  std::vector<int> ranks;
  if (phase_ == Phase::kDone) return ranks;
  if (phase_ == Phase::kEnter) {
    for (int local = cursor_; local < host_.size(); ++local) {
      const bool arrived = arrival(local).number.load(std::memory_order_relaxed) == number_;
      if (local != host_.rank() && !arrived) ranks.push_back(group_.member(host_.member(local)));
    }
    return ranks;
  }
  if (phase_ == Phase::kRun || phase_ == Phase::kLeave) return {group_.member(host_.member(cursor_))};
  for (int local = 0; local < host_.size(); ++local) {
    if (local != host_.rank()) ranks.push_back(group_.member(host_.member(local)));
  }
  return ranks;
}

}  // namespace farandole
