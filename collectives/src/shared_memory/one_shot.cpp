// SPDX-License-Identifier: Apache-2.0
#include "shared_memory/one_shot.h"

#include <array>

#include "shared_memory/arrival.h"

namespace farandole {

OneShot::OneShot(ShmGroup& shm, int lane, const PreparedCall& prepared, std::span<const std::size_t> offsets)
    : shm_(shm), lane_(lane), collective_(prepared, shm.rank(), shm.size(), offsets) {}

void OneShot::publish_input() {
  const int me = shm_.rank();
  const std::size_t count = collective_.shown_by(me).count;
  if (count == 0) return;
  if (!fits_record(count)) return collective_.show(slot(me));
  std::array<std::uint64_t, ArrivalRecord::kPayloadWords> payload{};
  collective_.show(payload.data());
  for (std::size_t i = 0; i < payload.size(); ++i) {
    arrival(me).payload[i].store(payload[i], std::memory_order_relaxed);
  }
}

void OneShot::compute_result() {
  // Published data stay unchanged until this rank has completed the operation.
  const auto published = [this](int local) -> const std::byte* {
    if (!fits_record(collective_.shown_by(local).count)) return slot(local);
    return reinterpret_cast<const std::byte*>(arrival(local).payload.data());
  };
  collective_.take(published, shm_.pointers());
}

Attempt try_one_shot(ShmGroup& shm, std::uint64_t number, const PreparedCall& prepared, Waiter& waiter) {
  const std::uint64_t digest = digest_of(prepared.descriptor, number);
  if (!shm.is_connected()) return Attempt::kNotBegun;
  const int lane = shm.ledger().lane_of(number);
  if (shm.ledger().first_behind(shm.ledger().begin(lane, number)) >= 0) return Attempt::kNotBegun;
  // Steps that can fail come above: the first write to the arrival record fetches its cache line from the peers.
  OneShot one_shot(shm, lane, prepared);
  one_shot.publish_input();
  publish_arrival(shm, lane, number, digest);
  for (int local = 0; local < shm.size(); ++local) {
    if (local == shm.rank()) continue;
    while (!has_arrived(shm, lane, number, local)) {
      if (waiter.sleeps_next()) return Attempt::kPublished;
      (void)waiter.rest();
    }
    if (shm.layout().lane(local, lane).arrival.digest.load(std::memory_order_relaxed) != digest) {
      return Attempt::kPublished;
    }
  }
  one_shot.compute_result();
  shm.ledger().end(lane);
  return Attempt::kDone;
}

}  // namespace farandole
