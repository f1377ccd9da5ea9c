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

// Bytes that a rank reduces before it copies the result to the destinations that the reduction has not written. The
// result stays in the nearest cache until then; a result for non-temporal stores lies in a small buffer on the stack.
// Of two ranks the reduction writes both outputs (not of f16 and averages of integers, which are copied); longer blocks
// then take 10 % less time from 1 MiB on.
constexpr std::size_t kBlockBytes = 8192;
constexpr std::size_t kBlockBytesOfTwo = 32768;
constexpr std::size_t kNonTemporalBlockBytes = 4096;

/// True if each rank's input is that rank's chunk, and not the whole vector.
bool input_is_chunk(Collective collective) {
  return collective == Collective::kAllgather || collective == Collective::kGather;
}
/// True if each rank's output is that rank's chunk, and not the whole vector.
bool output_is_chunk(Collective collective) {
  return collective == Collective::kReduceScatter || collective == Collective::kScatter;
}

}  // namespace

Pipeline::Pipeline(const Group& group, ShmGroup& shm, Arrival& arrival, const PreparedCall& prepared,
                   std::span<const std::size_t> offsets)
    : group_(group),
      shm_(shm),
      arrival_(arrival),
      call_(prepared.call),
      slices_(prepared, shm.size(), offsets),
      scales_input_(reduces(call_.collective) && call_.prescale != 1.0),
      input_(static_cast<const std::byte*>(call_.input.data)),
      output_(static_cast<std::byte*>(call_.output.data)) {}

/// Peers cannot reach the input, so copy-in of slice 0 is the first step of every possible plan, and needs no peer.
/// Taking it now publishes it together with the arrival. That saves one wait, which is most of the time of a short
/// vector.
void Pipeline::take_first_step() {
  slices_.fit(shm_.layout().slot_bytes(), /*share_slot=*/true);
  copy_in(0);
  steps_taken_ = 1;
  ShmBlock::Lane& mine = shm_.layout().lane(shm_.rank(), arrival_.lane());
  mine.steps.publish(arrival_.number(), steps_taken_, std::memory_order_relaxed);
}

bool Pipeline::is_exchange_in_place() const {
  return call_.collective == Collective::kAlltoall && call_.input.data == call_.output.data;
}

void Pipeline::begin() {
  if (call_.exchanges_counts() && is_exchange_in_place() && call_.input.count > 0) {
    // With uneven counts, a slice of the output may overwrite a later slice of the input.
    input_copy_ = Scratch(call_.input.size_in_bytes());
    std::memcpy(input_copy_.data(), input_, call_.input.size_in_bytes());
    input_ = input_copy_.data();
  }
  const std::size_t largest = largest_chunk();
  plan_ = ShmPlan(facts(largest));
  // With exchange slots the peer writes the result to the cache line that held the input. One such line moves between
  // the two cores half as often as separate lines for input and result.
  uses_exchange_slots_ =
      shm_.size() == 2 && reduces(call_.collective) && plan_.uses(ShmStage::kCopyIn) && plan_.uses(ShmStage::kCopyOut);
  // An input slot holds a slice of every chunk; a result slot holds a slice of one chunk.
  slices_.fit(shm_.layout().slot_bytes(), plan_.uses(ShmStage::kCopyIn));
  plan_.set_slices(slices_.count_of(largest));
  step_ = plan_.first();
  if (steps_taken_ > 0 && steps_taken_ < plan_.steps()) step_ = plan_.after(step_);
  const bool is_uncached = shm_.recent_outputs().note(
      call_.output.data, slices_.bytes(slices_.total()) * static_cast<std::size_t>(shm_.size()));
  // An in-place collective has just read the lines of the output, so they are in the caches.
  non_temporal_ = is_uncached && call_.input.data != call_.output.data;
}

/// Maximum number of elements in a chunk, or, with uneven counts, from one rank to another.
std::size_t Pipeline::largest_chunk() const {
  std::size_t largest = 0;
  for (int local = 0; local < shm_.size(); ++local) {
    largest = std::max(largest, slices_.chunk(local).count);
    if (!call_.exchanges_counts()) continue;
    for (const std::uint64_t sent : arrival_.sent_by(local)) largest = std::max<std::size_t>(largest, sent);
  }
  return largest;
}

