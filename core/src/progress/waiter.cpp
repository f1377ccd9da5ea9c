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

// The rungs: how often a waiting thread pauses, then yields, before it sleeps. Where every rank has a core it yields
// for some milliseconds: a core that goes to sleep comes back slower, in virtual machines above all, and a rank that
// waits for one that computes waits that long in every training step.
constexpr int kPauses = 2000;
constexpr int kYields = 20'000;
constexpr int kOversubscribedYields = 200;
// A yield that lasts this long gave the core to another thread, which wants it again: more yields would each cost that
// thread's turn, where a sleep ends as soon as the doorbell rings.
constexpr std::chrono::milliseconds kTurnOfAnotherThread{1};
constexpr int kShortSleeps = 400;  // about 40 ms: a polled transfer still counts as active
constexpr std::chrono::microseconds kShortestSleep{50};
constexpr std::chrono::microseconds kLongestPolledSleep{5000};
constexpr std::chrono::microseconds kLongestSleep{100'000};  // liveness of peers is looked at this often

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
  sleep_ = kShortestSleep;
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
    if (std::chrono::steady_clock::now() - before > kTurnOfAnotherThread) turns_ = turns_awake();
    return false;
  }
  doorbell_.sleep(seen_, sleep_);
  // Counted up to the limit only: a thread may wait for months.
  if (options_.polled && turns_ + 1 < turns_awake() + kShortSleeps) {
    ++turns_;
    return true;
  }
  sleep_ = std::min(2 * sleep_, options_.polled ? kLongestPolledSleep : kLongestSleep);
  return true;
}

CoreSet allowed_cores() {
  CoreSet cores;
  cpu_set_t mask;
  CPU_ZERO(&mask);
  const bool known = sched_getaffinity(0, sizeof mask, &mask) == 0;
  for (std::size_t core = 0; core < cores.size(); ++core) cores[core] = known && CPU_ISSET(core, &mask);
  // More cores than a set holds, or none told: as many as there are.
  if (cores.none()) {
    const std::size_t count = std::clamp<std::size_t>(std::thread::hardware_concurrency(), 1, cores.size());
    for (std::size_t core = 0; core < count; ++core) cores.set(core);
  }
  return cores;
}

}  // namespace farandole
