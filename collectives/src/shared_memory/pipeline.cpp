// SPDX-License-Identifier: Apache-2.0
#include "shared_memory/pipeline.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <numeric>

#include "farandole/core/error.h"
#include "farandole/core/reduce.h"
#include "farandole/internal/average.h"
#include "farandole/internal/copy.h"

namespace farandole {
namespace {

// What a rank reduces before it brings the result to its other places: staged results stay in the nearest cache until
// then, and results of non-temporal stores pass through a few lines. (Results in windows are brought there slice by
// slice, which is faster where inputs and outputs just fit the caches: 1 MiB in 50 µs, in blocks 60.)
constexpr std::size_t kStagedBytes = 8192;
constexpr std::size_t kPassingBytes = 4096;

/// Collectives in which a rank's input is its own chunk only.
bool owns_input(Collective collective) {
  return collective == Collective::kAllgather || collective == Collective::kGather;
}
/// Collectives in which a rank's output is its own chunk only.
bool owns_output(Collective collective) {
  return collective == Collective::kReduceScatter || collective == Collective::kScatter;
}

}  // namespace

Pipeline::Pipeline(const Group& group, ShmGroup& host, Arrival& arrival, const Call& call,
                   std::span<const std::size_t> firsts)
    : group_(group),
      host_(host),
      arrival_(arrival),
      call_(call),
      slices_(call, host.size(), firsts),
      scales_own_(reduces(call.collective) && call.prescale != 1.0),
      input_(static_cast<const std::byte*>(call.input.data)),
      output_(static_cast<std::byte*>(call.output.data)) {}

void Pipeline::show() {
  const bool reachable = arrival_.show_buffers(call_.input, call_.output, !scales_own_ && !is_exchange_in_place());
  if (call_.exchanges_counts()) {
    arrival_.show_counts(parts_of(call_, host_.size()), recv_parts_of(call_, host_.size()));
  }
  if (reachable || !reduces(call_.collective)) return;
  // The first step of every plan in which this input is staged, before it waits for any peer: one wait less, most of
  // the time of short vectors.
  slices_.fit(host_.slot_bytes(), /*share_slot=*/true);
  copy_in(0);
  taken_ = 1;
  host_.lane(host_.rank(), arrival_.lane()).progress.publish(arrival_.number(), taken_, std::memory_order_relaxed);
}

bool Pipeline::is_exchange_in_place() const {
  return call_.collective == Collective::kAlltoall && call_.input.data == call_.output.data;
}

void Pipeline::begin() {
  if (call_.exchanges_counts() && is_exchange_in_place() && call_.input.count > 0) {
    // A slice of the output may lie where a later slice of the input still is.
    original_ = Scratch(call_.input.size_in_bytes());
    std::memcpy(original_.data(), input_, call_.input.size_in_bytes());
    input_ = original_.data();
  }
  const std::size_t largest = largest_chunk();
  plan_ = ShmPlan(facts(largest));
  // A cache line that one of two ranks wrote, and the other has read and then writes, moves between their cores half as
  // often as two lines that each go one way.
  exchanges_ =
      host_.size() == 2 && reduces(call_.collective) && plan_.uses(ShmStage::kCopyIn) && plan_.uses(ShmStage::kCopyOut);
  // Where inputs are staged, slices of all chunks share a slot.
  slices_.fit(host_.slot_bytes(), plan_.uses(ShmStage::kCopyIn));
  plan_.set_slices(slices_.count_of(largest));
  step_ = plan_.first();
  if (taken_ > 0 && taken_ < plan_.steps()) step_ = plan_.after(step_);
  const bool is_uncached = host_.recent_outputs().note(
      call_.output.data, slices_.bytes(slices_.total()) * static_cast<std::size_t>(host_.size()));
  // In place, the lines of the output are in the caches already.
  non_temporal_ = is_uncached && call_.input.data != call_.output.data;
}

/// Elements that one rank has for another at most.
std::size_t Pipeline::largest_chunk() const {
  std::size_t largest = 0;
  for (int local = 0; local < host_.size(); ++local) {
    largest = std::max(largest, slices_.chunk(local).count);
    if (!call_.exchanges_counts()) continue;
    for (const std::uint64_t sent : arrival_.sent_by(local)) largest = std::max<std::size_t>(largest, sent);
  }
  return largest;
}

ShmFacts Pipeline::facts(std::size_t largest_chunk) const {
  ShmFacts facts{call_.collective, host_.size(), call_.root, true, true, false};
  facts.copies_inputs = !reduces(call_.collective) && host_.copies(slices_.bytes(largest_chunk));
  const bool input_of_root = call_.collective == Collective::kBroadcast || call_.collective == Collective::kScatter;
  const bool output_of_root = call_.collective == Collective::kReduce || call_.collective == Collective::kGather;
  for (int local = 0; local < host_.size(); ++local) {
    if (!input_of_root || local == call_.root) {
      facts.reaches_inputs = facts.reaches_inputs && arrival_.input_of(local) != ShmGroup::kUnreachable;
      facts.copies_inputs = facts.copies_inputs && arrival_.address_of(local) != ShmGroup::kUnreachable;
    }
    if (!output_of_root || local == call_.root) {
      facts.reaches_outputs = facts.reaches_outputs && arrival_.output_of(local) != ShmGroup::kUnreachable;
    }
  }
  return facts;
}

Operation::State Pipeline::advance() {
  if (taken_ < plan_.steps()) {
    if (!is_ready(step_) || !run(step_)) return Operation::State::kWaiting;
    if (taken_ < plan_.steps() || plan_.touches_buffers()) return Operation::State::kMoved;
  }
  const bool must_stay = plan_.steps() > 0 && plan_.touches_buffers();
  return must_stay && !all_reached(plan_.steps(), -1) ? Operation::State::kWaiting : Operation::State::kDone;
}

bool Pipeline::is_ready(const ShmPlan::Step& step) {
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
bool Pipeline::all_reached(std::uint64_t steps, int only) {
  for (int local = 0; local < host_.size(); ++local) {
    if (local == host_.rank() || (only >= 0 && local != only)) continue;
    if (!host_.lane(local, arrival_.lane()).progress.has_reached(arrival_.number(), steps)) {
      cursor_ = local;
      return false;
    }
  }
  return true;
}

/// False after a fault, which this rank may not have read yet: the peers' buffers may be gone.
bool Pipeline::run(const ShmPlan::Step& step) {
  ShmBlock::Lane& mine = host_.lane(host_.rank(), arrival_.lane());
  if (plan_.is_active(step.stage, host_.rank())) {
    const bool touches = plan_.touches_buffers() && host_.by_address();
    if (touches) mine.touching.store(1, std::memory_order_seq_cst);
    const bool is_done = (!touches || !group_.endpoint->faults().exist()) && work_on(step);
    if (non_temporal_) complete_non_temporal_stores();
    if (touches) mine.touching.store(0, std::memory_order_release);
    if (!is_done) return false;
  }
  if (++taken_ < plan_.steps()) step_ = plan_.after(step);
  mine.progress.publish(arrival_.number(), taken_, std::memory_order_seq_cst);
  host_.nudge();
  return true;
}

bool Pipeline::work_on(const ShmPlan::Step& step) {
  switch (step.stage) {
    case ShmStage::kCopyIn:
      copy_in(step.slice);
      break;
    case ShmStage::kReduce:
      if (reduces(call_.collective)) {
        combine(step.slice);
      } else if (call_.collective == Collective::kScatter || call_.collective == Collective::kAlltoall) {
        return place(step.slice);
      } else {
        publish(step.slice);
      }
      break;
    case ShmStage::kCopyOut:
      return copy_out(step.slice);
  }
  return true;
}

/// Where `from` has put the slice of `owner`'s chunk.
std::byte* Pipeline::staged_chunk(int from, int owner, std::size_t slice) const {
  std::byte* slot =
      exchanges_ ? host_.exchange_slot(from, arrival_.lane(), slice) : host_.input_slot(from, arrival_.lane(), slice);
  return slot + slices_.bytes(static_cast<std::size_t>(owner) * slices_.granularity());
}

/// Where `reader` finds the result of the slice of `owner`'s chunk.
std::byte* Pipeline::staged_result(int owner, int reader, std::size_t slice) const {
  return exchanges_ ? staged_chunk(reader, owner, slice) : host_.result_slot(owner, arrival_.lane(), slice);
}

void Pipeline::copy_to_output(std::byte* to, const std::byte* from, std::size_t bytes, const void* next) const {
  if (to == from || bytes == 0) return;
  if (non_temporal_) {
    copy_non_temporal(to, from, bytes, next);
  } else {
    std::memcpy(to, from, bytes);
  }
}

void Pipeline::copy_in(std::size_t slice) {
  for (int owner = 0; owner < host_.size(); ++owner) {
    if (owner == host_.rank() && !scales_own_) continue;
    const Extent from = slices_.slice_of(slices_.chunk(owner), slice);
    std::byte* to = staged_chunk(host_.rank(), owner, slice);
    if (from.count == 0) continue;
    if (scales_own_) {
      scale(to, input(from.first), from.count, call_.input.dtype, call_.prescale);
    } else {
      std::memcpy(to, input(from.first), slices_.bytes(from.count));
    }
  }
}

/// Reduces a slice of the own chunk over all ranks.
void Pipeline::combine(std::size_t slice) {
  const Extent at = slices_.slice_of(slices_.chunk(host_.rank()), slice);
  std::size_t most = at.count;
  if (plan_.uses(ShmStage::kCopyOut)) most = kStagedBytes / slices_.element_bytes();
  if (passes_by()) most = kPassingBytes / slices_.element_bytes();
  for (std::size_t done = 0; done < at.count; done += most) {
    combine_block({at.first + done, std::min(most, at.count - done)}, slice, done);
  }
}

/// @param done  elements of the slice that come before the block
void Pipeline::combine_block(Extent at, std::size_t slice, std::size_t done) {
  const int me = host_.rank();
  for (int local = 0; local < host_.size(); ++local) {
    const std::byte* from = nullptr;
    if (local == me && !scales_own_) {
      from = input(at.first);
    } else if (plan_.reads_inputs()) {
      from = peer_input(local, at.first);
    } else {
      from = staged_chunk(local, me, slice) + slices_.bytes(done);
    }
    host_.pointers()[static_cast<std::size_t>(local)] = from;
  }
  alignas(kLineBytes) std::array<std::byte, kPassingBytes> passing;
  std::byte* target = nullptr;
  if (passes_by()) {
    target = passing.data();
  } else if (plan_.uses(ShmStage::kCopyOut)) {
    target = staged_result(me, exchanges_ ? 1 - me : me, slice) + slices_.bytes(done);
  } else {
    target = result_at(call_.collective == Collective::kReduce ? call_.root : me, at.first);
  }
  reduce_and_scale(target, host_.pointers(), at.count, call_.input.dtype, call_.op, call_.final_scale);
  spread(target, at);
}

/// Non-temporal stores write results that are not staged to all places where they belong.
bool Pipeline::passes_by() const {
  return non_temporal_ && !plan_.uses(ShmStage::kCopyOut);
}

/// Where a result belongs in the output of a rank; of a collective that gives each its own chunk, this rank's.
std::byte* Pipeline::result_at(int local, std::size_t element) const {
  if (owns_output(call_.collective)) return output(element - slices_.chunk(host_.rank()).first);
  if (local == host_.rank()) return output(element);
  return host_.reach(local, arrival_.output_of(local)) + slices_.bytes(element);
}

void Pipeline::spread(const std::byte* result, Extent at) const {
  const int me = host_.rank();
  const bool to_all = call_.collective == Collective::kAllreduce;
  if (plan_.uses(ShmStage::kCopyOut)) {
    if (to_all || me == call_.root) copy_to_output(output(at.first), result, slices_.bytes(at.count));
  } else if (to_all) {
    const std::size_t size = slices_.bytes(at.count);
    for (int local = 0; local < host_.size(); ++local) {
      const auto* input = static_cast<const std::byte*>(host_.pointers()[static_cast<std::size_t>(local)]);
      copy_to_output(result_at(local, at.first), result, size, input + size);
    }
  } else {
    copy_to_output(result_at(call_.collective == Collective::kReduce ? call_.root : me, at.first), result,
                   slices_.bytes(at.count));
  }
}

/// Shows a slice of the own chunk to the peers, or writes it to them, and to the own output.
void Pipeline::publish(std::size_t slice) {
  const int me = host_.rank();
  const Extent whole = slices_.chunk(me);
  const Extent at = slices_.slice_of(whole, slice);
  if (at.count == 0) return;
  const bool own_only = owns_input(call_.collective);
  const std::byte* from = input(own_only ? at.first - whole.first : at.first);
  const bool has_output = call_.collective == Collective::kAllgather || me == call_.root;
  if (plan_.uses(ShmStage::kCopyOut)) {
    std::memcpy(host_.result_slot(me, arrival_.lane(), slice), from, slices_.bytes(at.count));
  } else {
    for (int local = 0; local < host_.size(); ++local) {
      const bool is_target = call_.collective != Collective::kGather || local == call_.root;
      if (local != me && is_target) std::memcpy(result_at(local, at.first), from, slices_.bytes(at.count));
    }
  }
  if (has_output) copy_to_output(output(at.first), from, slices_.bytes(at.count));
}

/// Copies from the input of another rank, where it is in a window, else by cross-memory attach. False if that rank is
/// gone.
bool Pipeline::fetch(int local, std::size_t element, std::byte* to, std::size_t bytes) const {
  if (arrival_.input_of(local) != ShmGroup::kUnreachable) {
    copy_to_output(to, peer_input(local, element), bytes);
    return true;
  }
  const std::uint64_t address = arrival_.address_of(local) + slices_.bytes(element);
  const int error = host_.copy_from(local, address, to, bytes);
  if (error == 0) return true;
  if (error == ESRCH) return false;
  // A rank that has failed says so before its memory goes.
  group_.endpoint->faults().poll();
  if (group_.endpoint->faults().exist()) return false;
  throw TransportError(
      fmt::format("{}: {} bytes of the input of rank {} could not be read: {}; it must stay until the "
                  "collective is done (FARANDOLE_SINGLE_COPY_BYTES=0 for memory of a device)",
                  name(call_.collective), bytes, group_.member(host_.member(local)), std::strerror(error)));
}

/// Puts what the peers have for this rank where it belongs.
bool Pipeline::place(std::size_t slice) {
  const int me = host_.rank();
  const bool all_to_all = call_.collective == Collective::kAlltoall;
  for (int local = 0; local < host_.size(); ++local) {
    if (!all_to_all && local != call_.root) continue;
    const Extent whole = all_to_all ? slices_.received_from(local) : Extent{0, slices_.chunk(me).count};
    const Extent to = slices_.slice_of(whole, slice);
    const std::size_t skipped = to.first - whole.first;
    if (to.count == 0) continue;
    if (local == me) {
      copy_to_output(output(to.first), input(slices_.chunk(me).first + skipped), slices_.bytes(to.count));
    } else if (plan_.reads_inputs()) {
      std::size_t first = slices_.chunk(me).first;
      if (call_.exchanges_counts()) {
        const auto sent = arrival_.sent_by(local);
        first = std::accumulate(sent.begin(), sent.begin() + me, std::size_t{0});
      }
      if (!fetch(local, first + skipped, output(to.first), slices_.bytes(to.count))) return false;
    } else {
      copy_to_output(output(to.first), staged_chunk(local, me, slice), slices_.bytes(to.count));
    }
  }
  return true;
}

/// Copies what the peers have published.
bool Pipeline::copy_out(std::size_t slice) {
  const int me = host_.rank();
  for (int owner = 0; owner < host_.size(); ++owner) {
    const Extent whole = slices_.chunk(owner);
    const Extent at = slices_.slice_of(whole, slice);
    if (at.count == 0 || (owner == me && plan_.uses(ShmStage::kReduce))) continue;
    const bool own_only = owns_input(call_.collective);
    const std::size_t element = own_only ? at.first - whole.first : at.first;
    if (owner == me) {
      copy_to_output(output(at.first), input(element), slices_.bytes(at.count));
    } else if (plan_.uses(ShmStage::kReduce)) {
      copy_to_output(output(at.first), staged_result(owner, me, slice), slices_.bytes(at.count));
    } else if (!fetch(owner, element, output(at.first), slices_.bytes(at.count))) {
      return false;
    }
  }
  return true;
}

}  // namespace farandole
