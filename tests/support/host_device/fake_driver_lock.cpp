// SPDX-License-Identifier: Apache-2.0
#include "fake_driver_lock.h"

#include <atomic>
#include <cstdint>
#include <thread>

#include "fake_device.h"
#include "fake_options.h"
#include "fake_streams.h"
#include "fake_waiting.h"

namespace farandole::fake {

namespace {

constexpr std::uint32_t kFree = 0, kTaken = 1, kTakenAndAwaited = 2;
std::atomic<std::uint32_t> driver_lock{kFree};
std::atomic<unsigned> waiting_threads{0};

// Lengthens a call now and then, so that calls of other threads overlap with it.
void pause_at_random() {
  thread_local Random random = random_of(/*device=*/-1, this_thread_number());
  if (random.one_in(32)) std::this_thread::yield();
}

}  // namespace

DriverLock::DriverLock(bool locks) {
  if (!locks || option(Option::kDriverLock) == 0) return;
  std::uint32_t found = kFree;
  if (!driver_lock.compare_exchange_strong(found, kTaken, std::memory_order_relaxed)) {
    const DriverWait wait;
    while (driver_lock.exchange(kTakenAndAwaited, std::memory_order_relaxed) != kFree) {
      sleep_while(driver_lock, kTakenAndAwaited);
    }
  }
  is_locked_ = true;
  pause_at_random();
}

void DriverLock::unlock() {
  if (!is_locked_) return;
  is_locked_ = false;
  if (driver_lock.exchange(kFree, std::memory_order_relaxed) == kTakenAndAwaited) wake_sleepers(driver_lock);
}

DriverWait::DriverWait() {
  waiting_threads.fetch_add(1, std::memory_order_relaxed);
}

DriverWait::~DriverWait() {
  waiting_threads.fetch_sub(1, std::memory_order_relaxed);
}

}  // namespace farandole::fake

extern "C" unsigned fake_device_waits_in_driver(void) {
  return farandole::fake::waiting_threads.load(std::memory_order_relaxed);
}
