// SPDX-License-Identifier: Apache-2.0
// What an engine looks at now and then: peers that are gone, requests that wait for long, and counters.
#include <fmt/format.h>

#include <mutex>

#include "farandole/internal/log.h"
#include "tensor_engine.h"

namespace farandole {

void TensorEngine::poll_health() {
  try {
    endpoint_.poll_health();
  } catch (const std::exception& error) {
    endpoint_.poison(ErrorKind::kTransportError, error.what());
  }
  const std::unique_lock lock(drive_mutex_, std::try_to_lock);
  if (!lock || job_fault_) return;
  const auto now = Clock::now();
  check_stall(now);
  check_standstill(now);
}

void TensorEngine::check_stall(Clock::time_point now) {
  SetEngine* late = nullptr;
  Clock::time_point oldest = Clock::time_point::max();
  for (const auto& [id, set] : sets_) {
    const auto since = set->waits_since();
    if (since && *since < oldest) {
      oldest = *since;
      late = set.get();
    }
  }
  const Settings& settings = endpoint_.settings();
  if (oldest != stalled_since_) warning_interval_ = settings.warn_after;
  stalled_since_ = oldest;
  if (late == nullptr) return;
  const Seconds waited = now - oldest;
  if (settings.timeout.count() > 0 && waited >= settings.timeout) {
    endpoint_.poison(ErrorKind::kTimeout,
                     fmt::format("the deadline of {} s (FARANDOLE_TIMEOUT) has passed on rank {} for {}",
                                 settings.timeout.count(), communicator_.rank(), late->describe_waiting()));
  } else if (waited >= warning_interval_) {
    log(LogLevel::kWarning,
        fmt::format("waiting for {:.1f} s for {}; other ranks have not submitted the same, or not reached it yet",
                    waited.count(), late->describe_waiting()));
    warning_interval_ *= 2;
  }
}

void TensorEngine::check_standstill(Clock::time_point now) {
  bool somebody_waits = false, has_batches = false;
  for (const auto& [id, set] : sets_) {
    somebody_waits = somebody_waits || set->negotiator().is_waited_for();
    has_batches = has_batches || set->has_batches();
  }
  if (!somebody_waits || has_batches) {
    standstill_.end();
  } else if (standstill_.look(happenings(), now)) {
    for (const auto& [id, set] : sets_) set->announce_standstill();
  }
}

/// Grows with each request that is submitted, and with each that ends.
std::uint64_t TensorEngine::happenings() const {
  return 2 * requests_.load() - static_cast<std::uint64_t>(pending_.load());
}

farandole_counters TensorEngine::counters() {
  const std::lock_guard lock(drive_mutex_);
  farandole_counters sum = removed_counters_;
  sum.struct_bytes = sizeof sum;
  sum.requests = requests_.load();
  for (const auto& [id, set] : sets_) set->add_counters(sum);
  sum.sent_bytes = communicator_.sent_bytes();
  return sum;
}

}  // namespace farandole
