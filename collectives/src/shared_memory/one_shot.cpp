// SPDX-License-Identifier: Apache-2.0
#include "shared_memory/one_shot.h"

#include <array>
#include <cstring>

#include "farandole/core/reduce.h"
#include "shared_memory/arrival.h"

namespace farandole {

OneShot::OneShot(ShmGroup& host, int lane, const Call& call, std::span<const std::size_t> firsts)
    : host_(host),
      lane_(lane),
      call_(call),
      firsts_(firsts),
      element_bytes_(size_in_bytes(call.input.dtype)),
      total_(firsts.empty() ? total_count(call, host.size()) : firsts.back()) {}

Extent OneShot::part(int local) const {
  if (!firsts_.empty()) return extent_of(firsts_, local);
  const std::size_t each = total_ / static_cast<std::size_t>(host_.size());
  return {static_cast<std::size_t>(local) * each, each};
}

/// Elements that a rank shows to its peers.
std::size_t OneShot::shown_by(int local) const {
  switch (call_.collective) {
    case Collective::kAllgather:
    case Collective::kGather:
      return part(local).count;
    case Collective::kBroadcast:
    case Collective::kScatter:
      return local == call_.root ? total_ : 0;
    default:
      return total_;
  }
}

void OneShot::show() {
  const int me = host_.rank();
  const std::size_t count = shown_by(me);
  if (count == 0) return;
  std::array<std::uint64_t, ArrivalRecord::kPayloadWords> payload{};
  void* to = fits_record(count) ? static_cast<void*>(payload.data()) : slot(me);
  if (is_scaled()) {
    scale(to, call_.input.data, count, call_.input.dtype, call_.prescale);
  } else {
    std::memcpy(to, call_.input.data, bytes(count));
  }
  if (!fits_record(count)) return;
  for (std::size_t i = 0; i < payload.size(); ++i) {
    arrival(me).payload[i].store(payload[i], std::memory_order_relaxed);
  }
}

void OneShot::take() {
  const int me = host_.rank();
  switch (call_.collective) {
    case Collective::kAllreduce:
      return reduce_from_all({0, total_});
    case Collective::kReduce:
      if (me == call_.root) reduce_from_all({0, total_});
      return;
    case Collective::kReduceScatter:
      return reduce_from_all(part(me));
    case Collective::kBroadcast:
      if (me != call_.root) copy_from(call_.root, {0, total_}, 0);
      return;
    case Collective::kScatter:
      return me == call_.root ? copy_own(part(me), 0) : copy_from(call_.root, part(me), 0);
    case Collective::kGather:
      if (me != call_.root) return;
      [[fallthrough]];
    case Collective::kAllgather:
      copy_own({0, part(me).count}, part(me).first);
      for (int local = 0; local < host_.size(); ++local) {
        if (local != me) copy_from(local, {0, part(local).count}, part(local).first);
      }
      return;
    case Collective::kAlltoall:
      copy_own(part(me), part(me).first);
      for (int local = 0; local < host_.size(); ++local) {
        if (local != me) copy_from(local, part(me), part(local).first);
      }
      return;
    case Collective::kBarrier:
      return;
  }
}

/// This rank's own elements `at`, to be reduced into the output's first ones: those of the input, unless they would be
/// written before they are read, or its peers take scaled ones.
const std::byte* OneShot::own(Extent at) const {
  const std::byte* input = static_cast<const std::byte*>(call_.input.data) + bytes(at.first);
  const auto from = reinterpret_cast<std::uintptr_t>(input);
  const auto to = reinterpret_cast<std::uintptr_t>(call_.output.data);
  const bool stays = from == to || from + bytes(at.count) <= to || to + bytes(at.count) <= from;
  return stays && !is_scaled() ? input : shown(host_.rank(), total_) + bytes(at.first);
}

void OneShot::reduce_from_all(Extent at) {
  const auto pointers = host_.pointers();
  for (std::size_t i = 0; i < pointers.size(); ++i) {
    const int local = static_cast<int>(i);
    pointers[i] = local == host_.rank() ? own(at) : shown(local, total_) + bytes(at.first);
  }
  reduce_many(call_.output.data, pointers, at.count, call_.input.dtype, call_.op);
  const double factor = final_scale(call_, host_.size());
  if (factor != 1.0) scale(call_.output.data, call_.output.data, at.count, call_.input.dtype, factor);
}

/// Elements of this rank's input to the element `to` of the output, before anything else is written there.
void OneShot::copy_own(Extent at, std::size_t to) const {
  if (at.count == 0) return;
  const std::byte* from = static_cast<const std::byte*>(call_.input.data) + bytes(at.first);
  std::memmove(static_cast<std::byte*>(call_.output.data) + bytes(to), from, bytes(at.count));
}

/// Of what `local` shows, to the element `to` of the output.
void OneShot::copy_from(int local, Extent at, std::size_t to) const {
  if (at.count == 0) return;
  const std::byte* from = shown(local, shown_by(local)) + bytes(at.first);
  std::memcpy(static_cast<std::byte*>(call_.output.data) + bytes(to), from, bytes(at.count));
}

Attempt try_one_shot(ShmGroup& host, std::uint64_t number, std::uint64_t digest, const Call& call, Waiter& waiter) {
  if (!host.is_connected()) return Attempt::kNotBegun;
  const int lane = host.lane_of(number);
  if (host.first_behind(host.begin(lane, number)) >= 0) return Attempt::kNotBegun;
  // The record's line is in the peers' caches, and this rank gets it by writing to it: what can be done before that,
  // is.
  OneShot one_shot(host, lane, call);
  one_shot.show();
  publish_arrival(host, lane, number, digest);
  for (int local = 0; local < host.size(); ++local) {
    if (local == host.rank()) continue;
    while (!has_arrived(host, lane, number, local)) {
      if (waiter.sleeps_next()) return Attempt::kArrived;
      (void)waiter.rest();
    }
    if (host.lane(local, lane).arrival.digest.load(std::memory_order_relaxed) != digest) return Attempt::kArrived;
  }
  one_shot.take();
  host.end(lane);
  return Attempt::kDone;
}

}  // namespace farandole
