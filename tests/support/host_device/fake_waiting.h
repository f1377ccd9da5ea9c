// SPDX-License-Identifier: Apache-2.0
// Sleeping without synchronisation, by futex system calls. Condition variables and std::atomic::wait contain locks, in
// which the thread sanitizer would see an order between streams that no GPU has.
#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <climits>
#include <cstdint>
#include <thread>

namespace farandole::fake {

static_assert(sizeof(std::atomic<std::uint32_t>) == sizeof(std::uint32_t) &&
              std::atomic<std::uint32_t>::is_always_lock_free);

/// Sleeps while `word` equals `value`; may return earlier.
inline void sleep_while(const std::atomic<std::uint32_t>& word, std::uint32_t value) {
  syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, value, nullptr, nullptr, 0);
}

/// Wakes the threads of this process that sleep on the word.
inline void wake_sleepers(const std::atomic<std::uint32_t>& word) {
  syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
}

/// Pauses between polls of memory that another thread or process will change.
class Backoff {
 public:
  void pause() {
    constexpr int kYields = 64;
    if (looks_++ < kYields) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  }
  void reset() { looks_ = 0; }

 private:
  int looks_ = 0;
};

}  // namespace farandole::fake
