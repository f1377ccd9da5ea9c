// SPDX-License-Identifier: Apache-2.0
#include "device/vendor_calls.h"

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <thread>

namespace farandole {
namespace {

std::atomic<int> open_scopes{0};
std::atomic<pid_t> registered_by{0};

void wait_at_exit(int status, void* /*unused*/) {
  if (getpid() != registered_by.load(std::memory_order_relaxed)) return;  // a forked child has none of the threads
  constexpr auto kPatience = std::chrono::seconds(2);
  const auto begin = std::chrono::steady_clock::now();
  while (open_scopes.load(std::memory_order_acquire) > 0) {
    if (std::chrono::steady_clock::now() - begin > kPatience) {
      std::fflush(nullptr);
      _exit(status);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

}  // namespace

VendorCallScope::VendorCallScope() {
  open_scopes.fetch_add(1, std::memory_order_relaxed);
}

VendorCallScope::~VendorCallScope() {
  open_scopes.fetch_sub(1, std::memory_order_release);
}

void wait_for_vendor_threads_at_exit() {
  static std::once_flag once;
  std::call_once(once, [] {
    registered_by = getpid();
    on_exit(wait_at_exit, nullptr);
  });
}

}  // namespace farandole
