// SPDX-License-Identifier: Apache-2.0
#include "fake_host_faults.h"

#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdint>
#include <string>

namespace farandole::fake {

namespace {

// Text for the signal handler, prepared in advance because the handler may neither allocate nor lock.
struct Explanation {
  std::uintptr_t begin;
  std::uintptr_t end;
  std::string line;
  Explanation* next;
};
// Newest first. Release: explain_faults_in; acquire: the handler.
std::atomic<Explanation*> explanations{nullptr};

void explain_and_die(int signal, siginfo_t* info, void* /*context*/) {
  const auto address = reinterpret_cast<std::uintptr_t>(info->si_addr);
  for (const Explanation* each = explanations.load(std::memory_order_acquire); each != nullptr; each = each->next) {
    if (address < each->begin || address >= each->end) continue;
    [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, each->line.data(), each->line.size());
    break;
  }
  raise(signal);  // takes effect when the handler returns, now with the default action
}

bool install_handler() {
  struct sigaction present {};
  if (sigaction(SIGSEGV, nullptr, &present) != 0) return false;
  if ((present.sa_flags & SA_SIGINFO) != 0 || present.sa_handler != SIG_DFL) return false;
  struct sigaction wanted {};
  wanted.sa_sigaction = explain_and_die;
  wanted.sa_flags = SA_SIGINFO | SA_ONSTACK | static_cast<int>(SA_RESETHAND);
  sigemptyset(&wanted.sa_mask);
  return sigaction(SIGSEGV, &wanted, nullptr) == 0;
}

}  // namespace

void explain_faults_in(const Allocation& allocation) {
  static const bool is_installed = install_handler();
  if (!is_installed) return;
  auto* const added = new Explanation{allocation.begin, allocation.begin + allocation.bytes,
                                      "fake device misuse: the host reads or writes " + text_of(allocation) + "\n",
                                      explanations.load(std::memory_order_relaxed)};
  while (
      !explanations.compare_exchange_weak(added->next, added, std::memory_order_release, std::memory_order_relaxed)) {
  }
}

}  // namespace farandole::fake