ShmFacts Pipeline::facts(std::size_t largest_chunk) const {
  ShmFacts facts{call_.collective, shm_.size(), call_.root, true, true, false};
  facts.copies_inputs = !reduces(call_.collective) && shm_.buffers().uses_single_copy(slices_.bytes(largest_chunk));
  const bool input_of_root = call_.collective == Collective::kBroadcast || call_.collective == Collective::kScatter;
  const bool output_of_root = call_.collective == Collective::kReduce || call_.collective == Collective::kGather;
  for (int local = 0; local < shm_.size(); ++local) {
    if (!input_of_root || local == call_.root) {
      facts.reaches_inputs = facts.reaches_inputs && arrival_.input_of(local) != PeerBuffers::kUnreachable;
      facts.copies_inputs = facts.copies_inputs && arrival_.address_of(local) != PeerBuffers::kUnreachable;
    }
    if (!output_of_root || local == call_.root) {
      facts.reaches_outputs = facts.reaches_outputs && arrival_.output_of(local) != PeerBuffers::kUnreachable;
    }
  }
  return facts;
}

Operation::State Pipeline::advance() {
  if (steps_taken_ < plan_.steps()) {
    if (!is_ready(step_) || !run(step_)) return Operation::State::kWaiting;
    if (steps_taken_ < plan_.steps() || plan_.touches_buffers()) return Operation::State::kMoved;
  }
  const bool peers_use_buffers = plan_.steps() > 0 && plan_.touches_buffers();
  return peers_use_buffers && !all_reached(plan_.steps(), -1) ? Operation::State::kWaiting : Operation::State::kDone;
}

bool Pipeline::is_ready(const ShmPlan::Step& step) {
  const auto [stage, slice] = step;
  if (!plan_.is_active(stage, shm_.rank())) return true;
  // All readers have finished with the slot that this stage overwrites...
  const auto reader = static_cast<ShmStage>(static_cast<int>(stage) + 1);
  const std::size_t slots = uses_exchange_slots_ ? ShmLayout::kExchangeSlots : ShmLayout::kSlots;
  const bool overwrites = stage != ShmStage::kCopyOut && plan_.uses(reader) && slice >= slots;
  if (overwrites && !all_reached(plan_.done_after(reader, slice - slots), -1)) return false;
  // ...and the peers have written the slots that this stage reads.
  if (stage == ShmStage::kCopyIn) return true;
  const auto writer = static_cast<ShmStage>(static_cast<int>(stage) - 1);
  return !plan_.uses(writer) || all_reached(plan_.done_after(writer, slice), plan_.source(stage));
}

/// True once all peers have taken `steps` steps; if `source` is not -1, once that peer has.
bool Pipeline::all_reached(std::uint64_t steps, int source) {
  for (int local = 0; local < shm_.size(); ++local) {
    if (local == shm_.rank() || (source >= 0 && local != source)) continue;
    if (!shm_.layout().lane(local, arrival_.lane()).steps.has_reached(arrival_.number(), steps)) {
      awaited_ = local;
      return false;
    }
  }
  return true;
}

/// Takes a step. Returns false after a fault, because peers may have freed their buffers; the caller raises the fault
/// later.
bool Pipeline::run(const ShmPlan::Step& step) {
  ShmBlock::Lane& mine = shm_.layout().lane(shm_.rank(), arrival_.lane());
  if (plan_.is_active(step.stage, shm_.rank())) {
    const bool touches = plan_.touches_buffers() && shm_.buffers().by_address();
    if (touches) mine.touching.store(1, std::memory_order_seq_cst);
    const bool is_done = (!touches || !group_.endpoint->faults().exist()) && run_stage(step);
    if (non_temporal_) complete_non_temporal_stores();
    if (touches) mine.touching.store(0, std::memory_order_release);
    if (!is_done) return false;
  }
  if (++steps_taken_ < plan_.steps()) step_ = plan_.after(step);
  mine.steps.publish(arrival_.number(), steps_taken_, std::memory_order_seq_cst);
  shm_.wake_peers();
  return true;
}

bool Pipeline::run_stage(const ShmPlan::Step& step) {
  switch (step.stage) {
    case ShmStage::kCopyIn:
      copy_in(step.slice);
      break;
    case ShmStage::kReduce:
      if (reduces(call_.collective)) {
        reduce_slice(step.slice);
      } else if (call_.collective == Collective::kScatter || call_.collective == Collective::kAlltoall) {
        return receive_parts(step.slice);
      } else {
        publish(step.slice);
      }
      break;
    case ShmStage::kCopyOut:
      return copy_out(step.slice);
  }
  return true;
}

/// Address at which `from` stages the slice of `owner`'s chunk.
std::byte* Pipeline::staged_chunk(int from, int owner, std::size_t slice) const {
  std::byte* slot = uses_exchange_slots_ ? shm_.layout().exchange_slot(from, arrival_.lane(), slice)
                                         : shm_.layout().input_slot(from, arrival_.lane(), slice);
  return slot + slices_.bytes(static_cast<std::size_t>(owner) * slices_.granularity());
}

