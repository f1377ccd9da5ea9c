// SPDX-License-Identifier: Apache-2.0
#include "interrupts.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <ctime>
#include <string_view>

namespace farandole::trainer {
namespace {

// Written by the signal handler. Relaxed: each value is used on its own.
std::atomic<int> first_signal{0};
std::atomic<std::int64_t> first_signal_ns{0};
std::atomic<bool> announces_signals{false};
static_assert(std::atomic<int>::is_always_lock_free && std::atomic<std::int64_t>::is_always_lock_free);

constexpr std::array<int, 3> kHandled{SIGINT, SIGTERM, SIGUSR1};

constexpr std::int64_t kPassedOnNs = 500'000'000;

std::int64_t now_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

extern "C" void farandole_train_on_signal(int signal) {
  const int former_errno = errno;
  int none = 0;
  if (first_signal.compare_exchange_strong(none, signal, std::memory_order_relaxed)) {
    first_signal_ns.store(now_ns(), std::memory_order_relaxed);
    // The progress line has no newline at its end.
    constexpr std::string_view kText = "\nfarandole-train: training ends soon; a second signal ends it at once\n";
    if (announces_signals.load(std::memory_order_relaxed)) (void)!write(STDERR_FILENO, kText.data(), kText.size());
  } else if (now_ns() - first_signal_ns.load(std::memory_order_relaxed) > kPassedOnNs) {
    // Takes effect when this handler returns, because the signal is blocked in it.
    std::signal(signal, SIG_DFL);
    (void)raise(signal);
  }
  errno = former_errno;
}

}  // namespace

void Interrupts::watch(bool announces) {
  const std::lock_guard lock(mutex_);
  if (announces) announces_signals.store(true, std::memory_order_relaxed);
  if (watches_) return;
  watches_ = true;
  struct sigaction action {};
  action.sa_handler = farandole_train_on_signal;
  action.sa_flags = SA_RESTART | SA_ONSTACK;
  sigemptyset(&action.sa_mask);
  for (std::size_t i = 0; i < kHandled.size(); ++i) {
    sigaction(kHandled[i], nullptr, &former_[i]);
    // Shells let background programs of scripts ignore Ctrl-C.
    if (former_[i].sa_handler != SIG_IGN) sigaction(kHandled[i], &action, nullptr);
  }
}

int Interrupts::received() {
  return first_signal.load(std::memory_order_relaxed);
}

Interrupts::~Interrupts() {
  if (!watches_) return;
  for (std::size_t i = 0; i < kHandled.size(); ++i) sigaction(kHandled[i], &former_[i], nullptr);
}

SignalStack::SignalStack() : memory_(static_cast<std::size_t>(std::max<long>(sysconf(_SC_SIGSTKSZ), 64 << 10))) {
  stack_t stack{};
  stack.ss_sp = memory_.data();
  stack.ss_size = memory_.size();
  sigaltstack(&stack, &former_);
}

SignalStack::~SignalStack() {
  sigaltstack(&former_, nullptr);
}

}  // namespace farandole::trainer
