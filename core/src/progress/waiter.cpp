// SPDX-License-Identifier: Apache-2.0
#include "farandole/internal/waiter.h"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <ctime>
#include <thread>

namespace farandole {
namespace {

// Rungs of the ladder: the number of pauses, then of yields, before a waiting thread sleeps. If every rank has a core,
// a thread yields for some milliseconds, because a sleeping core wakes up slowly, above all in virtual machines, and a
// rank that waits for a computing rank would pay for that in every training step.
constexpr int kPauses = 2000;
constexpr int kYields = 20'000;
constexpr int kOversubscribedYields = 200;
// A yield that takes longer than this has given the core to another thread, which will want the core again. Each
// further yield would last as long as that thread's time slice, whereas a sleep ends as soon as the doorbell rings.
constexpr std::chrono::milliseconds kTimeSliceOfAnotherThread{1};
constexpr int kShortSleeps = 400;  // about 40 ms, during which a polled transfer counts as active
constexpr std::chrono::microseconds kMinSleep{50};
constexpr std::chrono::microseconds kMaxPolledSleep{5000};
constexpr std::chrono::microseconds kMaxSleep{100'000};  // interval at which liveness of peers is checked

void pause_once() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#else
  std::atomic_signal_fence(std::memory_order_seq_cst);
#endif
}

void futex(std::atomic<std::uint32_t>& word, int operation, std::uint32_t value, const timespec* limit) {
  static_assert(sizeof(word) == sizeof(std::uint32_t));
  syscall(SYS_futex, &word, operation, value, limit, nullptr, 0);
}

}  // namespace

void Doorbell::ring() {
  rings_.fetch_add(1, std::memory_order_seq_cst);
  if (sleepers_.load(std::memory_order_seq_cst) > 0) futex(rings_, FUTEX_WAKE, INT_MAX, nullptr);
}

void Doorbell::sleep(std::uint32_t seen, std::chrono::microseconds limit) {
  const timespec time{limit.count() / 1'000'000, (limit.count() % 1'000'000) * 1000};
  sleepers_.fetch_add(1, std::memory_order_seq_cst);
  if (rings() == seen) futex(rings_, FUTEX_WAIT, seen, &time);
  sleepers_.fetch_sub(1, std::memory_order_seq_cst);
}

int Waiter::pauses() const {
  return options_.oversubscribed ? 0 : kPauses;
}

int Waiter::turns_awake() const {
  return pauses() + (options_.oversubscribed ? kOversubscribedYields : kYields);
}

bool Waiter::sleeps_next() const {
  return turns_ >= turns_awake();
}

void Waiter::disarm() {
  if (armed_) doorbell_.disarm();
  armed_ = false;
}

void Waiter::reset() {
  disarm();
  turns_ = 0;
  sleep_ = kMinSleep;
}

void Waiter::look() {
  if (sleeps_next() && !armed_) {
    armed_ = true;
    doorbell_.arm();
  }
  seen_ = doorbell_.rings();
}

bool Waiter::rest() {
  if (turns_ < pauses()) {
    ++turns_;
    pause_once();
    return false;
  }
  if (!sleeps_next()) {
    ++turns_;
    const auto before = std::chrono::steady_clock::now();
    std::this_thread::yield();
    if (std::chrono::steady_clock::now() - before > kTimeSliceOfAnotherThread) turns_ = turns_awake();
    return false;
  }
  doorbell_.sleep(seen_, sleep_);
  // Stops counting at the limit, because a thread may wait for months.
  if (options_.polled && turns_ + 1 < turns_awake() + kShortSleeps) {
    ++turns_;
    return true;
  }
  sleep_ = std::min(2 * sleep_, options_.polled ? kMaxPolledSleep : kMaxSleep);
  return true;
}

CoreSet allowed_cores() {
  CoreSet cores;
  cpu_set_t mask;
  CPU_ZERO(&mask);
  const bool known = sched_getaffinity(0, sizeof mask, &mask) == 0;
  for (std::size_t core = 0; core < cores.size(); ++core) cores[core] = known && CPU_ISSET(core, &mask);
  // The mask is unknown, for example because the system has more cores than a cpu_set_t: assume the first cores, as
  // many as the system has.
  if (cores.none()) {
    const std::size_t count = std::clamp<std::size_t>(std::thread::hardware_concurrency(), 1, cores.size());
    for (std::size_t core = 0; core < count; ++core) cores.set(core);
  }
  return cores;
}

}  // namespace farandole
