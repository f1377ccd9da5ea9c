// SPDX-License-Identifier: Apache-2.0
#include "device/captured_calls.h"

#include <algorithm>
#include <atomic>

namespace farandole {

void CapturedCalls::add(std::uint32_t* word, std::uint64_t number, const Descriptor& descriptor) {
  const std::lock_guard lock(mutex_);
  entries_.push_back({word, {number, descriptor, {}}});
}

std::optional<CapturedCalls::Replay> CapturedCalls::look(Clock::time_point now) {
  const std::lock_guard lock(mutex_);
  const Entry* oldest = nullptr;
  for (Entry& entry : entries_) {
    look(entry, now);
    if (entry.is_running && (oldest == nullptr || entry.replay.since < oldest->replay.since)) oldest = &entry;
  }
  if (oldest == nullptr) return std::nullopt;
  return oldest->replay;
}

void CapturedCalls::look(Entry& entry, Clock::time_point now) {
  const std::atomic_ref<std::uint32_t> word(*entry.word);
  std::uint32_t state = kBegun;
  // If the word is not kBegun, the exchange fails and stores the word in `state`. The next look sees replays that begin
  // later.
  const bool has_begun = word.compare_exchange_strong(state, kSeen, std::memory_order_acq_rel);
  const bool is_same = state == kSeen;
  if (entry.is_running && !is_same) last_end_ = now;
  if (has_begun) entry.replay.since = now;
  entry.is_running = has_begun || is_same;
}

bool CapturedCalls::has_running() const {
  const std::lock_guard lock(mutex_);
  return std::any_of(entries_.begin(), entries_.end(), [](const Entry& entry) {
    return std::atomic_ref<std::uint32_t>(*entry.word).load(std::memory_order_acquire) != kIdle;
  });
}

}  // namespace farandole