/// Address from which `reader` copies out the result of the slice of `owner`'s chunk.
std::byte* Pipeline::staged_result(int owner, int reader, std::size_t slice) const {
  return uses_exchange_slots_ ? staged_chunk(reader, owner, slice)
                              : shm_.layout().result_slot(owner, arrival_.lane(), slice);
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
  for (int owner = 0; owner < shm_.size(); ++owner) {
    if (owner == shm_.rank() && !scales_input_) continue;
    const Extent from = slices_.slice_of(slices_.chunk(owner), slice);
    std::byte* to = staged_chunk(shm_.rank(), owner, slice);
    if (from.count == 0) continue;
    if (scales_input_) {
      scale(to, input(from.first), from.count, call_.input.dtype, call_.prescale);
    } else {
      std::memcpy(to, input(from.first), slices_.bytes(from.count));
    }
  }
}

/// Reduces a slice of this rank's chunk over all ranks, block by block.
void Pipeline::reduce_slice(std::size_t slice) {
  const Extent at = slices_.slice_of(slices_.chunk(shm_.rank()), slice);
  std::size_t block_bytes = shm_.size() == 2 && !plan_.uses(ShmStage::kCopyOut) ? kBlockBytesOfTwo : kBlockBytes;
  if (writes_results_past_caches()) block_bytes = kNonTemporalBlockBytes;
  const std::size_t block_count = block_bytes / slices_.element_bytes();
  for (std::size_t done = 0; done < at.count; done += block_count) {
    reduce_block({at.first + done, std::min(block_count, at.count - done)}, slice, done);
  }
}

/// @param at  the block in the whole vector   @param done  elements of the slice that come before the block
void Pipeline::reduce_block(Extent at, std::size_t slice, std::size_t done) {
  const int me = shm_.rank();
  for (int local = 0; local < shm_.size(); ++local) {
    const std::byte* from = nullptr;
    if (local == me && !scales_input_) {
      from = input(at.first);
    } else if (plan_.reads_inputs()) {
      from = peer_input(local, at.first);
    } else {
      from = staged_chunk(local, me, slice) + slices_.bytes(done);
    }
    shm_.pointers()[static_cast<std::size_t>(local)] = from;
  }
  alignas(kLineBytes) std::array<std::byte, kNonTemporalBlockBytes> block;
  std::byte* target = nullptr;
  if (writes_results_past_caches()) {
    target = block.data();
  } else if (plan_.uses(ShmStage::kCopyOut)) {
    target = staged_result(me, uses_exchange_slots_ ? 1 - me : me, slice) + slices_.bytes(done);
  } else {
    target = result_at(call_.collective == Collective::kReduce ? call_.root : me, at.first);
  }
  std::byte* const also = non_temporal_ ? nullptr : second_target(at);
  reduce_and_scale(target, also, shm_.pointers(), at.count, call_.input.dtype, call_.op, call_.final_scale);
  distribute_result(target, also, at);
}

/// The destination that a reduction writes together with the first; null if there is no other.
std::byte* Pipeline::second_target(Extent at) const {
  const bool to_all = call_.collective == Collective::kAllreduce;
  if (plan_.uses(ShmStage::kCopyOut)) return to_all || shm_.rank() == call_.root ? output(at.first) : nullptr;
  return to_all && shm_.size() > 1 ? result_at(shm_.rank() == 0 ? 1 : 0, at.first) : nullptr;
}

/// True if results go straight to the outputs by non-temporal stores. This rank then reduces in a buffer on the stack,
/// so that the first output bypasses the caches, too.
bool Pipeline::writes_results_past_caches() const {
  return non_temporal_ && !plan_.uses(ShmStage::kCopyOut);
}

/// Address of the result's `element` in the output of `local`. If outputs are chunks, always in this rank's output.
std::byte* Pipeline::result_at(int local, std::size_t element) const {
  if (output_is_chunk(call_.collective)) return output(element - slices_.chunk(shm_.rank()).first);
  if (local == shm_.rank()) return output(element);
  return shm_.buffers().resolve(local, arrival_.output_of(local)) + slices_.bytes(element);
}

/// Copies a block of the result to the destinations that do not have it: this rank's output and, if the plan has no
/// copy-out, the outputs of peers that need it. @param also  a destination that has it, or null
void Pipeline::distribute_result(const std::byte* result, const std::byte* also, Extent at) const {
  const int me = shm_.rank();
  const std::size_t bytes = slices_.bytes(at.count);
  const bool to_all = call_.collective == Collective::kAllreduce;
  if (plan_.uses(ShmStage::kCopyOut)) {
    std::byte* const own = second_target(at);
    if (own != also) copy_to_output(own, result, bytes);
  } else if (to_all) {
    for (int local = 0; local < shm_.size(); ++local) {
      std::byte* const to = result_at(local, at.first);
      const auto* input = static_cast<const std::byte*>(shm_.pointers()[static_cast<std::size_t>(local)]);
      if (to != also) copy_to_output(to, result, bytes, input + bytes);
    }
  } else {
    copy_to_output(result_at(call_.collective == Collective::kReduce ? call_.root : me, at.first), result, bytes);
  }
}

