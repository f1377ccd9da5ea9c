// SPDX-License-Identifier: Apache-2.0
#include "shared_memory/one_shot.h"

#include <array>

#include "shared_memory/arrival.h"

namespace farandole {

OneShot::OneShot(ShmGroup& host, int lane, const Call& call, std::span<const std::size_t> firsts)
    : host_(host), lane_(lane), collective_(call, host.rank(), host.size(), firsts) {}

void OneShot::show() {
  const int me = host_.rank();
  const std::size_t count = collective_.shown_by(me).count;
  if (count == 0) return;
  if (!fits_record(count)) return collective_.show(slot(me));
  std::array<std::uint64_t, ArrivalRecord::kPayloadWords> payload{};
  collective_.show(payload.data());
  for (std::size_t i = 0; i < payload.size(); ++i) {
    arrival(me).payload[i].store(payload[i], std::memory_order_relaxed);
  }
}

void OneShot::take() {
  // What a rank shows stays until this one has completed the operation.
  const auto shown = [this](int local) -> const std::byte* {
    if (!fits_record(collective_.shown_by(local).count)) return slot(local);
    return reinterpret_cast<const std::byte*>(arrival(local).payload.data());
  };
  collective_.take(shown, host_.pointers());
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
