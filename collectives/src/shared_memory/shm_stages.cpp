// SPDX-License-Identifier: Apache-2.0
// What a ShmOperation does with data: the stages of its plan.
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <numeric>

#include "farandole/core/error.h"
#include "farandole/core/reduce.h"
#include "farandole/internal/copy.h"
#include "shared_memory/shm_operation.h"

namespace farandole {
namespace {

// What a rank reduces before it brings the result to its other places: staged results stay in the nearest cache until
// then, and results that go past the caches pass through a few lines. (Results in windows are brought there part by
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

bool ShmOperation::work_on(const ShmPlan::Step& step) {
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

ShmOperation::Extent ShmOperation::chunk(int owner) const {
  if (call_.collective == Collective::kBroadcast) return owner == call_.root ? Extent{0, total_} : Extent{};
  if (!firsts_.empty()) {
    const auto index = static_cast<std::size_t>(owner);
    return {firsts_[index], firsts_[index + 1] - firsts_[index]};
  }
  // Whole lines, so that ranks do not write to the same one.
  const std::size_t line = std::max<std::size_t>(1, kLineBytes / element_bytes_);
  const auto size = static_cast<std::size_t>(host_.size());
  const std::size_t each = ((total_ + size - 1) / size + line - 1) / line * line;
  const std::size_t first = std::min(total_, static_cast<std::size_t>(owner) * each);
  return {first, std::min(each, total_ - first)};
}

ShmOperation::Extent ShmOperation::slice_of(Extent whole, std::size_t slice) const {
  const std::size_t skipped = std::min(whole.count, slice * granularity_);
  return {whole.first + skipped, std::min(granularity_, whole.count - skipped)};
}

/// Where `from` has put the slice of `owner`'s chunk.
std::byte* ShmOperation::staged_chunk(int from, int owner, std::size_t slice) const {
  std::byte* slot = exchanges_ ? host_.exchange_slot(from, lane_, slice) : host_.input_slot(from, lane_, slice);
  return slot + bytes(static_cast<std::size_t>(owner) * granularity_);
}

/// Where `reader` finds the result of the slice of `owner`'s chunk.
std::byte* ShmOperation::staged_result(int owner, int reader, std::size_t slice) const {
  return exchanges_ ? staged_chunk(reader, owner, slice) : host_.result_slot(owner, lane_, slice);
}

std::byte* ShmOperation::peer_buffer(int local, bool input, std::size_t element) const {
  ArrivalRecord& line = arrival(local);
  return host_.reach(local, (input ? line.input() : line.output()).load(std::memory_order_relaxed)) + bytes(element);
}

void ShmOperation::copy_to_output(std::byte* to, const std::byte* from, std::size_t bytes, const void* next) const {
  if (to == from || bytes == 0) return;
  if (non_temporal_) {
    copy_non_temporal(to, from, bytes, next);
  } else {
    std::memcpy(to, from, bytes);
  }
}

void ShmOperation::copy_in(std::size_t slice) {
  for (int owner = 0; owner < host_.size(); ++owner) {
    if (owner == host_.rank() && !stages_own_) continue;
    const Extent from = slice_of(chunk(owner), slice);
    std::byte* to = staged_chunk(host_.rank(), owner, slice);
    if (from.count == 0) continue;
    if (stages_own_) {
      scale(to, input(from.first), from.count, call_.input.dtype, call_.prescale);
    } else {
      std::memcpy(to, input(from.first), bytes(from.count));
    }
  }
}

/// Reduces a slice of the own chunk over all ranks.
void ShmOperation::combine(std::size_t slice) {
  const Extent at = slice_of(chunk(host_.rank()), slice);
  std::size_t most = at.count;
  if (plan_.uses(ShmStage::kCopyOut)) most = kStagedBytes / element_bytes_;
  if (passes_by()) most = kPassingBytes / element_bytes_;
  for (std::size_t done = 0; done < at.count; done += most) {
    combine_block({at.first + done, std::min(most, at.count - done)}, slice, done);
  }
}

/// @param done  elements of the slice that come before the block
void ShmOperation::combine_block(Extent at, std::size_t slice, std::size_t done) {
  const int me = host_.rank();
  for (int local = 0; local < host_.size(); ++local) {
    const std::byte* from = nullptr;
    if (local == me && !stages_own_) {
      from = input(at.first);
    } else if (plan_.reads_inputs()) {
      from = peer_buffer(local, true, at.first);
    } else {
      from = staged_chunk(local, me, slice) + bytes(done);
    }
    host_.pointers()[static_cast<std::size_t>(local)] = from;
  }
  alignas(kLineBytes) std::array<std::byte, kPassingBytes> passing;
  std::byte* target = nullptr;
  if (passes_by()) {
    target = passing.data();
  } else if (plan_.uses(ShmStage::kCopyOut)) {
    target = staged_result(me, exchanges_ ? 1 - me : me, slice) + bytes(done);
  } else {
    target = result_at(call_.collective == Collective::kReduce ? call_.root : me, at.first);
  }
  reduce_many(target, host_.pointers(), at.count, call_.input.dtype, call_.op);
  const double factor = final_scale(call_, group_.size());
  if (factor != 1.0) scale(target, target, at.count, call_.input.dtype, factor);
  spread(target, at);
}

/// Non-temporal stores write results that are not staged to all places where they belong.
bool ShmOperation::passes_by() const {
  return non_temporal_ && !plan_.uses(ShmStage::kCopyOut);
}

/// Where a result belongs in the output of a rank; of a collective that gives each its own chunk, this rank's.
std::byte* ShmOperation::result_at(int local, std::size_t element) const {
  if (owns_output(call_.collective)) return output(element - chunk(host_.rank()).first);
  return local == host_.rank() ? output(element) : peer_buffer(local, false, element);
}

void ShmOperation::spread(const std::byte* result, Extent at) const {
  const int me = host_.rank();
  const bool to_all = call_.collective == Collective::kAllreduce;
  if (plan_.uses(ShmStage::kCopyOut)) {
    if (to_all || me == call_.root) copy_to_output(output(at.first), result, bytes(at.count));
  } else if (to_all) {
    const std::size_t size = bytes(at.count);
    for (int local = 0; local < host_.size(); ++local) {
      const auto* input = static_cast<const std::byte*>(host_.pointers()[static_cast<std::size_t>(local)]);
      copy_to_output(result_at(local, at.first), result, size, input + size);
    }
  } else {
    copy_to_output(result_at(call_.collective == Collective::kReduce ? call_.root : me, at.first), result,
                   bytes(at.count));
  }
}

/// Shows a slice of the own chunk to the peers, or writes it to them, and to the own output.
void ShmOperation::publish(std::size_t slice) {
  const int me = host_.rank();
  const Extent whole = chunk(me);
  const Extent at = slice_of(whole, slice);
  if (at.count == 0) return;
  const bool own_only = owns_input(call_.collective);
  const std::byte* from = input(own_only ? at.first - whole.first : at.first);
  const bool has_output = call_.collective == Collective::kAllgather || me == call_.root;
  if (plan_.uses(ShmStage::kCopyOut)) {
    std::memcpy(host_.result_slot(me, lane_, slice), from, bytes(at.count));
  } else {
    for (int local = 0; local < host_.size(); ++local) {
      const bool is_target = call_.collective != Collective::kGather || local == call_.root;
      if (local != me && is_target) std::memcpy(peer_buffer(local, false, at.first), from, bytes(at.count));
    }
  }
  if (has_output) copy_to_output(output(at.first), from, bytes(at.count));
}

/// Copies from the input of another rank, where it is in a window, else by cross-memory attach. False if that rank is
/// gone.
bool ShmOperation::fetch(int local, std::size_t element, std::byte* to, std::size_t bytes) const {
  ArrivalRecord& line = arrival(local);
  if (line.input().load(std::memory_order_relaxed) != ShmGroup::kUnreachable) {
    copy_to_output(to, peer_buffer(local, true, element), bytes);
    return true;
  }
  const std::uint64_t address = line.address().load(std::memory_order_relaxed) + this->bytes(element);
  const int error = host_.copy_from(local, address, to, bytes);
  if (error == 0) return true;
  if (error == ESRCH) return false;
  // A rank that has failed says so before its memory goes.
  group_.endpoint->poll_health();
  if (group_.endpoint->has_fault()) return false;
  throw TransportError(
      fmt::format("{}: {} bytes of the input of rank {} could not be read: {}; it must stay until the "
                  "collective is done (FARANDOLE_SINGLE_COPY_BYTES=0 for memory of a device)",
                  name(call_.collective), bytes, group_.member(host_.member(local)), std::strerror(error)));
}

/// Puts what the peers have for this rank where it belongs.
bool ShmOperation::place(std::size_t slice) {
  const int me = host_.rank();
  const bool all_to_all = call_.collective == Collective::kAlltoall;
  for (int local = 0; local < host_.size(); ++local) {
    if (!all_to_all && local != call_.root) continue;
    Extent to{0, chunk(me).count};
    if (all_to_all) {
      const auto peer = static_cast<std::size_t>(local);
      to = {recv_firsts_[peer], recv_firsts_[peer + 1] - recv_firsts_[peer]};
    }
    const std::size_t skipped = std::min(to.count, slice * granularity_);
    to = {to.first + skipped, std::min(granularity_, to.count - skipped)};
    if (to.count == 0) continue;
    if (local == me) {
      copy_to_output(output(to.first), input(chunk(me).first + skipped), bytes(to.count));
    } else if (plan_.reads_inputs()) {
      std::size_t first = chunk(me).first;
      if (counted_) {
        const auto sent = counts_of(local, true);
        first = std::accumulate(sent.begin(), sent.begin() + me, std::size_t{0});
      }
      if (!fetch(local, first + skipped, output(to.first), bytes(to.count))) return false;
    } else {
      copy_to_output(output(to.first), staged_chunk(local, me, slice), bytes(to.count));
    }
  }
  return true;
}

/// Copies what the peers have published.
bool ShmOperation::copy_out(std::size_t slice) {
  const int me = host_.rank();
  for (int owner = 0; owner < host_.size(); ++owner) {
    const Extent whole = chunk(owner);
    const Extent at = slice_of(whole, slice);
    if (at.count == 0 || (owner == me && plan_.uses(ShmStage::kReduce))) continue;
    const bool own_only = owns_input(call_.collective);
    const std::size_t element = own_only ? at.first - whole.first : at.first;
    if (owner == me) {
      copy_to_output(output(at.first), input(element), bytes(at.count));
    } else if (plan_.uses(ShmStage::kReduce)) {
      copy_to_output(output(at.first), staged_result(owner, me, slice), bytes(at.count));
    } else if (!fetch(owner, element, output(at.first), bytes(at.count))) {
      return false;
    }
  }
  return true;
}

}  // namespace farandole