/// Makes a slice of this rank's chunk available to the peers, in a result slot or in their outputs, and copies the
/// slice to this rank's output.
void Pipeline::publish(std::size_t slice) {
  const int me = shm_.rank();
  const Extent chunk = slices_.chunk(me);
  const Extent at = slices_.slice_of(chunk, slice);
  if (at.count == 0) return;
  const bool is_chunk = input_is_chunk(call_.collective);
  const std::byte* from = input(is_chunk ? at.first - chunk.first : at.first);
  const bool has_output = call_.collective == Collective::kAllgather || me == call_.root;
  if (plan_.uses(ShmStage::kCopyOut)) {
    std::memcpy(shm_.layout().result_slot(me, arrival_.lane(), slice), from, slices_.bytes(at.count));
  } else {
    for (int local = 0; local < shm_.size(); ++local) {
      const bool is_target = call_.collective != Collective::kGather || local == call_.root;
      if (local != me && is_target) std::memcpy(result_at(local, at.first), from, slices_.bytes(at.count));
    }
  }
  if (has_output) copy_to_output(output(at.first), from, slices_.bytes(at.count));
}

/// Copies from a peer's input to this rank's output: directly if this rank can reach the input, otherwise by
/// cross-memory attach. Returns false if the peer is gone.
bool Pipeline::copy_from_peer(int local, std::size_t element, std::byte* to, std::size_t bytes) const {
  if (arrival_.input_of(local) != PeerBuffers::kUnreachable) {
    copy_to_output(to, peer_input(local, element), bytes);
    return true;
  }
  const std::uint64_t address = arrival_.address_of(local) + slices_.bytes(element);
  const int error = shm_.buffers().copy_from(local, address, to, bytes);
  if (error == 0) return true;
  if (error == ESRCH) return false;
  // A rank that fails reports the fault before it frees memory, so look for a fault first.
  group_.endpoint->faults().poll();
  if (group_.endpoint->faults().exist()) return false;
  throw TransportError(
      fmt::format("{}: {} bytes of the input of rank {} could not be read: {}; it must stay until the "
                  "collective is done (FARANDOLE_SINGLE_COPY_BYTES=0 for memory of a device)",
                  name(call_.collective), bytes, group_.member(shm_.member(local)), std::strerror(error)));
}

/// Copies the parts that peers send to this rank (scatter, alltoall) to the output. Returns false if a peer is gone.
bool Pipeline::receive_parts(std::size_t slice) {
  const int me = shm_.rank();
  const bool all_to_all = call_.collective == Collective::kAlltoall;
  for (int local = 0; local < shm_.size(); ++local) {
    if (!all_to_all && local != call_.root) continue;
    const Extent part = all_to_all ? slices_.received_from(local) : Extent{0, slices_.chunk(me).count};
    const Extent to = slices_.slice_of(part, slice);
    const std::size_t skipped = to.first - part.first;
    if (to.count == 0) continue;
    if (local == me) {
      copy_to_output(output(to.first), input(slices_.chunk(me).first + skipped), slices_.bytes(to.count));
    } else if (plan_.reads_inputs()) {
      std::size_t first = slices_.chunk(me).first;
      if (call_.exchanges_counts()) {
        const auto sent = arrival_.sent_by(local);
        first = std::accumulate(sent.begin(), sent.begin() + me, std::size_t{0});
      }
      if (!copy_from_peer(local, first + skipped, output(to.first), slices_.bytes(to.count))) return false;
    } else {
      copy_to_output(output(to.first), staged_chunk(local, me, slice), slices_.bytes(to.count));
    }
  }
  return true;
}

/// Copies to the output a slice of every chunk that this rank's reduce stage has not written. Returns false if a peer
/// is gone.
bool Pipeline::copy_out(std::size_t slice) {
  const int me = shm_.rank();
  for (int owner = 0; owner < shm_.size(); ++owner) {
    const Extent chunk = slices_.chunk(owner);
    const Extent at = slices_.slice_of(chunk, slice);
    if (at.count == 0 || (owner == me && plan_.uses(ShmStage::kReduce))) continue;
    const bool is_chunk = input_is_chunk(call_.collective);
    const std::size_t element = is_chunk ? at.first - chunk.first : at.first;
    if (owner == me) {
      copy_to_output(output(at.first), input(element), slices_.bytes(at.count));
    } else if (plan_.uses(ShmStage::kReduce)) {
      copy_to_output(output(at.first), staged_result(owner, me, slice), slices_.bytes(at.count));
    } else if (!copy_from_peer(owner, element, output(at.first), slices_.bytes(at.count))) {
      return false;
    }
  }
  return true;
}

}  // namespace farandole
